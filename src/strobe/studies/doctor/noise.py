"""Noise: the same against the same must show no difference, and how small a difference could be shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

from strobe.measure.sampling import SamplingBudget, collect
from strobe.measure.verdicts import paired_verdict
from strobe.results.doctor import SelfCheck

TRIES = 12
PAIRS = 20
TRY_S = 2.0  # for one try, on a machine where a call takes long
# A claim is wrong in about 1 % of such tries (see measure/verdicts.py): three of twelve happen once in 5,000 runs.
MOST_CLAIMS = 2
WIDE = 0.05  # the smallest difference that could be shown; beyond it most treatments' gains are lost in the noise


def examine(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Iterator[SelfCheck]:
    """Compare ``call`` with itself, `TRIES` times, as ``strobe compare`` compares.

    Args:
        call: one run of something that takes milliseconds.
        clock: seconds.
    """

    def timed() -> float:
        began = clock()
        call()
        return (clock() - began) * 1e3

    claims, widths, spread, usual, pairs = 0, [], [], [], []
    for _ in range(TRIES):
        budget = SamplingBudget(iterations=PAIRS, seconds=TRY_S)
        collected = collect({"a": timed, "b": timed}, budget, clock=clock)
        if collected.interrupted:  # it keeps its rounds; here Ctrl-C ends all
            raise KeyboardInterrupt
        first, second = collected.samples["a"].values, collected.samples["b"].values
        verdict = paired_verdict(first, second)
        pairs.append(verdict.pairs)
        claims += verdict.kind in ("faster", "slower")
        widths.append(max(verdict.interval.high / verdict.ratio, verdict.ratio / verdict.interval.low) - 1)
        middle = median(first)
        usual.append(middle)
        spread.append(median([abs(value - middle) for value in first]) / middle)
    width = median(widths)
    figures = {
        "claims": float(claims), "tries": float(TRIES), "smallest_difference": width,
        "call_ms": median(usual), "deviation": median(spread),
    }  # fmt: skip
    yield SelfCheck.judged(
        "noise",
        "verdicts on the same (A/A)",
        claims <= MOST_CLAIMS,
        f"{claims} of {TRIES} comparisons of the same with itself claim a difference; 1 in 100 is to be expected",
        "Verdicts 'faster' and 'slower' cannot be trusted here: something changes the pace between calls.",
        "Close what else runs, fix the clocks' rate (a power mode without boost), then run it again.",
        bad="fails",
        evidence=figures,
    )
    yield SelfCheck.judged(
        "noise",
        "smallest difference that shows",
        width <= WIDE,
        f"{100 * width:.1f} % with {median(pairs):.0f} pairs of a {median(usual):.1f} ms call",
        "Small gains are lost in the noise: comparisons need more time here.",
        "Close what else runs, or give comparisons more time: --seconds=120",
        evidence=figures,
    )
