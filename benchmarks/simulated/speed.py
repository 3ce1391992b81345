"""Verdicts of speed: how often they are wrong, and how often they find what is there.

Each comparison is `strobe.core.measure.sampling.collect` on a clock of its own, with the budget that `strobe compare`
has, and then the verdict; or the verdict alone on a given number of pairs. Times have 3 % noise about 30 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from simulated.claim import NOISES, Claim, Noise, Series, independent, times

from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.statistics import steps_line
from strobe.core.measure.verdicts import LEVEL, WITHIN, paired_verdict, unpaired_verdict
from strobe.core.results.comparison import Verdict
from strobe.dataloader.throughput import block_rate
from strobe.ladder.sequential import MATTERS, Looks

FALSE = 1 - LEVEL
PLANTED = 1.03
SECONDS = 12.0  # of a run
MOST_CALLS = 300  # of each name: more than fit into these
EDGE = 1e-9  # a planted ratio is just beyond the bound that may not be called met


class Bench:
    """Calls that take the times of a series, on a clock that moves by what they take."""

    def __init__(self, series: dict[str, Series]) -> None:
        self.now = 0.0
        self.calls = {name: self._call(iter(values.tolist())) for name, values in series.items()}

    def _call(self, values: Iterator[float]) -> Callable[[], float]:
        def call() -> float:
            ms = next(values)
            self.now += ms / 1e3
            return ms

        return call

    def collect_samples(self, budget: SamplingBudget) -> dict[str, list[float]]:
        run = collect(self.calls, budget, clock=lambda: self.now)
        return {name: samples.values for name, samples in run.samples.items()}


def simulate(quick: bool) -> list[Claim]:
    """Simulate the promises of `core/measure/verdicts.py`, and of the intervals that rest on the same widening."""
    random, tries = np.random.default_rng(37), 80 if quick else 1000
    claims: list[Claim] = []
    for name, noise in NOISES.items():
        claims += _one_look(name, noise, random, tries)
        claims += _stopping_claims(name, noise, random, tries // 5)
        claims += _others(name, noise, random, tries)
    return [*claims, *_power(random, tries), *_many_pairs(random, 10 if quick else 100)]


def _one_look(name: str, noise: Noise, random: np.random.Generator, tries: int) -> list[Claim]:
    """Verdicts on as few pairs as slow calls give, and on many."""
    claims = []
    for pairs in (10, 60):
        false = as_fast = excluded = unpaired = 0
        for _ in range(tries):
            first, second = times(noise, random, pairs), times(noise, random, pairs)
            false += _differs(paired_verdict(first, second))
            unpaired += _differs(unpaired_verdict(first, second, between_runs=0.0))
            edge = (1 + WITHIN) * (1 + EDGE)
            as_fast += paired_verdict(first, second * (edge if random.random() < 0.5 else 1 / edge)).within is not None
            planted = paired_verdict(first, PLANTED * second).interval
            excluded += not planted.low <= PLANTED <= planted.high
        given = f"{name}, {pairs} pairs"
        claims += [
            Claim("'faster' or 'slower' of the same", given, FALSE, "at most", false, tries),
            Claim("'as fast within 2 %' of what is 2 % apart", given, FALSE, "at most", as_fast, tries),
            Claim("'at most … slower' excludes the truth", given, FALSE, "at most", excluded, tries),
            Claim("'faster' or 'slower' of the same, separate runs", given, FALSE, "at most", unpaired, tries),
        ]
    return claims


def _stopping_claims(name: str, noise: Noise, random: np.random.Generator, tries: int) -> list[Claim]:
    """Verdicts where the interval's width ends the run, and where looks do."""
    false = false_looks = missed = excluded = 0
    for _ in range(tries):
        pair = {"before": times(noise, random, MOST_CALLS), "after": times(noise, random, MOST_CALLS)}
        run = Bench(pair).collect_samples(SamplingBudget(seconds=SECONDS))
        same = paired_verdict(run["before"], run["after"])
        false += _differs(same)
        excluded += not same.interval.low <= 1 <= same.interval.high
        looks = Looks("before", "after")
        run = Bench(pair).collect_samples(SamplingBudget(seconds=SECONDS, looking=looks))
        false_looks += _differs(looks.verdict(run["before"], run["after"]))
        gains = {**pair, "after": pair["after"] * (1 - MATTERS)}
        looks = Looks("before", "after")
        run = Bench(gains).collect_samples(SamplingBudget(seconds=SECONDS, looking=looks))
        missed += looks.verdict(run["before"], run["after"]).kind != "faster"
    return [
        Claim("'faster' or 'slower' of the same, stopped early", name, FALSE, "at most", false, tries),
        Claim("an interval without the truth, stopped early", name, FALSE, "at most", excluded, tries),
        Claim("'faster' or 'slower' of the same, in a try's looks", name, FALSE, "at most", false_looks, tries),
        Claim("a try gives up what is 3 % faster", name, 0.05, "at most", missed, tries),
    ]


