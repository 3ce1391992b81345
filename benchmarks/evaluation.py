"""May an evaluation be stopped early? Simulated evaluations: pairs of successes and failures, no simulator.

1. The same policy twice, at several success rates and shares of pairs that disagree, and on tasks that differ, played
   in turn: of 400 evaluations at most 5 % may call it different at any of the first 200 pairs. Beside it, what
   McNemar's exact test would call when it is looked at after each pair. And a policy that loses 10 points: at most 5 %
   may call it not worse by more than those 10.
2. A policy with 20 % of its actions spoiled, modelled as success that falls from 85 % to 60 %: called worse with fewer
   pairs on average than McNemar's exact test needs, done once at the end, for the same power: 80 %, 90 %, and what the
   sequence reaches with 200 pairs, taken at the lower end of its exact interval.
3. Every interval holds the truth as often as it says: Clopper and Pearson's at 95 % or more; Tango's, whose level is
   approximate, at 94 % or more on average and 93 % or more at each setting; the confidence sequence at all numbers of
   pairs at once at 95 % or more. A share is judged with the allowance of a one-sided test at 1 %.

    python benchmarks/evaluation.py [--quick]

The last line is JSON with every figure. `--quick` takes fewer settings, under a minute on one core; all of it a few.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from common.shared import finish
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats
from simulated.episodes import decide_sequentially, first_shown

from strobe.evaluate.measure.planning import chance_disagreement
from strobe.evaluate.measure.success_rates import mcnemar_p, rate_interval, tango_interval

EVALUATIONS, PAIRS, LEVEL, FALSE = 400, 200, 0.95, 0.05
SOUND, SPOILED, MARGIN = 0.85, 0.60, 0.10
Shares = tuple[float, float]  # of pairs that are lost, that are won


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer settings: under a minute on one core")
    quick = parser.parse_args().quick
    random, console = np.random.default_rng(18), Console()
    same = the_same_twice(random, quick)
    boundary = margin_error_shares(random, quick)
    spoiled = a_spoiled_policy(random, quick)
    coverage = interval_coverage(random, quick)
    show(console, same, boundary, spoiled, coverage)
    tango = [one["coverage"] for one in coverage["Tango"].values()]
    holds = (
        all(one["called different"] <= FALSE for one in same.values())
        and all(one["called not worse"] <= FALSE for one in boundary.values())
        and all(setting["called worse"] >= 0.9 for setting in spoiled.values())
        and all(
            one["pairs on average"] < one["fixed design needs"]
            for setting in spoiled.values()
            for one in setting.values()
            if isinstance(one, dict)
        )
        and all(one["holds"] for kind in coverage.values() for one in kind.values())
        and float(np.mean(tango)) >= 0.94
    )
    figures = {"the same twice": same, "at the margin": boundary, "spoiled": spoiled, "coverage": coverage}
    figures["evaluations"] = EVALUATIONS
    finish(figures, holds)


def the_same_twice(random: np.random.Generator, quick: bool) -> dict[str, Any]:
    """Shares of evaluations that called the same policy different, at any number of pairs up to `PAIRS`."""
    apart = {f"success {rate:.0%}, {share:.0%} disagree": share for rate, share in settings(quick)}
    found = {}
    for name, share in apart.items():
        differences = [draw_differences(random, [(share / 2, share / 2)]) for _ in range(EVALUATIONS)]
        found[name] = {
            "called different": decided_share(differences),
            "McNemar at each look": peeking_error_rate(differences),
        }
    # Five tasks in turn: what is lost on some is won on the others.
    tasks = [(0.3, 0.0), (0.0, 0.3), (0.2, 0.0), (0.0, 0.2), (0.1, 0.1)]
    differences = [draw_differences(random, tasks) for _ in range(EVALUATIONS)]
    found["5 tasks that differ, in turn"] = {
        "called different": decided_share(differences, every=len(tasks)),
        "McNemar at each look": peeking_error_rate(differences),
    }
    return found


def margin_error_shares(random: np.random.Generator, quick: bool) -> dict[str, Any]:
    """Shares of evaluations that called a loss of `MARGIN` not worse by more than it, at any number of pairs."""
    found = {}
    for share in (0.2,) if quick else (MARGIN, 0.2, 0.4):
        shares = ((share + MARGIN) / 2, (share - MARGIN) / 2)
        decisions = [decide_sequentially(draw_differences(random, [shares]), MARGIN) for _ in range(EVALUATIONS)]
        found[f"{share:.0%} disagree"] = {
            "called not worse": float(np.mean([one.within_margin for one in decisions])),
            "called worse": float(np.mean([one.kind == "worse" for one in decisions])),
        }
    return found


def settings(quick: bool) -> list[tuple[float, float]]:
    """Success rates with shares of pairs that disagree: as if independent, and a third of that."""
    rates = (0.5, 0.85) if quick else (0.5, 0.7, 0.85, 0.95)
    both = [(rate, chance_disagreement(rate, rate) / part) for rate in rates for part in (1, 3)]
    return both[::3] if quick else both


def draw_differences(random: np.random.Generator, tasks: list[Shares]) -> NDArray[np.int64]:
    """`PAIRS` differences, −1, 0 or 1, of the tasks in turn."""
    lost, won = np.array([tasks[pair % len(tasks)] for pair in range(PAIRS)]).T
    chance = random.random(PAIRS)
    return (chance >= 1 - won).astype(int) - (chance < lost).astype(int)


def decided_share(evaluations: list[NDArray[np.int64]], every: int = 1) -> float:
    return float(np.mean([decide_sequentially(one, None, every).kind in ("worse", "better") for one in evaluations]))


def peeking_error_rate(evaluations: list[NDArray[np.int64]]) -> float:
    """Share of evaluations in which McNemar's exact test, done after each pair, shows a difference at least once."""
    known: dict[tuple[int, int], bool] = {}

    def shows(lost: int, won: int) -> bool:
        if (lost, won) not in known:
            known[lost, won] = mcnemar_p(lost, won) < 1 - LEVEL
        return known[lost, won]

    runs = [zip(np.cumsum(one < 0).tolist(), np.cumsum(one > 0).tolist(), strict=True) for one in evaluations]
    return float(np.mean([any(shows(*counts) for counts in run) for run in runs]))


