"""eval_info.json: what lerobot-eval leaves of its episodes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.errors import UserError, in_words

NAME = "eval_info.json"


@dataclass(frozen=True)
class EvalEpisode:
    """One episode; ``reward`` is the sum over its ticks, ``seed`` None where the file does not say."""

    success: bool
    reward: float | None
    seed: int | None = None


@dataclass(frozen=True)
class EvalRun:
    """One run: its file, and its episodes in the order played, by task."""

    file: Path
    tasks: dict[str, list[EvalEpisode]]


def find(text: str) -> list[Path]:
    """Return the files that ``--results`` names: files, runs' folders, or folders of several; commas between them.

    Raises:
        UserError: one of them is not there, or holds no eval_info.json.
    """
    files: list[Path] = []
    for path in (Path(part.strip()) for part in text.split(",") if part.strip()):
        if path.is_dir():
            inside = [path / NAME] if (path / NAME).is_file() else sorted(path.rglob(NAME))
            if not inside:
                raise UserError(f"--results: no {NAME} in {path}: name the folder that lerobot-eval wrote")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"--results: there is no {path}")
    if len({path.resolve() for path in files}) < len(files):
        raise UserError(f"--results={text}: each run once")
    if not files:
        raise UserError(f"--results names runs of lerobot-eval: --results=A/{NAME},B/{NAME}")
    return files


def read(path: Path) -> EvalRun:
    """Return the episodes in an eval_info.json, of today's lerobot-eval or of those before it had several tasks.

    Raises:
        UserError: it cannot be read, or is another file.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {in_words(error)}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is truncated or not JSON") from None
    try:
        tasks = _tasks(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{path} is JSON, but no {NAME} of lerobot-eval: it has no episodes by task") from None
    return EvalRun(path, tasks)


def _tasks(content: Any) -> dict[str, list[EvalEpisode]]:
    """Return the episodes by task. Raises KeyError, TypeError, ValueError or AttributeError for another content."""
    if "per_episode" in content:
        episodes = [
            _episode(episode["success"], episode.get("sum_reward"), episode.get("seed"))
            for episode in content["per_episode"]
        ]
        tasks = {"all": episodes}
    else:
        tasks = {}
        several = len(content["per_task"]) > 1
        for entry in content["per_task"]:
            metrics, group = entry["metrics"], str(entry["task_group"])
            won, rewards = metrics["successes"], metrics.get("sum_rewards") or [None] * len(metrics["successes"])
            name = f"{group} {entry['task_id']}" if several else group
            if name in tasks:
                raise ValueError
            tasks[name] = [_episode(success, reward) for success, reward in zip(won, rewards, strict=True)]
    if not tasks or not all(tasks.values()):
        raise ValueError
    return tasks


def _episode(success: Any, reward: Any, seed: Any = None) -> EvalEpisode:
    if success not in (0, 1) or not isinstance(seed, int | None):
        raise ValueError
    finite = None if reward is None or not math.isfinite(reward) else float(reward)
    return EvalEpisode(bool(success), finite, seed)


def names(files: Sequence[Path]) -> list[str]:
    """Return a name for each file: the last folders of its path, as many as distinguish all of them."""
    paths = [path.resolve() for path in files]
    parts = [path.parent.parts if path.name == NAME else (*path.parent.parts, path.stem) for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        short = ["/".join(folders[-count:]) for folders in parts]
        if len(set(short)) == len(short):
            return short
    return [str(path) for path in paths]