def _others(name: str, noise: Noise, random: np.random.Generator, tries: int) -> list[Claim]:
    """Intervals at 95 % of a rate and of a line through numbers of steps."""
    rates = slopes = 0
    at = _median(noise)
    for _ in range(tries):
        rate = block_rate(10, np.maximum(1 + 0.05 * noise(random, 60), 0.1).tolist())
        rates += rate.interval is None or not rate.interval.low <= 10 <= rate.interval.high
    lines = max(tries // 10, 20)
    for _ in range(lines):
        rounds = {steps: (10 + 4 * steps) * np.exp(0.03 * (noise(random, 60) - at)) for steps in (1, 2, 5, 10)}
        line = steps_line("whole", {steps: times.tolist() for steps, times in rounds.items()}, resamples=500)
        assert line is not None
        ends = line.per_step_interval
        slopes += ends is None or not ends.low <= 4 <= ends.high
    return [
        Claim("a rate's 95 % interval misses it", f"{name}, 60 blocks", 0.05, "at most", rates, tries),
        Claim("a step's 95 % interval misses it", f"{name}, 60 rounds", 0.05, "at most", slopes, lines),
    ]


def _power(random: np.random.Generator, tries: int) -> list[Claim]:
    """What is 3 % slower is found with the pairs that sampling takes."""
    found, runs = 0, tries // 5
    for _ in range(runs):
        pair = {"a": times(independent, random, MOST_CALLS), "b": PLANTED * times(independent, random, MOST_CALLS)}
        run = Bench(pair).collect_samples(SamplingBudget(seconds=SECONDS))
        found += paired_verdict(run["a"], run["b"]).kind == "slower"
    of_twenty = 0
    for _ in range(tries):
        pair = times(independent, random, 20, spread=0.01), 1.10 * times(independent, random, 20, spread=0.01)
        of_twenty += paired_verdict(*pair).kind == "slower"
    return [
        Claim("what is 3 % slower is found", "independent", 0.9, "at least", found, runs),
        Claim("what is 10 % slower is found in 20 pairs", "independent, 1 %", 0.99, "at least", of_twenty, tries),
    ]


def _many_pairs(random: np.random.Generator, tries: int) -> list[Claim]:
    """A skewed ratio judged on 900 pairs and on 3,000: one estimator, so their intervals meet."""
    apart = 0
    for _ in range(tries):
        log_ratios = 0.3 * random.exponential(size=3900)
        few, many = (paired_verdict(np.ones(len(part)), np.exp(part)) for part in np.split(log_ratios, [900]))
        apart += few.interval.high < many.interval.low or many.interval.high < few.interval.low
    return [Claim("900 and 3,000 pairs exclude each other", "skewed ratio", FALSE, "at most", apart, tries)]


def _differs(verdict: Verdict) -> bool:
    return verdict.kind in ("faster", "slower")


def _median(noise: Noise) -> float:
    return float(np.median(noise(np.random.default_rng(0), 20_000)))