def a_spoiled_policy(random: np.random.Generator, quick: bool) -> dict[str, Any]:
    """Pairs until a policy that lost 25 points was called worse, beside what a fixed design needs."""
    lost = SOUND - SPOILED
    apart = chance_disagreement(SOUND, SPOILED)
    found = {}
    for name, share in {"pairs share nothing": apart, "pairs share much": lost + (apart - lost) / 3}.items():
        shares = ((share + lost) / 2, (share - lost) / 2)
        decisions = [
            decide_sequentially(draw_differences(random, [shares]), None)
            for _ in range(EVALUATIONS // (2 if quick else 1))
        ]
        worse = np.array([one.pairs if one.kind == "worse" else np.inf for one in decisions])
        found[name] = {"disagree": share, "called worse": float(np.mean(worse <= PAIRS))}
        for power in (0.8, 0.9, None):
            # The sequence is broken off where that share has been called worse; the last row plays all `PAIRS`.
            most = PAIRS if power is None else int(min(PAIRS, np.quantile(worse, power, method="higher")))
            reached = power or rate_interval(int((worse <= PAIRS).sum()), len(worse)).low
            found[name][f"power {power:.0%}" if power else f"{PAIRS} pairs at most"] = {
                "power": reached,
                "at most": most,
                "pairs on average": float(np.minimum(worse, most).mean()),
                "fixed design needs": fixed_pairs(-lost, share, reached),
            }
    return found


def fixed_pairs(difference: float, disagreement: float, power: float) -> int:
    """The fewest pairs with which McNemar's exact test, done once at the end, shows ``difference`` with ``power``."""
    won, pairs = (disagreement + abs(difference)) / 2 / disagreement, 1
    discordant = np.arange(1000)
    # The largest number on the lesser side that is still significant, two-sided, with that many in disagreement.
    most = stats.binom.ppf((1 - LEVEL) / 2, discordant, 0.5)
    most -= stats.binom.cdf(most, discordant, 0.5) > (1 - LEVEL) / 2
    shown = np.where(most >= 0, stats.binom.cdf(most, discordant, 1 - won), 0.0)
    while stats.binom.pmf(discordant, pairs, disagreement) @ shown < power:
        pairs += 1
    return pairs


def interval_coverage(random: np.random.Generator, quick: bool) -> dict[str, dict[str, Any]]:
    """How often each interval holds the truth; of a sequence, at all numbers of pairs at once."""
    runs, sequences = (1000, 200) if quick else (5000, EVALUATIONS)
    found: dict[str, dict[str, Any]] = {"Clopper and Pearson": {}, "Tango": {}}
    for rate in (0.5, 0.85, 0.97):
        for episodes in (20, 100):
            ends = {}
            inside = 0
            for successes in random.binomial(episodes, rate, runs).tolist():
                ends[successes] = ends.get(successes) or rate_interval(successes, episodes, LEVEL)
                inside += ends[successes].low <= rate <= ends[successes].high
            found["Clopper and Pearson"][f"{rate:.0%}, {episodes} episodes"] = judge_coverage(inside, runs, LEVEL)
    for lost, won in ((0.05, 0.05), (0.34, 0.09), (0.02, 0.02), (0.10, 0.02)):
        for pairs in (20, 100):
            known, inside = {}, 0
            for seen in random.multinomial(pairs, [lost, won, 1 - lost - won], runs).tolist():
                if (key := (seen[0], seen[1])) not in known:
                    known[key] = tango_interval(seen[0], seen[1], pairs, LEVEL)
                inside += known[key].low <= won - lost <= known[key].high
            found["Tango"][f"{lost:.0%} lost, {won:.0%} won, {pairs} pairs"] = judge_coverage(inside, runs, 0.93)
    found["sequence of a difference"] = {}
    for lost, won in ((0.05, 0.05), (0.34, 0.09)):
        played = (draw_differences(random, [(lost, won)]) for _ in range(sequences))
        sides = ((first_shown(one, won - lost), first_shown(-one, lost - won)) for one in played)
        inside = sum(side == (None, None) for side in sides)
        found["sequence of a difference"][f"{lost:.0%} lost, {won:.0%} won"] = judge_coverage(inside, sequences, LEVEL)
    return found


def judge_coverage(inside: int, runs: int, least: float) -> dict[str, Any]:
    return {"coverage": inside / runs, "holds": bool(stats.binomtest(inside, runs, least, "less").pvalue >= 0.01)}


def show(
    console: Console,
    same: dict[str, Any],
    boundary: dict[str, Any],
    spoiled: dict[str, Any],
    coverage: dict[str, Any],
) -> None:
    table = Table("the same policy twice", "called different", "McNemar at each look", "bar")
    for name, one in same.items():
        table.add_row(name, f"{one['called different']:.1%}", f"{one['McNemar at each look']:.1%}", f"≤ {FALSE:.0%}")
    console.print(table)
    table = Table(f"loses {MARGIN:.0%}", f"called not worse by more than {MARGIN:.0%}", "called worse", "bar")
    for name, one in boundary.items():
        table.add_row(name, f"{one['called not worse']:.1%}", f"{one['called worse']:.1%}", f"≤ {FALSE:.0%}")
    console.print(table)
    table = Table(f"{SOUND:.0%} → {SPOILED:.0%}", "power", "pairs at most", "on average", "a fixed design needs")
    for name, setting in spoiled.items():
        for one in setting.values():
            if isinstance(one, dict):
                average = f"{one['pairs on average']:.1f}"
                table.add_row(name, f"{one['power']:.1%}", str(one["at most"]), average, str(one["fixed design needs"]))
    console.print(table)
    table = Table("interval at 95 %", "setting", "holds the truth")
    for kind, ones in coverage.items():
        for name, one in ones.items():
            table.add_row(kind, name, f"{one['coverage']:.1%}")
    console.print(table)


if __name__ == "__main__":
    main()
