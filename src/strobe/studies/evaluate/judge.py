"""Judge runs of lerobot-eval as an evaluation of Strobe's is judged, without playing an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import strobe
from strobe.errors import UserError
from strobe.measure.success_rates import LEVEL, each_of, paired_rates, success_rate, unpaired_rates
from strobe.results.judged import Judged, JudgedOnTask, JudgedRun
from strobe.studies.evaluate.eval_info import EvalEpisode, EvalRun, names, read


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
    runs = [read(path) for path in files]
    tasks = list(runs[0].tasks)
    for run in runs[1:]:
        if set(run.tasks) != set(tasks):
            raise UserError(
                f"{run.file} is of other tasks ({', '.join(run.tasks)}) than {runs[0].file} ({', '.join(tasks)}): "
                "no rates to compare"
            )
    paired, pairing = _pairing(runs, same_seeds)
    short = names(files)
    return Judged(
        strobe_version=strobe.__version__,
        title=" against ".join(short),
        tasks=tasks,
        margin=margin,
        pairing=pairing,
        paired=paired,
        runs=[
            JudgedRun(
                name=name,
                file=str(run.file),
                together=_on(runs[0].tasks, run.tasks, tasks, paired, margin, LEVEL, not number),
                tasks={
                    task: _on(runs[0].tasks, run.tasks, [task], paired, margin, each_of(len(tasks)), not number)
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
        return False, "One run: it is judged against none."
    if same_seeds:
        if any(length != lengths[0] for length in lengths):
            raise UserError("--same_seeds: the runs have different numbers of episodes, so they are not in pairs")
        if known and any(of_run != seeds[0] for of_run in seeds):
            raise UserError("--same_seeds: the files say that the runs had different seeds")
        return True, "In pairs: the runs were said to have had the same seed (--same_seeds)."
    if known and all(of_run == seeds[0] for of_run in seeds):
        return True, "In pairs: the files say that the runs had the same seeds."
    why = "the runs had different seeds" if known else "the files do not say which seeds the runs had"
    more = "" if known else "; if they had the same, --same_seeds takes them in pairs, which needs fewer episodes"
    return False, f"Not in pairs: {why}{more}."


def _on(
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
        counted, against = ([_counts(run[task]) for task in tasks] for run in (own, first))
        judged.unpaired = unpaired_rates(against, counted, margin, level)
    return judged


def _counts(episodes: Sequence[EvalEpisode]) -> tuple[int, int]:
    return sum(episode.success for episode in episodes), len(episodes)
