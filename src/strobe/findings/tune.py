"""Rules on tunings: what nothing can be tuned of, and what the choice rests on."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.findings.thresholds import Thresholds
from strobe.results.finding import Finding
from strobe.results.tune import TuneResult


def hopeless(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    """A policy that never does the task: no setting can be better than another."""
    for tuning in result.tunings:
        if tuning.hopeless:
            yield Finding(
                rule="tune-no-success",
                level="warning",
                title=f"No setting ever succeeds in {result.environment}",
                seen=f"0 of {tuning.played} episodes of {len(tuning.settings)} settings succeed, at {tuning.latency}.",
                why="Settings change how a policy's actions are executed. They do not teach it the task.",
                do="`strobe preflight --policy.path=… --dataset.root=…` says whether the checkpoint is wired to its "
                "data. Play a checkpoint that was trained for this simulator, and map its names with --rename_map.",
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
