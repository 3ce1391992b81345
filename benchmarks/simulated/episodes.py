"""What verdicts on success rates promise: while episodes are played, of finished results, and over several tasks.

A verdict is false where it says better or worse of equals, or "not worse by more than 10 points" of one that loses 10
points. At most 5 % are, looked at after every pair or once. Finished results come sorted by difficulty as well,
and with unequal episodes of each task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from simulated.claim import Claim

from strobe.core.measure.statistics import bonferroni
from strobe.evaluate.measure.betting import decisive_log_capital, gains_above, log_capital_after_each
from strobe.evaluate.measure.episodes import judge, least_reward_difference
from strobe.evaluate.measure.success_rates import LEVEL, decide, paired_rates, unpaired_rates
from strobe.evaluate.pairs import Decision, EpisodePair
from strobe.simulators.results import Episode

MARGIN, MOST = 0.1, 1 - LEVEL
Outcomes = NDArray[np.bool]
Differences = NDArray[np.int_] | NDArray[np.float64]  # of paired scores, each from −1 to 1
# Success rates of tasks from easy to hard.
TASKS = (0.98, 0.9, 0.7, 0.4, 0.05)
# What one variant gains on each of these tasks: nothing on the whole.
GAINS = (-0.38, 0.08, 0.2, 0.15, -0.05)


def simulate(quick: bool) -> list[Claim]:
    """Simulate every promise about success rates and rewards."""
    random = np.random.default_rng(37)
    return [*_while_played(random, 45 if quick else 1000), *_finished_run_claims(random, 300 if quick else 5000)]


def first_shown(differences: Differences, claim: float, every: int = 1) -> int | None:
    """Return after how many pairs their mean is first shown to be above ``claim``; None: never."""
    shown = log_capital_after_each(gains_above(differences, claim)) >= decisive_log_capital(LEVEL)
    rounds = shown[every - 1 :: every]
    return (int(np.argmax(rounds)) + 1) * every if rounds.any() else None


def decide_sequentially(differences: Differences, margin: float | None, every: int = 1) -> Decision:
    """Return the decision of who looks after each pair and stops at the first verdict, as `strobe evaluate` does."""
    looks = [first_shown(differences, 0.0, every), first_shown(-differences, 0.0, every)]
    looks += [first_shown(differences, -margin, every)] if margin is not None else []
    at = min((look for look in looks if look is not None), default=len(differences))
    return decide(differences[:at], margin, LEVEL, every)


def _while_played(random: np.random.Generator, tries: int) -> list[Claim]:
    def differences(lost: Sequence[float], won: Sequence[float], pairs: int) -> NDArray[np.int_]:
        """Of tasks in turn, each with its own chances to lose and to win a pair."""
        chance, task = random.random(pairs), np.arange(pairs) % len(lost)
        return (chance >= 1 - np.array(won)[task]).astype(int) - (chance < np.array(lost)[task]).astype(int)

    looks = "stopped at the first verdict, a look after every pair"
    different, margin = f"worse or better of equals, {looks}", f"not worse of a loss of the margin, {looks}"
    cases: list[tuple[str, str, Sequence[float], Sequence[float]]] = [
        (different, "independent pairs, 10 % disagree", [0.05], [0.05]),
        (different, "independent pairs, 40 % disagree", [0.2], [0.2]),
        (different, "tasks in rounds, from −30 to +30 points", [0.3, 0.0, 0.2, 0.0], [0.0, 0.3, 0.0, 0.2]),
        (margin, "independent pairs, 10 % disagree", [0.1], [0.0]),
        (margin, "independent pairs, 30 % disagree", [0.2], [0.1]),
        (margin, "tasks in rounds, one loses 40 points", [0.4, 0.0, 0.0, 0.0], [0.0]),
    ]
    claims = []
    for name, noise, lost, won in cases:
        won = [*won, *[0.0] * (len(lost) - len(won))]
        loses = sum(won) < sum(lost)
        wrong = {"not worse by more than the margin", "better"} if loses else {"worse", "better"}
        hits = sum(
            decide_sequentially(differences(lost, won, 160), MARGIN, len(lost)).kind in wrong for _ in range(tries)
        )
        claims.append(Claim(name, noise, MOST, "at most", hits, tries))
    return claims


def _finished_run_claims(random: np.random.Generator, tries: int) -> list[Claim]:
    """Runs of lerobot-eval, sorted by task from easy to hard: a sequence's intervals would not hold there."""
    pairs, level = np.repeat(np.arange(len(TASKS)), 20), np.array(TASKS)
    level_gained = level + np.array(GAINS)

    def draw_outcomes(rates: NDArray[np.float64], chance: NDArray[np.float64]) -> Outcomes:
        return chance < rates[pairs]

    def judge_paired(after: NDArray[np.float64], shared: float) -> str:
        """The verdict on pairs of which a share ends alike, as far as their rates allow it."""
        first = random.random(len(pairs))
        second = np.where(random.random(len(pairs)) < shared, first, random.random(len(pairs)))
        rates = paired_rates(draw_outcomes(level, first), draw_outcomes(after, second), MARGIN, every=None)
        return rates.decision.kind

    def judge_unpaired(before: Sequence[float], after: Sequence[float], of: tuple[Sequence[int], Sequence[int]]) -> str:
        first, second = (
            list(zip(random.binomial(episodes, rates).tolist(), episodes, strict=True))
            for episodes, rates in zip(of, (before, after), strict=True)
        )
        return unpaired_rates(first, second, MARGIN).kind

    even, unequal = ([20] * 5, [20] * 5), ([60, 40, 20, 10, 5], [5, 10, 20, 40, 60])
    lower = level - MARGIN + np.array([0.0, 0.0, 0.0, 0.0, 0.05]) - np.array([0.05, 0.0, 0.0, 0.0, 0.0])
    equal, loss = {"worse", "better"}, {"not worse by more than the margin", "better"}
    one, half = [0.5], [0.4]
    cases: list[tuple[str, str, Callable[[], str], set[str]]] = [
        ("worse or better of equals, finished pairs", "tasks sorted by difficulty", partial(judge_paired, level, 0.0),
         equal),
        ("worse or better of equals, finished pairs", "and most pairs alike", partial(judge_paired, level, 0.8), equal),
        ("worse or better of equals, finished pairs", "tasks differ by −38 to +20 points, sorted",
         partial(judge_paired, level_gained, 0.5), equal),
        ("not worse of a loss of the margin, finished pairs", "tasks sorted by difficulty",
         partial(judge_paired, lower, 0.5), loss),
        ("worse or better of equals, not in pairs", "one task, 50 against 50",
         partial(judge_unpaired, one, one, ([50], [50])), equal),
        ("worse or better of equals, not in pairs", "one task, 10 against 100",
         partial(judge_unpaired, [0.03], [0.03], ([10], [100])), equal),
        ("worse or better of equals, not in pairs", "tasks played unequally often",
         partial(judge_unpaired, TASKS, TASKS, unequal), equal),
        ("worse or better of equals, not in pairs", "40 tasks played once or twice",
         partial(judge_unpaired, [0.3, 0.7] * 20, [0.3, 0.7] * 20, ([1] * 40, [2] * 40)), equal),
        ("worse or better of equals, not in pairs", "tasks differ by −38 to +20 points",
         partial(judge_unpaired, TASKS, level_gained.tolist(), even), equal),
        ("not worse of a loss of the margin, not in pairs", "one task",
         partial(judge_unpaired, one, half, ([60], [60])), loss),
        ("not worse of a loss of the margin, not in pairs", "tasks played unequally often",
         partial(judge_unpaired, [0.9, 0.7, 0.5, 0.3, 0.15], [0.8, 0.6, 0.4, 0.2, 0.05], unequal), loss),
    ]  # fmt: skip
    claims = [
        Claim(name, noise, MOST, "at most", sum(verdict() in wrong for _ in range(tries)), tries)
        for name, noise, verdict, wrong in cases
    ]
    return [*claims, _many_task_claim(random, tries // 4), _reward_claim(random, tries // 4)]


def _many_task_claim(random: np.random.Generator, tries: int) -> Claim:
    hits = 0
    for _ in range(tries):
        kinds = [
            unpaired_rates([(int(a), 50)], [(int(b), 50)], MARGIN, bonferroni(10)).kind
            for a, b in random.binomial(50, 0.7, (10, 2))
        ]
        hits += any(kind in ("worse", "better") for kind in kinds)
    return Claim("worse or better of equals, any of 10 tasks", "independent episodes", MOST, "at most", hits, tries)


def _reward_claim(random: np.random.Generator, tries: int) -> Claim:
    hits = 0
    for _ in range(tries):
        before = random.normal(100, 20, 48)
        after = before - least_reward_difference(before.tolist()) + random.standard_t(3, 48)
        sides = [
            [Episode(success=False, reward=float(got), best_reward=0.0, ticks=1) for got in pair]
            for pair in zip(before, after, strict=True)
        ]
        pairs = [EpisodePair(task="", seed=0, baseline=a, candidate=b, same_ticks=0, largest_error=1) for a, b in sides]
        hits += judge(pairs, baseline="", candidate="", environment="").kind == "worse"
    name = "worse by reward of a difference that does not count"
    return Claim(name, "heavy tails", MOST, "at most", hits, tries)
