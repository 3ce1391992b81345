"""Rules on tunings."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.tune.results import TuneResult

MAX_POSSIBLE_DROP = 0.1  # of the success rate: episodes that leave more possible say little
FEW_SHOW_LITTLE = "An episode succeeds or fails, so a few episodes show only large differences."


def hopeless(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    """No setting ever does the task, so that none can be better than another: for the policy, or for the latency."""
    for tuning in result.tunings:
        if not tuning.hopeless:
            continue
        why = "Settings change how a policy's actions are executed. They do not teach it the task."
        do = (
            "`strobe preflight --policy.path=… --dataset.root=…` says whether the checkpoint is wired to its data. "
            "Play a checkpoint that was trained for this simulator, and map its names with --rename_map."
        )
        if succeeds := [other.latency for other in result.tunings if other.winner]:
            why = f"The policy succeeds at {' and at '.join(succeeds)}: what fails here is a call that takes so long."
            do = "Find a faster policy: `strobe optimize --policy.path=…`. Or give a shorter --latency."
        elif all(other.ticks for other in result.tunings if other.hopeless):
            why = "The latency alone may be too long. Whether the policy does the task without it was not judged."
            do = f"Play it without: --latency=0. If it succeeds there, it is too slow. If not: {do}"
        yield Finding(
            rule="tune-no-success",
            level="warning",
            title=f"No setting ever succeeds in {result.environment} at {tuning.latency}",
            seen=f"0 of {tuning.played} episodes of {len(tuning.settings)} settings succeed, at {tuning.latency}.",
            why=why,
            do=do,
            evidence={"episodes": float(tuning.played)},
        )


def not_shown(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    """A winner whose gain the fresh pairs did not show."""
    for tuning in result.tunings:
        closing = tuning.closing
        if closing is None or closing.rates.decision.kind == "better":
            continue
        if closing.times is not None and closing.times.kind == "sooner" and closing.rates.decision.kind != "worse":
            continue
        worse = closing.rates.decision.kind == "worse"
        yield Finding(
            rule="tune-not-shown",
            level="warning" if worse else "info",
            title=f"{tuning.winner} is {'worse than' if worse else 'not shown to be better than'} the default",
            seen=f"{closing.rates.pairs} fresh pairs at {tuning.latency}: it lost {closing.rates.lost} and won "
            f"{closing.rates.won}.",
            why="It was the best of many in the rounds, and the best of many looks better than it is.",
            do="Keep the default." if worse else "Keep the default, or play more pairs: --pairs=1000.",
            evidence={"pairs": float(closing.rates.pairs), "difference": closing.rates.difference},
        )


RULES = (hopeless, not_shown)
