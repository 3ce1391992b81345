"""Promises about a robot's next run: whether it starves with the queue threshold that `strobe replay` gives.

The threshold, and the loop that a fresh run has, are the product's own, in virtual time. The calls' times are drawn:
those of the recording, and others of the same law for the fresh run.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
from simulated.claim import Claim, Series, autoregressive, bimodal, heavy_tailed, independent, times

from strobe.loops.virtual_rollout import Beat, Setting, make_zero_inputs
from strobe.loops.virtual_time import PlayOptions, play
from strobe.replay.run import MOST_STARVED, smallest_threshold

MS = 1_000_000
SECONDS = 30.0
CALLS = 40
SETTING = Setting("rtc", 30.0, threshold=5, chunk=50)
LAWS: dict[str, Callable[[np.random.Generator, int], Series]] = {
    "light tails, 3 %": lambda random, count: times(independent, random, count, median=330),
    "light tails, 15 %": lambda random, count: times(independent, random, count, median=330, spread=0.15),
    "AR(1) 0.5, 10 %": lambda random, count: times(autoregressive, random, count, median=330, spread=0.1),
    "heavy tails, 3 %": lambda random, count: times(heavy_tailed, random, count, median=330),
    "heavy tails, 10 %": lambda random, count: times(heavy_tailed, random, count, median=330, spread=0.1),
    "two states, 10 %": lambda random, count: times(bimodal, random, count, median=330, spread=0.1),
    "power law of 5": lambda random, count: 250 * (1 + random.pareto(5, count)),
}


def simulate(quick: bool) -> list[Claim]:
    """Return how often a fresh run starves with the threshold, where one is promised, and how often one is."""
    tries, random = 25 if quick else 200, np.random.default_rng(57)
    found: list[Claim] = []
    for name, law in LAWS.items():
        starved = promised = 0
        for _ in range(tries):
            recorded = [round(ms * MS) for ms in law(random, CALLS)]
            threshold, chance = smallest_threshold(SETTING, recorded, SECONDS, 0)
            if chance is not None and chance <= MOST_STARVED:
                promised += 1
                starved += _starves(threshold, law(random, 400))
        found.append(Claim("a fresh run starves with the threshold", name, MOST_STARVED, "at most", starved, promised))
        if name != "power law of 5":  # its long calls outlast a chunk
            found.append(Claim("a threshold is promised", name, 0.8, "at least", promised, tries))
    return found


def _starves(threshold: int, calls: Series) -> bool:
    latencies = itertools.cycle(round(ms * MS) for ms in calls)
    setting, beats = (
        dataclasses.replace(SETTING, threshold=threshold),
        itertools.repeat(Beat(MS, 2 * MS, 3 * MS, 4 * MS)),
    )
    ticks = play(beats, setting, latencies, make_zero_inputs(setting), PlayOptions(until_ns=round(SECONDS * 1e9))).ticks
    first = next(at for at, tick in enumerate(ticks) if tick.sent)
    return any(not tick.sent for tick in ticks[first:])
