"""Can `strobe evaluate --policies` be trusted, and what does it save? Simulated checkpoints with known true rates.

Four checkpoints, judged after every start. Bars:
- three are equally good, and one is 5 points better: the best one is eliminated in at most 5 % of the runs,
- all four are alike: in at most 5 % of the runs one is called the best, or any is eliminated,
- one is 15 points better: at least 90 % of the runs end with that one alone, within the starts that were planned.
The figures have the mean number of episodes, against playing all of them to the end.

An episode's success is drawn by the difficulty of its start, which all checkpoints share, as paired starts are.

    python benchmarks/elimination.py
    python benchmarks/elimination.py --quick        fewer runs
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np
from common.shared import finish_rates
from rich.console import Console
from rich.progress import track
from rich.table import Table

from strobe.evaluate.eliminate import SuccessiveElimination
from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.evaluate.episodes.play import Plan

RUNS, QUICK = 400, 40
CHECKPOINTS, STARTS = 4, 600
WRONG, FOUND = 0.05, 0.90
RATE, SMALL, LARGE = 0.65, 0.05, 0.15


def simulate_elimination(rates: np.ndarray, random: np.random.Generator) -> SuccessiveElimination:
    """Play checkpoints with these true rates to the end."""
    candidates: Any = [SimpleNamespace(name=f"{number}") for number in range(len(rates))]
    order = SuccessiveElimination(Plan(candidates, ["task"], STARTS, 0.1))
    # Half of what decides an episode's success is its start's difficulty, half its own.
    shared, own = random.random(STARTS), random.random((len(rates), STARTS))
    mixed = np.where(random.random((len(rates), STARTS)) < 0.5, shared, own)
    won = mixed < rates[:, None]
    played: dict[Key, EpisodeLine] = {}
    for seed in range(STARTS):
        for candidate in order.playing:
            success = bool(won[int(candidate.name), seed])
            played[candidate.name, "task", seed] = episode(candidate.name, seed, success)
        for _ in order.advance(played):
            pass
        if order.is_finished:
            break
    return order


def episode(name: str, seed: int, success: bool) -> EpisodeLine:
    """Return an episode with this outcome."""
    return EpisodeLine.model_construct(variant=name, task="task", seed=seed, start="", success=success)


def sole_winner(order: SuccessiveElimination) -> str:
    """Return the checkpoint that is called the best; '' where none is."""
    return order.playing[0].name if len(order.playing) == 1 else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} runs of each instead of {RUNS}")
    count = QUICK if parser.parse_args().quick else RUNS
    random = np.random.default_rng(42)
    lost = called = eliminated = found = mistaken = 0
    cost = []
    for _ in track(range(count), "runs", console=Console(stderr=True)):
        place = int(random.integers(CHECKPOINTS))
        better = np.arange(CHECKPOINTS) == place
        lost += f"{place}" in simulate_elimination(RATE + SMALL * better, random).by
        alike = simulate_elimination(np.full(CHECKPOINTS, RATE), random)
        called += bool(sole_winner(alike))
        eliminated += bool(alike.by)
        order = simulate_elimination(RATE + LARGE * better, random)
        found += sole_winner(order) == f"{place}"
        mistaken += f"{place}" in order.by
        cost.append(len(order.counted) / (CHECKPOINTS * STARTS))
    table = Table("runs", "seen", "bar", title=f"{count} of each, {CHECKPOINTS} checkpoints, {STARTS} starts")
    table.add_row("5 points better: eliminated", f"{lost / count:.1%}", f"≤ {WRONG:.0%}")
    table.add_row("15 points better: eliminated", f"{mistaken / count:.1%}", f"≤ {WRONG:.0%}")
    table.add_row("all alike: one is called the best", f"{called / count:.1%}", f"≤ {WRONG:.0%}")
    table.add_row("all alike: one is eliminated", f"{eliminated / count:.1%}", f"≤ {WRONG:.0%}")
    table.add_row("15 points better: is called the best", f"{found / count:.1%}", f"≥ {FOUND:.0%}")
    table.add_row("15 points better: episodes of all to the end", f"{np.mean(cost):.1%}", "")
    Console(stderr=True).print(table)
    figures = {
        "runs": count, "best_eliminated": max(lost, mistaken) / count, "false_best": called / count,
        "false_elimination": eliminated / count, "found": found / count, "cost": float(np.mean(cost)),
        "episodes": float(np.mean(cost)) * CHECKPOINTS * STARTS, "episodes_of_all": CHECKPOINTS * STARTS,
    }  # fmt: skip
    finish_rates(figures, count, (max(lost, mistaken, called, eliminated), WRONG), (found, FOUND))


if __name__ == "__main__":
    main()
