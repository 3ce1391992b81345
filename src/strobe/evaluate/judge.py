"""Judge runs of lerobot-eval as an evaluation of Strobe's is judged, without playing an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, os_error_reason
from strobe.core.json_text import parse_json
from strobe.core.measure.statistics import bonferroni
from strobe.core.runs.contents import contents
from strobe.evaluate.measure.success_rates import LEVEL, paired_rates, success_rate, unpaired_rates
from strobe.evaluate.results import Judged, JudgedOnTask, JudgedRun
from strobe.version import __version__


def judge(files: Sequence[Path], margin: float, same_seeds: bool = False) -> Judged:
    """Judge each run against the first, at one look, in pairs where they share their seeds.

    The verdicts of a run on single tasks are held to the error of one, all tasks together.

    Args:
        margin: loss of success rate, 0 to 1, that counts as not worse.
        same_seeds: the user says that all runs had the same seed, so that episode i of a task began alike in all.

    Raises:
        UserError: a file is none of lerobot-eval's; the runs are of different tasks, or of different lengths and said
            to have had the same seed.
    """
    runs = [read_run(path) for path in files]
    tasks = list(runs[0].tasks)
    for run in runs[1:]:
        if set(run.tasks) != set(tasks):
            raise UserError(
                f"{run.file} has other tasks ({', '.join(run.tasks)}) than {runs[0].file} ({', '.join(tasks)}): "
                "their rates cannot be compared"
            )
    paired, pairing = _pairing(runs, same_seeds)
    short = distinct_names(files)
    return Judged(
        strobe_version=__version__,
        title=" against ".join(short),
        tasks=tasks,
        margin=margin,
        pairing=pairing,
        paired=paired,
        runs=[
            JudgedRun(
                name=name,
                file=str(run.file),
                together=_judge_task(runs[0].tasks, run.tasks, tasks, paired, margin, LEVEL, not number),
                tasks={
                    task: _judge_task(
                        runs[0].tasks, run.tasks, [task], paired, margin, bonferroni(len(tasks)), not number
                    )
                    for task in tasks
                    if len(tasks) > 1
                },
            )
            for number, (name, run) in enumerate(zip(short, runs, strict=True))
        ],
    )


def _pairing(runs: Sequence[EvalRun], same_seeds: bool) -> tuple[bool, str]:
    """Whether episode i of each task is a pair in all runs, and why, in words. Raises UserError."""
    lengths = [{task: len(episodes) for task, episodes in run.tasks.items()} for run in runs]
    seeds = [{task: [episode.seed for episode in episodes] for task, episodes in run.tasks.items()} for run in runs]
    known = all(seed is not None for run in seeds for of_task in run.values() for seed in of_task)
    if len(runs) == 1:
        return False, "One run: there is no other run to judge it against."
    if same_seeds:
        if any(length != lengths[0] for length in lengths):
            raise UserError("--same_seeds: the runs have different numbers of episodes, so they are not in pairs")
        if known and any(of_run != seeds[0] for of_run in seeds):
            raise UserError("--same_seeds: the files say that the runs had different seeds")
        return True, "In pairs: by --same_seeds the runs had the same seed."
    if known and all(of_run == seeds[0] for of_run in seeds):
        return True, "In pairs: the files say that the runs had the same seeds."
    why = "the runs had different seeds" if known else "the files do not say which seeds the runs had"
    more = "" if known else "; if they had the same, --same_seeds takes them in pairs, which needs fewer episodes"
    return False, f"Not in pairs: {why}{more}."


def _judge_task(
    first: Mapping[str, Sequence[EvalEpisode]],
    own: Mapping[str, Sequence[EvalEpisode]],
    tasks: Sequence[str],
    paired: bool,
    margin: float,
    level: float,
    is_first: bool,
) -> JudgedOnTask:
    before = [episode.success for task in tasks for episode in first[task]]
    episodes = [episode for task in tasks for episode in own[task]]
    won = [episode.success for episode in episodes]
    rewards = [episode.reward for episode in episodes if episode.reward is not None]
    judged = JudgedOnTask(
        success=success_rate(won), reward=sum(rewards) / len(rewards) if len(rewards) == len(won) else None
    )
    if not is_first and paired:
        judged.paired = paired_rates(before, won, margin, level, every=None)
    elif not is_first:
        counted, against = (
            [(sum(each.success for each in run[task]), len(run[task])) for task in tasks] for run in (own, first)
        )
        judged.unpaired = unpaired_rates(against, counted, margin, level)
    return judged


EVAL_INFO = "eval_info.json"


@dataclass(frozen=True)
class EvalEpisode:
    """One episode; ``reward`` is the sum over its ticks, ``seed`` None if the file does not say."""

    success: bool
    reward: float | None
    seed: int | None = None


@dataclass(frozen=True)
class EvalRun:
    """One run: its file, and its episodes in the order played, by task."""

    file: Path
    tasks: dict[str, list[EvalEpisode]]


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the files that ``--results`` names: files, runs' folders, or folders of several.

    Raises:
        UserError: one of them is not there, or holds no eval_info.json.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [path / EVAL_INFO] if (path / EVAL_INFO).is_file() else sorted(path.rglob(EVAL_INFO))
            if not inside:
                raise UserError(f"--results: no {EVAL_INFO} in {path}: name the folder that lerobot-eval wrote")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"--results: there is no {path}")
    if len({path.resolve() for path in files}) < len(files):
        raise UserError(f"--results={','.join(map(str, paths))}: a run is listed twice: name each run once")
    if not files:
        raise UserError(f"--results names runs of lerobot-eval: --results=A/{EVAL_INFO},B/{EVAL_INFO}")
    return files


def read_run(path: Path) -> EvalRun:
    """Return the episodes in an eval_info.json, of today's lerobot-eval or of those before it had several tasks.

    Raises:
        UserError: it cannot be read, or is another file.
    """
    try:
        content = parse_json(contents(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {os_error_reason(error)}") from None
    except ValueError:
        raise UserError(f"{path} is truncated or not JSON") from None
    try:
        tasks = _tasks(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{path} is JSON, but not an {EVAL_INFO} of lerobot-eval: it has no episodes by task") from None
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


def _episode(success: object, reward: Any, seed: object = None) -> EvalEpisode:
    if success not in (0, 1) or not isinstance(seed, int | None):
        raise ValueError
    finite = None if reward is None or not math.isfinite(reward) else float(reward)
    return EvalEpisode(bool(success), finite, seed)


def distinct_names(files: Sequence[Path]) -> list[str]:
    """Return a name for each file: the last folders of its path, as many as distinguish all of them."""
    paths = [path.resolve() for path in files]
    parts = [path.parent.parts if path.name == EVAL_INFO else (*path.parent.parts, path.stem) for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        short = ["/".join(folders[-count:]) for folders in parts]
        if len(set(short)) == len(short):
            return short
    return [str(path) for path in paths]
