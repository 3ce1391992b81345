"""Can `strobe tune` be trusted, and what does it cost? Simulated tunings, whose true rates and times are known.

Bars:
- all settings alike: at most 5 % of the tunings claim that their winner is better or sooner than the default,
- one setting of twelve succeeds 15 points more often: at least 90 % of the tunings find it and claim it,
- no setting ever succeeds: every tuning ends within the episodes that it says,
- a grid of settings that differ in both: the winner is within 3 points and 5 % of the time to task of the best one in
  at least 90 % of the tunings, with 35 % of the grid's episodes at most, on average.

An episode's success is drawn by the difficulty of its start, which all settings share, as paired starts are.

    python benchmarks/tune.py
    python benchmarks/tune.py --quick        fewer tunings
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from common.shared import finish, meets_lower_bar, meets_upper_bar
from rich.console import Console
from rich.progress import track
from rich.table import Table

from strobe.core.measure.statistics import bonferroni
from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.evaluate.measure.best_arm import MARGIN
from strobe.evaluate.measure.success_rates import LEVEL, decide
from strobe.evaluate.measure.time_to_task import episode_ends, judge_times
from strobe.tune.search import Search, SearchPlan

TUNINGS, QUICK = 200, 20
FALSE, FOUND, COST = 0.05, 0.90, 0.35
PLANTED, LIMIT_S = 0.15, 20.0
STARTS, PAIRS, MARGIN_OF_LOSS = 200, 500, 0.1


@dataclass(frozen=True)
class Arm:
    """A setting: its chance of success, and the mean seconds of a success."""

    rate: float
    seconds: float


def simulate_tuning(arms: list[Arm], random: np.random.Generator) -> Search:
    """Tune ``arms``, the first of which is the default, on episodes that are drawn as they are asked for."""
    candidates: Any = [SimpleNamespace(name=f"setting {number}") for number in range(len(arms))]
    known = {candidate.name: arm for candidate, arm in zip(candidates, arms, strict=True)}
    search = Search(SearchPlan(candidates, ["task"], STARTS, MARGIN_OF_LOSS, held_out=PAIRS))
    difficulty = {}
    played: dict[Key, EpisodeLine] = {}
    while not search.is_finished:
        while (due := search.due(played)) is not None:
            candidate, task, seed = due
            if seed not in difficulty:
                difficulty[seed] = random.beta(1.0, 1.0)
            played[candidate.name, task, seed] = episode(
                known[candidate.name], candidate.name, seed, difficulty[seed], random
            )
            if search.phase == "pairs":
                break  # the pairs end as soon as they are decided
        for _ in search.advance(played):
            pass
    return search


def episode(arm: Arm, name: str, seed: int, difficulty: float, random: np.random.Generator) -> EpisodeLine:
    """Draw one episode. Half of what decides its success is the start's, half its own."""
    mixed = difficulty if random.random() < 0.5 else random.random()
    success = bool(mixed < arm.rate)
    seconds = float(np.clip(random.gamma(16.0, arm.seconds / 16.0), 0.1, LIMIT_S)) if success else LIMIT_S
    return EpisodeLine(
        variant=name, task="task", seed=seed, start="", success=success, reward=float(success), ticks=1, call_ms=[1.0],
        policy_ms=1.0, step_ms=1.0, render_ms=None, reset_ms=1.0, seconds=seconds, limit_s=LIMIT_S,
    )  # fmt: skip


def winner_claim(search: Search) -> str:
    """Return what the closing pairs claim for the winner: 'better', 'sooner', or ''."""
    pairs = search.pairs()
    if not pairs:
        return ""
    first, second = (episode_ends(side) for side in zip(*pairs, strict=True))
    differences = [int(b.success) - int(a.success) for a, b in zip(first, second, strict=True)]
    success = decide(differences, MARGIN_OF_LOSS, bonferroni(2, LEVEL)).kind
    time = judge_times(first, second, bonferroni(2, LEVEL)).kind
    if success == "better":
        return "better"
    return "sooner" if time == "sooner" and success != "worse" else ""


def grid(random: np.random.Generator) -> list[Arm]:
    """Return sixteen settings: success falls beyond a cliff, and time grows with what is executed blindly."""
    rates = np.clip(np.linspace(0.88, 0.3, 16) + random.normal(0, 0.03, 16), 0.02, 0.98)
    seconds = np.linspace(7.0, 14.0, 16) * random.uniform(0.9, 1.1, 16)
    order = random.permutation(16)
    return [Arm(float(rates[number]), float(seconds[number])) for number in order]


def is_near_best(arms: list[Arm], winner: int) -> bool:
    """Whether a winner is within 3 points and 5 % of the time to task of the best: the soonest of the leading ones."""
    highest = max(arm.rate for arm in arms)
    leading = [arm for arm in arms if arm.rate >= highest - MARGIN]
    sought = min(leading, key=lambda arm: mean_s(arm))
    return arms[winner].rate >= sought.rate - 0.03 and mean_s(arms[winner]) <= 1.05 * mean_s(sought)


def mean_s(arm: Arm) -> float:
    """Mean time over all starts, a failure as the limit."""
    return arm.rate * arm.seconds + (1 - arm.rate) * LIMIT_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} tunings of each instead of {TUNINGS}")
    count = QUICK if parser.parse_args().quick else TUNINGS
    random = np.random.default_rng(7)
    false = found = named = near = 0
    cost, hopeless = [], []
    for _ in track(range(count), "tunings", console=Console(stderr=True)):
        false += bool(winner_claim(simulate_tuning([Arm(0.65, 8.0)] * 12, random)))
        place = int(random.integers(1, 12))
        arms = [Arm(0.65 + PLANTED * (number == place), 8.0) for number in range(12)]
        search = simulate_tuning(arms, random)
        named += search.winner == f"setting {place}"
        found += search.winner == f"setting {place}" and winner_claim(search) == "better"
        arms = grid(random)
        search = simulate_tuning(arms, random)
        near += is_near_best(arms, int(str(search.winner).split()[1]))
        cost.append(sum(map(len, search.played_in_rounds().values())) / (len(arms) * STARTS))
        hopeless.append(len(simulate_tuning([Arm(0.0, 8.0)] * 12, random).counted))
    table = Table("tunings", "seen", "bar", title=f"{count} of each")
    table.add_row("all alike: claimed", f"{false / count:.1%}", f"≤ {FALSE:.0%}")
    table.add_row("15 points more: the winner", f"{named / count:.1%}", "")
    table.add_row("15 points more: claimed", f"{found / count:.1%}", f"≥ {FOUND:.0%}")
    table.add_row("a grid: within 3 points and 5 %", f"{near / count:.1%}", f"≥ {FOUND:.0%}")
    table.add_row("a grid: episodes of the exhaustive search", f"{np.mean(cost):.1%}", f"≤ {COST:.0%}")
    table.add_row("none succeeds: episodes", f"{max(hopeless)}", "")
    Console(stderr=True).print(table)
    held = (
        meets_upper_bar(count, false, FALSE)
        and meets_lower_bar(count, min(found, near), FOUND)
        and np.mean(cost) <= COST
    )
    figures = {
        "tunings": count, "false": false / count, "found": found / count, "near_best": near / count,
        "cost": float(np.mean(cost)), "hopeless_episodes": max(hopeless),
    }  # fmt: skip
    finish(figures, bool(held))


if __name__ == "__main__":
    main()
