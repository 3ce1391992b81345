"""May progress decide in place of success? Simulated trials and episodes that do a share of a task, no simulator.

1. The same policy twice, with five kinds of progress: two values, an even spread, nearly always nothing, starts that
   both share, and tasks in turn on which one gains and loses. Of 2,000 studies of each kind at most 5 % may call one
   better at any of the first 200 pairs. And one that loses 10 points of progress: at most 5 % may say that it does not
   lose more than those.
2. Ten pairs of policies that differ: the pairs that success needs until its verdict, and those that progress needs, in
   the same studies, looked at after each of 400 pairs. Bar: progress needs fewer where the policies differ in how far
   their failures get. The others are shown: where all failures end at the last stage, success needs fewer, and where
   one policy trades failures that do nothing for fewer of them, the two scores say the opposite.
3. The number of pairs that a plan names is that of the simulated studies, within 30 %.

    python benchmarks/progress.py [--quick]

The last line is JSON with every figure. All of it takes a few minutes on a core.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from common.shared import finish, meets_upper_bar
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from simulated.episodes import decide_sequentially, first_shown

from strobe.evaluate.measure.planning import chance_disagreement, typical_pairs, typical_progress_pairs

PAIRS, MOST, MARGIN, FALSE = 200, 400, 0.1, 0.05
Shares = NDArray[np.float64]  # progress of each episode, 0 to 1; 1 is a success
Draw = Callable[[np.random.Generator, int], tuple[Shares, Shares]]  # of both policies, pair by pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer studies: under a minute on one core")
    quick = parser.parse_args().quick
    random = np.random.default_rng(61)
    studies = 200 if quick else 2000
    false = {name: false_claims(random, *kind, studies) for name, kind in KINDS.items()}
    needed = {pair.name: pairs_needed(random, pair, 60 if quick else 400) for pair in POLICIES}
    planned = compare_with_plan(random, 60 if quick else 400)
    show(false, needed, planned)
    holds = (
        all(meets_upper_bar(studies, one["called different"], FALSE) for one in false.values())
        and all(meets_upper_bar(studies, one["called not worse"], FALSE) for one in false.values())
        and all(one["same as the product"] for one in false.values())
        and all(needed[pair.name]["ratio"]["high"] < 1 for pair in POLICIES if pair.failures_differ)
        and all(0.7 <= one["planned"] / one["pairs"] <= 1.3 for one in planned.values())
    )
    finish({"studies": studies, "false claims": false, "pairs needed": needed, "planned": planned}, holds)


def two_shares(random: np.random.Generator, count: int) -> Shares:
    return np.where(random.random(count) < 0.6, 0.25, 1.0)


def even_share(random: np.random.Generator, count: int) -> Shares:
    return random.random(count)


def skewed_share(random: np.random.Generator, count: int) -> Shares:
    return random.beta(0.3, 1.5, count)


def independent_pairs(draw: Callable[[np.random.Generator, int], Shares]) -> Draw:
    return lambda random, count: (draw(random, count), draw(random, count))


def start_pairs(random: np.random.Generator, count: int) -> tuple[Shares, Shares]:
    start = random.random(count)
    first, second = (np.clip(start + random.normal(0, 0.15, count), 0, 1) for _ in range(2))
    return first, second


def task_rounds(random: np.random.Generator, count: int) -> tuple[Shares, Shares]:
    """Five tasks of unlike difficulty, on which the second policy gains and loses: nothing on the whole."""
    means, gains = np.array([0.7, 0.5, 0.4, 0.55, 0.3]), np.array([-0.25, 0.25, 0.1, -0.15, 0.05])
    task = np.arange(count) % 5
    start = random.normal(0, 0.05, count)
    first, second = (
        np.clip(of[task] + start + random.uniform(-0.1, 0.1, count), 0, 1) for of in (means, means + gains)
    )
    return first, second


# Name → both policies' progress, and the pairs in a round.
KINDS: dict[str, tuple[Draw, int]] = {
    "two values": (independent_pairs(two_shares), 1),
    "an even spread": (independent_pairs(even_share), 1),
    "nearly always nothing": (independent_pairs(skewed_share), 1),
    "starts that both share": (start_pairs, 1),
    "5 tasks in turn that differ": (task_rounds, 5),
}


def false_claims(random: np.random.Generator, draw: Draw, every: int, studies: int) -> dict[str, Any]:
    """How many studies call equals different at some number of pairs, and a loss of `MARGIN` not worse by more."""
    different = not_worse = 0
    same = True
    for study in range(studies):
        first, second = draw(random, PAIRS)
        differences = second - first
        shown = first_shown(differences, 0.0, every) or first_shown(-differences, 0.0, every)
        different += shown is not None
        # One pair in ten is lost whole, so that the mean falls by the margin.
        lost = np.where(random.random(PAIRS) < MARGIN, -1.0, differences)
        not_worse += first_shown(lost, -MARGIN, every) is not None
        if study < 25:
            kind = decide_sequentially(differences, None, every).kind
            same = same and (kind in ("better", "worse")) == (shown is not None)
    return {"called different": different, "called not worse": not_worse, "same as the product": same}


@dataclass(frozen=True)
class Policies:
    """Two policies: what they differ in, in words, and their progress.

    Args:
        failures_differ: whether progress should need fewer pairs, because the policies differ in how far failures get.
    """

    name: str
    draw: Draw
    failures_differ: bool = False


def stage_policies(first: Sequence[float], second: Sequence[float], shared: float = 0.0) -> Draw:
    """Return policies that pass each stage with a chance of its own, and end at the first that they fail.

    Args:
        shared: share of the pairs in which both have the same luck at each stage, as on a hard start.
    """

    def draw(random: np.random.Generator, count: int) -> tuple[Shares, Shares]:
        luck = random.random((2, count, len(first)))
        luck[1] = np.where(random.random((count, 1)) < shared, luck[0], luck[1])
        passed = [np.cumprod(luck[side] < chances, axis=1).mean(axis=1) for side, chances in enumerate((first, second))]
        return passed[0], passed[1]

    return draw


def goal_policies(first: tuple[float, float], second: tuple[float, float]) -> Draw:
    """Return policies that cover a share of a goal, a beta distribution each; 95 % of it is a success, as in PushT."""

    def draw(random: np.random.Generator, count: int) -> tuple[Shares, Shares]:
        one, other = (np.minimum(random.beta(*shape, count) / 0.95, 1) for shape in (first, second))
        return one, other

    return draw


def rate_policies(first: tuple[float, float], second: tuple[float, float]) -> Draw:
    """Return policies that succeed at a rate, and whose failures do a share of the task: (rate, share)."""

    def draw(random: np.random.Generator, count: int) -> tuple[Shares, Shares]:
        one, other = (np.where(random.random(count) < rate, 1.0, share) for rate, share in (first, second))
        return one, other

    return draw


POLICIES = (
    Policies("all of 4 stages, 90 against 75 %", stage_policies([0.9] * 4, [0.75] * 4)),
    Policies("the same, starts shared", stage_policies([0.9] * 4, [0.75] * 4, shared=0.7)),
    Policies("the first stage, 95 against 70 %", stage_policies([0.95] * 4, [0.7, 0.95, 0.95, 0.95])),
    Policies("the last stage, 90 against 60 %", stage_policies([0.95, 0.95, 0.95, 0.9], [0.95, 0.95, 0.95, 0.6])),
    Policies("seldom a success", stage_policies([0.9, 0.7, 0.5, 0.2], [0.7, 0.5, 0.4, 0.2]), failures_differ=True),
    Policies(
        "hardly ever a success", stage_policies([0.8, 0.6, 0.3, 0.05], [0.5, 0.4, 0.3, 0.05]), failures_differ=True
    ),
    Policies("nearly always a success", stage_policies([0.99] * 4, [0.95] * 4)),
    Policies("covers 60 against 45 %", goal_policies((3.0, 2.0), (2.25, 2.75)), failures_differ=True),
    Policies("half succeed, failures do 80 against 30 %", rate_policies((0.5, 0.8), (0.5, 0.3)), failures_differ=True),
    Policies("40 % succeed, others do 75 %, against 60 % and nothing", rate_policies((0.4, 0.75), (0.6, 0.0))),
)


def pairs_needed(random: np.random.Generator, policies: Policies, studies: int) -> dict[str, Any]:
    """The pairs until a verdict by each score; those that never decide count with `MOST`. Intervals at 95 %."""
    pairs, kinds = {"success": list[int](), "progress": list[int]()}, {"success": list[str](), "progress": list[str]()}
    for _ in range(studies):
        first, second = policies.draw(random, MOST)
        scores = {"success": (second >= 1).astype(float) - (first >= 1), "progress": second - first}
        for score, differences in scores.items():
            decision = decide_sequentially(differences, None)
            pairs[score].append(decision.pairs or MOST)
            kinds[score].append(decision.kind)
    counts = np.array([pairs["success"], pairs["progress"]], float)
    drawn = counts[:, random.integers(studies, size=(2000, studies))].mean(axis=2)
    found: dict[str, Any] = {
        score: {
            "pairs": counts[row].mean(),
            **percentiles(drawn[row]),
            **{kind: kinds[score].count(kind) / studies for kind in ("worse", "better")},
        }
        for row, score in enumerate(pairs)
    }
    return found | {"ratio": {"of means": counts[1].mean() / counts[0].mean(), **percentiles(drawn[1] / drawn[0])}}


def percentiles(drawn: Shares) -> dict[str, float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}


def compare_with_plan(random: np.random.Generator, studies: int) -> dict[str, Any]:
    """The pairs that a plan names for a loss of 10, 20 and 30 points, and the mean of simulated studies."""
    found = {}
    for loss in (0.1, 0.2, 0.3):
        of_success = rate_policies((0.8, 0.0), (0.8 - loss, 0.0))
        shapes = [(1 + side * loss, 1 - side * loss) for side in (1, -1)]
        for score, draw, planned in (
            ("success", of_success, typical_pairs(-loss, chance_disagreement(0.8, 0.8 - loss))),
            ("progress", beta_pairs(*shapes), typical_progress_pairs(loss)),
        ):
            most = 4 * planned
            differences = (second - first for first, second in (draw(random, most) for _ in range(studies)))
            stops = [first_shown(-each, 0.0) or most for each in differences]
            found[f"{score}, {loss:.0%}"] = {"planned": planned, "pairs": float(np.mean(stops))}
    return found


def beta_pairs(first: tuple[float, float], second: tuple[float, float]) -> Draw:
    return lambda random, count: (random.beta(*first, count), random.beta(*second, count))


def show(false: dict[str, Any], needed: dict[str, Any], planned: dict[str, Any]) -> None:
    console = Console()
    table = Table("the same policy twice", "called different", "a loss of the margin called not worse", "bar")
    for name, one in false.items():
        table.add_row(name, str(one["called different"]), str(one["called not worse"]), f"≤ {FALSE:.0%}")
    console.print(table)
    table = Table("two policies", "pairs by success", "worse, better", "pairs by progress", "worse, better", "ratio")
    for name, one in needed.items():
        cells = []
        for score in ("success", "progress"):
            of = one[score]
            cells += [
                f"{of['pairs']:.0f} [{of['low']:.0f}, {of['high']:.0f}]",
                f"{of['worse']:.0%}, {of['better']:.0%}",
            ]
        ratio = one["ratio"]
        table.add_row(name, *cells, f"{ratio['of means']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]")
    console.print(table)
    table = Table("a loss of", "pairs in a plan", "pairs of simulated studies")
    for name, one in planned.items():
        table.add_row(name, str(one["planned"]), f"{one['pairs']:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
