"""Calls whose time says nothing: of a queue of two actions, and of work that goes on. No verdict on them is wrong.

Each second call fills a queue of two: the typical call is one of either kind, and the sum alone counts. Sound twins are
steady calls, and the same work where the call waits for its end.
"""

from __future__ import annotations

import numpy as np
from python_verdicts import is_wrong, judge_unfinished, steady_times
from simulated.claim import Claim, Series

from strobe.core.measure.verdicts import paired_verdict

# Milliseconds of the second function's calls, in turn; the first one's take 4 ms and next to nothing.
SECONDS = {"3 ms in each call": (3.0, 3.0), "8 ms in each second": (8.0, 0.01), "4 ms in each second": (4.0, 0.01)}


def simulate(quick: bool) -> list[Claim]:
    """Return how often a verdict on a queue of two contradicts the sums, and steady calls are taken for a queue."""
    random, tries, claims = np.random.default_rng(71), 100 if quick else 1000, list[Claim]()
    for name, given in SECONDS.items():
        wrong = 0
        for _ in range(tries):
            calls = int(random.integers(12, 400))
            first, second = _times(random, calls, (4.0, 0.01)), _times(random, calls, given)
            wrong += is_wrong(paired_verdict(first, second), first, second)
        claims.append(Claim("a queue of two: a verdict that its sums contradict", name, 0.01, "at most", wrong, tries))
    pairs = [[steady_times(random, calls) for _ in range(2)] for calls in random.integers(30, 400, tries).tolist()]
    steady = sum(paired_verdict(first, second).cause == "a queue" for first, second in pairs)
    claims.append(Claim("steady calls are taken for a queue", "hiccups", 0.01, "at most", steady, tries))
    seen = judge_unfinished()
    goes_on, ended = seen["unfinished"], seen["finished"]
    return [
        *claims,
        Claim("work that goes on gets a verdict", "calls", 0.0, "at most", seen["unfinished_judged"], goes_on),
        Claim("work that was waited for gets one", "calls", 1.0, "at least", seen["finished_judged"], ended),
    ]


def _times(random: np.random.Generator, calls: int, in_turn: tuple[float, float]) -> Series:
    begin = int(random.integers(2))
    return np.resize(np.roll(in_turn, begin), calls) * random.lognormal(0, 0.03, calls)
