"""The median of one policy's calls: how often its interval misses it, and whether a slow first state is taken for all.

Each run is `strobe.core.measure.sampling.collect` on a clock of its own, with the budget that `strobe breakdown` has,
unless its number of calls is given. Times have 3 % noise about 30 ms; those of a state, 0.3 %.
"""

from __future__ import annotations

import numpy as np
from simulated.claim import NOISES, Claim, Noise, independent, times
from simulated.speed import Bench

from strobe.core.measure.sampling import SETTLE_S, SamplingBudget
from strobe.core.measure.statistics import summarise
from strobe.core.measure.verdicts import paired_verdict

MEDIAN = 31.8
STATES = 1.055  # of the first calls' times: FlashRT's issue 170 has 76 such calls
# A state must end before the middle of the last third to be seen there.
LONGEST_S = 0.75 * SETTLE_S
MOST_CALLS = 700


def simulate(quick: bool) -> list[Claim]:
    """Simulate the promises of `core/measure/statistics.py: summarise` and of `core/measure/sampling.py: collect`."""
    random, tries = np.random.default_rng(170), 100 if quick else 2000
    claims: list[Claim] = []
    for name, noise in NOISES.items():
        middle = _median(noise)
        for calls in (20, 100):
            missed = sum(_misses(times(noise, random, calls), middle) for _ in range(tries))
            given = f"{name}, {calls} calls"
            claims.append(Claim("a median's 95 % interval misses it", given, 0.05, "at most", missed, tries))
        runs = tries // 4
        missed = sum(_misses(_collect_series(times(noise, random, MOST_CALLS)), middle) for _ in range(runs))
        claims.append(Claim("a median's 95 % interval misses it, stopped early", name, 0.05, "at most", missed, runs))
    return [*claims, *_states(random, tries // 4)]


def _states(random: np.random.Generator, tries: int) -> list[Claim]:
    """A slow state of the first calls, up to `LONGEST_S` long: of one policy, and of one variant of two."""
    off = claimed = 0
    for _ in range(tries):
        calls = int(random.uniform(10, LONGEST_S / STATES / MEDIAN * 1e3))
        slow = np.where(np.arange(MOST_CALLS) < calls, STATES, 1.0)
        usual, other = (times(independent, random, MOST_CALLS, median=MEDIAN, spread=0.003) for _ in range(2))
        off += bool(abs(np.median(_collect_series(usual * slow)) / MEDIAN - 1) > 0.01)
        shorter = np.where(np.arange(MOST_CALLS) < calls // 2, STATES, 1.0)  # a round has two calls
        run = Bench({"a": usual, "b": other * shorter}).collect_samples(SamplingBudget(seconds=30.0))
        claimed += abs(paired_verdict(run["a"], run["b"]).ratio - 1) > 0.01
    given = f"first calls 5.5 % slower, up to {LONGEST_S:g} s"
    return [
        Claim("a median is off by more than 1 %", given, 0.05, "at most", off, tries),
        Claim("a verdict is off by more than 1 %", f"{given}, one of two", 0.05, "at most", claimed, tries),
    ]


def _collect_series(series: np.ndarray) -> list[float]:
    return Bench({"policy": series}).collect_samples(SamplingBudget(seconds=20.0))["policy"]


def _misses(values: list[float] | np.ndarray, middle: float) -> bool:
    ends = summarise(values).interval
    return ends is None or not ends.low <= middle <= ends.high


def _median(noise: Noise) -> float:
    """The median that samples of ``noise`` would have if there were no end of them."""
    return float(np.median(times(noise, np.random.default_rng(0), 200_000)))
