"""eval_info.json as lerobot-eval writes it, without the parts that nobody here reads."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from strobe.evaluate.judge import judge
from strobe.evaluate.results import Judged


def write(folder: Path, name: str, tasks: Mapping[str, Sequence[int]]) -> Path:
    """A run's file in ``folder/name``: the outcomes of each task's episodes; a task is written 'group id'."""
    per_task = []
    for task, won in tasks.items():
        group, number = task.rsplit(" ", 1)
        metrics = {"sum_rewards": [float(one) for one in won], "max_rewards": [float(one) for one in won],
                   "successes": [bool(one) for one in won], "video_paths": []}  # fmt: skip
        per_task.append({"task_group": group, "task_id": int(number), "metrics": metrics})
    outcomes = [one for won in tasks.values() for one in won]
    overall = {"pc_success": 100 * sum(outcomes) / len(outcomes), "n_episodes": len(outcomes)}
    (folder / name).mkdir(parents=True)
    path = folder / name / "eval_info.json"
    path.write_text(json.dumps({"per_task": per_task, "per_group": {}, "overall": overall}))
    return path


def make_judged() -> Judged:
    """Two runs of 20 episodes on each of two tasks, in pairs; the second loses half of them."""
    with tempfile.TemporaryDirectory() as folder:
        files = [
            write(Path(folder), name, {"spatial 0": won, "spatial 1": won})
            for name, won in {"slow": [1] * 18 + [0] * 2, "fast": [1, 0] * 10}.items()
        ]
        return judge(files, 0.1, same_seeds=True)
