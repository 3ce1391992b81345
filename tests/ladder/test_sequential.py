"""A try that ends as soon as it is clear: no more false claims than one look would make, and fewer pairs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.verdicts import LEVEL, paired_verdict
from strobe.ladder.sequential import FIRST, MATTERS, Looks


def times(rng: Generator, count: int, gain: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds of two variants in pairs: noise of each, spikes of both, and a load that slows whole rounds."""
    load = np.exp(rng.normal(0, 0.05, count))
    spikes = [np.where(rng.random(count) < 0.03, 1 + rng.exponential(0.3, count), 1.0) for _ in range(2)]
    noise = [np.exp(rng.normal(0, spread / 2**0.5, count)) for _ in range(2)]
    before, after = (100 * load * each * spike for each, spike in zip(noise, spikes, strict=True))
    return before, after * (1 - gain)


def run_trial(before: np.ndarray, after: np.ndarray) -> tuple[str, int]:
    """Verdict of a try that may end at any pair, and the pairs that it took."""
    looks = Looks("before", "after")

    def ends(pairs: int) -> bool:
        return looks.due(pairs) and bool(looks.look({"before": before[:pairs], "after": after[:pairs]}))

    pairs = next(filter(ends, range(1, len(before) + 1)), len(before))
    return looks.verdict(list(before[:pairs]), list(after[:pairs])).kind, pairs


@pytest.mark.long
def test_looking_often_claims_no_more_differences_than_one_look_may():
    rng, trials = default_rng(4), 800
    claims = [run_trial(*times(rng, 90, 0.0, 0.06))[0] for _ in range(trials)]
    assert sum(kind in ("faster", "slower") for kind in claims) <= (1 - LEVEL) * trials


@pytest.mark.long
def test_three_percent_are_found_as_often_as_by_a_run_of_fixed_length_in_fewer_pairs():
    rng, trials, fixed = default_rng(5), 200, 40
    sets = [times(rng, fixed * 5 // 4, MATTERS, 0.03) for _ in range(trials)]
    found = [run_trial(*both) for both in sets]
    by_all = [paired_verdict(before[:fixed], after[:fixed]).kind for before, after in sets]
    assert sum(kind == "faster" for kind, _ in found) >= by_all.count("faster")
    assert np.median([pairs for _, pairs in found]) < fixed
    assert sum(kind == "slower" for kind, _ in found) == 0


@pytest.mark.parametrize(("gain", "kind"), [(0.25, "faster"), (-0.25, "slower")])
def test_what_is_clear_is_seen_at_the_first_look(gain, kind):
    before, after = times(default_rng(0), 60, gain, 0.02)
    assert run_trial(before, after) == (kind, FIRST)


def test_a_run_ends_with_the_look_that_ends_it():
    rng = default_rng(1)
    calls = {"before": lambda: rng.normal(100, 1), "after": lambda: rng.normal(70, 1)}
    looks = Looks("before", "after")
    run = collect(calls, SamplingBudget(seconds=60, looking=looks))
    assert run.stopped_because == "after was shown to be faster"
    assert run.rounds - run.warmup_rounds == FIRST
    verdict = looks.verdict(run.samples["before"].values, run.samples["after"].values)
    assert (verdict.kind, verdict.pairs) == ("faster", FIRST)
    assert verdict.interval.level > LEVEL


def test_what_gains_nothing_is_given_up_before_the_time_is():
    rng = default_rng(2)
    calls = {name: lambda: rng.normal(100, 1) for name in ("before", "after")}
    looks = Looks("before", "after")
    run = collect(calls, SamplingBudget(seconds=60, looking=looks))
    assert run.stopped_because == "after is not faster by 3 %"
    assert looks.verdict(run.samples["before"].values, run.samples["after"].values).kind == "no difference shown"
