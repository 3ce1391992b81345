"""Does `strobe history` call runs slower that are not, where levels stay for a while? And does it find steps?

Histories of 40 runs in which nothing changes, and which are not independent: AR(1), levels of several runs, two states,
a slow wave. Then steps and creeps. Each is judged run by run, as a user looks at it. Bars: 'slower' in at most 5 % of
the histories of each kind without a change; a step of 5 % after 30 runs that differ by 1 %, and one of 10 %, found
within 4 runs in at least 95 %, a creep of 0.8 % a run by the fifteenth. The other shares have no bar.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from common.shared import finish, meets_lower_bar, meets_upper_bar
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats
from simulated.claim import Series, autoregressive, heavy_tailed, independent

from strobe.history.trend import FALSE_CHANGES, RUNS, Judged, Level, judge

ERROR = 0.0045  # of one run's median: 60 samples that scatter by 3 %
BEFORE, WITHIN = 30, 4  # runs before a step, and runs in which it is found
CREEP, BY = 0.008, 15  # a run, and the run by which it is found
FOUND = 0.95
WANDER = 0.02  # standard deviation between levels

Draw = Callable[[np.random.Generator, int], Series]  # of logarithms


class Kind(NamedTuple):
    """Histories of one kind.

    Args:
        changed: the first run that is slower; None where nothing changes.
        bar: of the histories in which that is found in time; None without one.
    """

    name: str
    draw: Draw
    runs: int = RUNS
    changed: int | None = None
    bar: float | None = None


def draw_levels(random: np.random.Generator, runs: int, length: int) -> Series:
    """Return levels that stay for ``length`` runs."""
    return np.repeat(random.standard_normal(-(-runs // length)), length)[:runs]


def switch(random: np.random.Generator, runs: int, length: float, levels: int | None = None) -> Series:
    """Return levels that end in each run with a chance of 1 / ``length``; among two of them if ``levels`` is 2."""
    ends = np.cumsum(random.random(runs) < 1 / length)
    drawn = random.standard_normal(runs)
    return np.where(ends % 2, 1.0, -1.0) if levels == 2 else drawn[ends]


def wave(random: np.random.Generator, runs: int, period: int) -> Series:
    """Return a slow drift up and down, from anywhere in it."""
    return np.sqrt(2) * np.sin(2 * np.pi * (np.arange(runs) / period + random.random()))


def scale_noise(noise: Draw, deviation: float) -> Draw:
    """Return ``noise`` with this standard deviation."""
    return lambda random, runs: deviation * noise(random, runs)


def add_step(noise: Draw, step: float) -> Draw:
    """Return ``noise`` whose last `WITHIN` runs are slower."""
    return lambda random, runs: noise(random, runs) + np.log1p(step) * (np.arange(runs) >= runs - WITHIN)


def creeping(noise: Draw, creep: float) -> Draw:
    """Return ``noise`` in which each run is slower than the one before."""
    return lambda random, runs: noise(random, runs) + np.log1p(creep) * np.arange(runs)


def list_kinds() -> list[Kind]:
    """Return the histories without a change, then those with one."""
    ar = {memory: scale_noise(partial(autoregressive, memory=memory), WANDER) for memory in (0.5, 0.9)}
    calm = scale_noise(independent, 0.01)
    step = BEFORE + WITHIN
    return [
        Kind("independent, 1 %", calm),
        Kind("independent, 3 %", scale_noise(independent, 0.03)),
        Kind("heavy tails, 2 %", scale_noise(heavy_tailed, 0.02)),
        Kind("AR(1) 0.5, 2 %", ar[0.5]),
        Kind("AR(1) 0.9, 2 %", ar[0.9]),
        Kind("levels of 6 runs, 2 %", scale_noise(partial(draw_levels, length=6), WANDER)),
        Kind("levels of 12 runs, 2 %", scale_noise(partial(draw_levels, length=12), WANDER)),
        Kind("levels of 12 runs on average, 2 %", scale_noise(partial(switch, length=12), WANDER)),
        Kind("two states of 8 runs on average, ± 2 %", scale_noise(partial(switch, length=8, levels=2), WANDER)),
        Kind("a wave of 20 runs, 2 %", scale_noise(partial(wave, period=20), WANDER)),
        *(Kind(f"step of {s:.0%} in 1 %", add_step(calm, s), step, BEFORE, b)
          for s, b in ((0.03, None), (0.05, FOUND), (0.10, FOUND))),
        *(Kind(f"step of {s:.0%} in AR(1) {memory}, 2 %", add_step(ar[memory], s), step, BEFORE)
          for memory in ar for s in (0.05, 0.10)),
        Kind("creep of 0.8 % a run in 1 %", creeping(calm, CREEP), BY, 0, FOUND),
        Kind("creep of 0.1 % a run in 1 %", creeping(calm, 0.001), RUNS, 0),
    ]  # fmt: skip


def follow(kind: Kind, random: np.random.Generator) -> Sequence[Judged | None]:
    """Judge one history."""
    logs = kind.draw(random, kind.runs) + ERROR * random.standard_normal(kind.runs)
    return judge([Level(log_ms=float(log), error=ERROR) for log in logs])


def main() -> None:
    """Simulate each kind and print its shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="40 histories of each kind: under a minute")
    parser.add_argument("--histories", type=int, help="of each kind (default: 1,000)")
    arguments = parser.parse_args()
    count = arguments.histories or (40 if arguments.quick else 1000)
    random = np.random.default_rng(14)
    table = Table("runs", "slower", "95 % interval", "not judged at the end", "bar")
    figures: dict[str, dict[str, float]] = {}
    holds = True
    for kind in track(list_kinds(), "judging", transient=True):
        courses = [follow(kind, random) for _ in range(count)]
        slower = sum(any(one and one.change == "slower" for one in course[kind.changed or 0 :]) for course in courses)
        undecided = sum(course[-1] is not None and course[-1].stay is not None for course in courses) / count
        low, high = stats.binomtest(slower, count).proportion_ci()
        bar = ""
        if kind.changed is None:
            bar, holds = f"≤ {FALSE_CHANGES:.0%}", holds and meets_upper_bar(count, slower, FALSE_CHANGES)
        elif kind.bar is not None:
            bar, holds = f"≥ {kind.bar:.0%}", holds and meets_lower_bar(count, slower, kind.bar)
        table.add_row(kind.name, f"{slower / count:.1%}", f"{low:.1%} to {high:.1%}", f"{undecided:.1%}", bar)
        figures[kind.name] = {"slower": slower / count, "low": low, "high": high, "undecided": undecided}
    Console(width=120).print(table)
    finish({"histories": count, "kinds": figures}, holds)


if __name__ == "__main__":
    main()
