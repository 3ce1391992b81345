"""Rules on tunings."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.tune.results import TuneResult


@finding("tune-no-success", "warning")
def hopeless(result: TuneResult, _: Thresholds) -> Found:
    """No setting ever succeeds in {result.environment} at {latency}.

    Found: 0 of {played} episodes of {settings} settings succeed, at {latency}.
    Why: {why}
    Do: {do}
    """
    for tuning in result.tunings:
        if not tuning.hopeless:
            continue
        latency, played, settings = tuning.latency, tuning.played, len(tuning.settings)
        why = "Settings change how a policy's actions are executed. They do not teach it the task."
        do = "`strobe preflight --policy.path=… --dataset.root=…` says whether policy and data match. "
        do += "Play a checkpoint that was trained for this simulator, and map its names with --rename_map."
        if succeeds := [other.latency for other in result.tunings if other.winner]:
            why = f"The policy succeeds at {' and at '.join(succeeds)}, so the latency of its calls makes it fail here."
            do = "Find a faster policy: `strobe optimize --policy.path=…`. Or give a shorter --latency."
        elif all(other.ticks for other in result.tunings if other.hopeless):
            why = "The latency alone may be too long. Whether the policy does the task without it was not judged."
            do = f"Play it without latency: --latency=0. If it succeeds there, the policy is too slow. If not: {do}"
        yield {"episodes": float(tuning.played)}, locals()


@finding("tune-not-shown", "{level}")
def unconfirmed_winner(result: TuneResult, _: Thresholds) -> Found:
    """{tuning.winner} is {how} the default.

    Found: {rates.pairs} held-out pairs at {tuning.latency}: it lost {rates.lost} and won {rates.won}.
    Why: It was the best of many in the selection phase, and the best of many looks better than it is.
    Do: {do}
    """
    for tuning in result.tunings:
        closing = tuning.closing
        if closing is None or closing.rates.decision.kind == "better":
            continue
        rates, worse = closing.rates, closing.rates.decision.kind == "worse"
        if worse:
            level, how, do = "warning", "worse than", "Keep the default."
        elif closing.times is None or closing.times.kind != "sooner":
            level, how = "info", "not shown to be better than"
            do = "Keep the default, or play more pairs: --pairs=1000."
        else:
            continue
        yield {"pairs": float(rates.pairs), "difference": rates.difference}, locals()


RULES = (hopeless, unconfirmed_winner)
