"""Rules on tunings."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding, warning
from strobe.tune.results import TuneResult


def hopeless(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    for tuning in result.tunings:
        if not tuning.hopeless:
            continue
        why = "Settings change how a policy's actions are executed. They do not teach it the task."
        do = "`strobe preflight --policy.path=… --dataset.root=…` says whether policy and data match. "
        do += "Play a checkpoint that was trained for this simulator, and map its names with --rename_map."
        if succeeds := [other.latency for other in result.tunings if other.winner]:
            why = f"The policy succeeds at {' and at '.join(succeeds)}, so the latency of its calls makes it fail here."
            do = "Find a faster policy: `strobe optimize --policy.path=…`. Or give a shorter --latency."
        elif all(other.ticks for other in result.tunings if other.hopeless):
            why = "The latency alone may be too long. Whether the policy does the task without it was not judged."
            do = f"Play it without latency: --latency=0. If it succeeds there, the policy is too slow. If not: {do}"
        yield warning(
            rule="tune-no-success",
            title=f"No setting ever succeeds in {result.environment} at {tuning.latency}",
            found=f"0 of {tuning.played} episodes of {len(tuning.settings)} settings succeed, at {tuning.latency}.",
            why=why,
            do=do,
        )


def unconfirmed_winner(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    for tuning in result.tunings:
        closing = tuning.closing
        if closing is None or closing.rates.decision.kind == "better":
            continue
        rates = closing.rates
        if rates.decision.kind == "worse":
            level, how, do = "warning", "worse than", "Keep the default."
        elif closing.times is None or closing.times.kind != "sooner":
            level, how = "info", "not shown to be better than"
            do = "Keep the default, or play more pairs: --pairs=1000."
        else:
            continue
        yield Finding(
            rule="tune-not-shown",
            level=level,
            title=f"{tuning.winner} is {how} the default",
            found=f"{rates.pairs} held-out pairs at {tuning.latency}: it lost {rates.lost} and won {rates.won}.",
            why="It was the best of many in the selection phase, and the best of many looks better than it is.",
            do=do,
        )


RULES = (hopeless, unconfirmed_winner)
