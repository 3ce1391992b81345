"""Does the verdict on time to task keep its promises? Simulated, with a look after every pair.

Bars: each interval holds the true ratio in at least 95 % of simulations, with 50 % of the episodes censored too; the
same against itself is called sooner or later in at most 5 %; "not sooner" is said of a gain of 5 % in at most 5 %. A
planted paradox (the chunk is twice as fast, and the task takes 1.4 times as long) is called in at least 90 % within 60
pairs. Beside it: the pairs that find 1.4 times sooner, by the middle ratio and by the mean over all starts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from common.shared import finish
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from simulated.claim import Claim

from strobe.evaluate.measure.betting import decisive_log_capital, log_capital_of_gains
from strobe.evaluate.measure.success_rates import LEVEL
from strobe.evaluate.measure.time_to_task import Ended, judge_times, mean_interval, middle_interval

PAIRS, MOST, FOUND, GAIN, LIMIT_S, TICK_S = 60, 0.05, 0.9, 1.4, 30.0, 0.1
PAIRS_FOR_POWER = 200
Times = NDArray[np.float64]
Side = Literal["at most", "at least"]


@dataclass(frozen=True)
class World:
    """Starts of a simulator, and two variants in it.

    Args:
        gain: the first variant's time ÷ the second's, of each task; the tasks are played in turn.
        start, own: spread of the logarithm of the times that both share, and of each.
        fails: chance that the first variant fails, that the second does.
        shared: share of failures that are the start's.
        ticks: whether times are whole control ticks.
    """

    name: str
    gain: tuple[float, ...] = (1.0,)
    start: float = 0.3
    own: float = 0.3
    fails: tuple[float, float] = (0.5, 0.5)
    shared: float = 0.0
    ticks: bool = False

    def play(self, random: np.random.Generator, pairs: int) -> tuple[Times, Times]:
        """Return seconds until each variant does the task, (pairs,) each; inf where it fails or is too late."""
        start, both = 8 * np.exp(self.start * random.standard_normal(pairs)), random.random(pairs)
        alike = random.random(pairs) < self.shared
        gains = np.array(self.gain)[np.arange(pairs) % len(self.gain)]
        played = []
        for fails, gain in zip(self.fails, (1.0, gains), strict=True):
            seconds = start / gain * np.exp(self.own * random.standard_normal(pairs))
            if self.ticks:
                seconds = np.maximum(1, np.round(seconds / TICK_S)) * TICK_S
            fell = np.where(alike, both, random.random(pairs)) < fails
            played.append(np.where(fell | (seconds > LIMIT_S), np.inf, seconds))
        return played[0], played[1]

    def truth(self, random: np.random.Generator) -> tuple[float, float]:
        """Return the middle ratio and the ratio of means, from very many pairs."""
        before, after = self.play(random, 400_000)
        known = np.isfinite(before) | np.isfinite(after)
        means = [float(np.minimum(times, LIMIT_S).mean()) for times in (before, after)]
        return float(np.median(before[known] / after[known])), means[0] / means[1]


CENSORED = (
    World("half fail, each by itself"),
    World("half fail, mostly on the same starts", gain=(GAIN,), shared=0.8),
    World("half fail, 1.4 × sooner", gain=(GAIN,)),
    World("60 % fail against 40 %", gain=(1.2,), fails=(0.6, 0.4)),
    World("half fail, whole ticks, little spread", start=0.02, own=0.02, ticks=True),
    World("half fail, four tasks in turn, 0.7 to 1.43 ×", gain=(0.7, 1 / 0.7, 0.9, 1 / 0.9)),
    World("none fails, wide spread", own=0.8, fails=(0.0, 0.0)),
)


def make_ended_episodes(times: Times) -> list[Ended]:
    """Return seconds as episodes that ended."""
    return [Ended(min(float(each), LIMIT_S), bool(np.isfinite(each)), LIMIT_S) for each in times]


def looks(world: World, pairs: int = PAIRS) -> range:
    """Return the numbers of pairs at which one looks: after each round of the tasks."""
    return range(len(world.gain), pairs + 1, len(world.gain))


def coverage(random: np.random.Generator, tries: int) -> list[Claim]:
    """Return how often an interval excluded the truth at any look."""
    claims = []
    for world in CENSORED:
        middle, mean = world.truth(random)
        missed = {"middle": 0, "mean": 0}
        for _ in range(tries):
            before, after = world.play(random, PAIRS)
            ends = (middle_interval(before[:count], after[:count]) for count in looks(world))
            missed["middle"] += any(not low <= middle * (1 + 1e-9) or high < middle * (1 - 1e-9) for low, high in ends)
            missed["mean"] += mean_missed(before, after, mean, world)
        claims += [
            Claim(f"the interval of the {ratio} ratio misses it at any look", world.name, MOST, "at most", hits, tries)
            for ratio, hits in missed.items()
        ]
    return claims


def mean_missed(before: Times, after: Times, truth: float, world: World) -> bool:
    """Return whether a look excludes the ``truth``: an end lies beyond it where the bets against it are won."""
    first, second = (np.minimum(times, LIMIT_S) / LIMIT_S for times in (before, after))
    sides = (first / truth - second, second * truth - first)
    missed = any(
        log_capital_of_gains(side[:count]) >= decisive_log_capital(LEVEL) for count in looks(world) for side in sides
    )
    low, high = mean_interval(before, after, np.full(PAIRS, LIMIT_S))
    assert missed or (low <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= high)
    return missed


def first_verdict(world: World, random: np.random.Generator, kinds: set[str], pairs: int = PAIRS) -> int | None:
    """Return the number of pairs at which a verdict of ``kinds`` is said first; None: at none."""
    before, after = map(make_ended_episodes, world.play(random, pairs))
    every, at = len(world.gain), looks(world, pairs)
    return next((n for n in at if judge_times(before[:n], after[:n], LEVEL, every).kind in kinds), None)


def verdicts(random: np.random.Generator, tries: int) -> list[Claim]:
    """Return false claims, and the paradox that must be called."""
    shift = {"sooner", "later"}
    equal, none = (0.5, 0.5), (0.0, 0.0)
    cases: list[tuple[str, World, set[str], float, Side]] = [
        ("sooner or later of equals", World("none fails", fails=none), shift, MOST, "at most"),
        ("sooner or later of equals", World("half fail"), shift, MOST, "at most"),
        ("sooner or later of equals", World("half fail, whole ticks", own=0.01, ticks=True), shift, MOST, "at most"),
        ("sooner or later of equals", World("four tasks in turn, 0.7 to 1.43 ×", gain=(0.7, 1 / 0.7, 0.9, 1 / 0.9),
                                            fails=none), shift, MOST, "at most"),
        ("not sooner of a gain of 5 %", World("none fails", gain=(1.05,), own=0.05, fails=none), {"not sooner"}, MOST,
         "at most"),
        ("not sooner of a gain of 5 %", World("half fail", gain=(1.05,), own=0.05, fails=equal), {"not sooner"}, MOST,
         "at most"),
        ("later: the planted paradox", World("none fails", gain=(1 / GAIN,), own=0.2, fails=none), {"later"}, FOUND,
         "at least"),
        ("not sooner: the button waits", World("none fails, equal to a tick", own=0.005, fails=none, ticks=True),
         {"not sooner"}, FOUND, "at least"),
    ]  # fmt: skip
    return [
        Claim(name, world.name, rate, side, sum(first_verdict(world, random, kinds) is not None for _ in range(tries)),
              tries)
        for name, world, kinds, rate, side in cases
    ]  # fmt: skip


def power(random: np.random.Generator, tries: int) -> dict[str, dict[str, float | None]]:
    """Return the pairs after which 1.4 × sooner is shown in half of the simulations and in 90 %; None: more."""

    def pairs_by_mean(world: World) -> int | None:
        before, after = world.play(random, PAIRS_FOR_POWER)
        limit = np.full(PAIRS_FOR_POWER, LIMIT_S)
        at = looks(world, PAIRS_FOR_POWER)
        return next((n for n in at if mean_interval(before[:n], after[:n], limit[:n])[0] > 1), None)

    def pairs_by_median(world: World) -> int | None:
        return first_verdict(world, random, {"sooner"}, PAIRS_FOR_POWER)

    ways: dict[str, Callable[[World], int | None]] = {"middle": pairs_by_median, "mean": pairs_by_mean}
    figures = {}
    for own, fails in ((0.1, 0.0), (0.3, 0.0), (0.3, 0.5)):
        world = World(f"spread {own:g}, {fails:.0%} fail", gain=(GAIN,), own=own, fails=(fails, fails), shared=0.8)
        for way, first in ways.items():
            pairs = sorted(first(world) or PAIRS_FOR_POWER + 1 for _ in range(tries))
            at = {share: pairs[int(share * (tries - 1))] for share in (0.5, 0.9)}
            figures[f"{world.name}, {way}"] = {
                f"{share:.0%}": n if n <= PAIRS_FOR_POWER else None for share, n in at.items()
            }
    return figures


def main() -> None:
    """Simulate every promise on time to task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer simulations of each: under a minute")
    tries = 20 if parser.parse_args().quick else 300
    console, random = Console(width=150), np.random.default_rng(42)
    claims = [*coverage(random, tries), *verdicts(random, tries)]
    table = Table("promise", "noise", "promised", "found", "")
    for claim in claims:
        found = f"{claim.hits / claim.tries:.1%}"
        table.add_row(claim.name, claim.noise, f"{claim.side} {claim.rate:.0%}", found, "" if claim.holds else "MISSED")
    console.print(table)
    found = power(random, max(10, tries // 20))
    pairs = Table("1.4 × sooner", "pairs: half of the time", "90 %")
    for name, at in found.items():
        pairs.add_row(name, *(f"over {PAIRS_FOR_POWER}" if count is None else str(count) for count in at.values()))
    console.print(pairs)
    finish({"claims": [claim.figures() for claim in claims], "power": found}, all(claim.holds for claim in claims))


if __name__ == "__main__":
    main()
