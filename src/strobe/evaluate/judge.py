"""Judge runs of lerobot-eval as an evaluation of Strobe's is judged, without playing an episode."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, os_error_reason
from strobe.core.measure.statistics import bonferroni
from strobe.core.runs import store
from strobe.core.runs.saved_runs import unlike, versions
from strobe.core.untrusted import contents, parse_json
from strobe.evaluate import episode_log
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
        differences=_differences(runs, short),
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
    if any(_other_starts(runs[0], run) for run in runs):
        return False, "Not in pairs: equal seeds were no equal starts."
    if known and all(of_run == seeds[0] for of_run in seeds):
        return True, "In pairs: the files say that the runs had the same seeds."
    why = "the runs had different seeds" if known else "the files do not say which seeds the runs had"
    more = "" if known else "; if they had the same, --same_seeds takes them in pairs, which needs fewer episodes"
    return False, f"Not in pairs: {why}{more}."


def _differences(runs: Sequence[EvalRun], names: Sequence[str]) -> list[str]:
    """Return in sentences what else differs between each run and the first, and what their files do not say."""
    found = list[str]()
    for name, run in zip(names, runs, strict=True):
        won = (run.stated or 0.0) / 100 * int(run.facts["episodes"])
        if abs(won - round(won)) > 0.01:
            found.append(f"{name} states {run.stated:.4g} %, which is no whole number of its {run.facts['episodes']}")
        found += [f"{name} differs from {names[0]} in {line[:160]}" for line in unlike(runs[0].facts, run.facts)]
        if other := _other_starts(runs[0], run):
            found.append(f"{other} episodes of {name} begin with another first observation than those of equal seeds")
    if any(len(run.facts) == 1 for run in runs[1:]):
        found.append(f"Not known from {EVAL_INFO}: settings, processors, versions, and the renderer (MUJOCO_GL)")
        if any("libero" in task for task in runs[0].tasks):
            found.append("Before LeRobot 0.6.1, equal seeds are no equal starts in LIBERO")
    return [f"{line}." for line in found]


def _other_starts(first: EvalRun, run: EvalRun) -> int:
    """Return how many episodes of a run begin otherwise than the first run's of equal seeds, as far as known."""
    pairs = [pair for task in run.tasks for pair in zip(first.tasks[task], run.tasks[task], strict=False)]
    return sum(bool(a.start and b.start) and a.seed == b.seed and a.start != b.start for a, b in pairs)


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
    """One episode; ``reward`` is the sum over its ticks, ``start`` a digest. What the file does not say is None."""

    success: bool
    reward: float | None
    seed: int | None = None
    start: str | None = None


@dataclass(frozen=True)
class EvalRun:
    """One run: its episodes in the order played, by task; how it was played; the success that it states, in %."""

    file: Path
    tasks: dict[str, list[EvalEpisode]]
    facts: dict[str, str]
    stated: float | None = None


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the files that ``--results`` names: files, runs' folders, or folders of several.

    Raises:
        UserError: one of them is not there, or holds no eval_info.json.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            here = [path / name for name in (EVAL_INFO, episode_log.NAME) if (path / name).is_file()]
            inside = here[:1] or sorted(path.rglob(EVAL_INFO))
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

    Of an evaluation of Strobe's, ``episodes.jsonl``, those of the baseline are returned.

    Raises:
        UserError: it cannot be read, or is another file.
    """
    if path.name == episode_log.NAME:
        return _read_own(path)
    try:
        content = parse_json(contents(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {os_error_reason(error)}") from None
    except ValueError:
        raise UserError(f"{path} is truncated or not JSON") from None
    try:
        tasks, stated = _tasks(content), content.get("overall", {}).get("pc_success")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{path} is JSON, but not an {EVAL_INFO} of lerobot-eval: it has no episodes by task") from None
    count = {"episodes": str(sum(map(len, tasks.values())))}
    return EvalRun(path, tasks, count, stated if isinstance(stated, float) and math.isfinite(stated) else None)


def _read_own(path: Path) -> EvalRun:
    request, episodes, _ = episode_log.read(path)
    tasks: dict[str, list[EvalEpisode]] = {}
    for each in episodes.values():
        if each.variant == next(iter(request.variants)):
            tasks.setdefault(each.task, []).append(EvalEpisode(each.success, each.reward, each.seed, each.start))
    facts = {"episodes": sum(map(len, tasks.values())), "policy": request.policy, "weights": request.weights,
             **request.settings, **request.environment, **request.rename_map}  # fmt: skip
    with contextlib.suppress(UserError):  # a run that was killed has no answer
        facts |= versions(store.load(path.parent))
    return EvalRun(path, tasks, {name: str(value) for name, value in facts.items()})


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
    parts = [
        path.parent.parts if path.name in (EVAL_INFO, episode_log.NAME) else (*path.parent.parts, path.stem)
        for path in paths
    ]
    for count in range(1, max(map(len, parts)) + 1):
        short = ["/".join(folders[-count:]) for folders in parts]
        if len(set(short)) == len(short):
            return short
    return [str(path) for path in paths]
