"""Verdicts on pairs of samples: how often they are wrong, what they detect, what they say."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from strobe.core.measure.statistics import centre
from strobe.core.measure.verdicts import difference_interval, drop_short_claim, paired_verdict, unpaired_verdict

pairs = st.lists(st.tuples(st.floats(0.001, 1e6), st.floats(0.001, 1e6)), min_size=1, max_size=40)
judges = pytest.mark.parametrize("judge", [paired_verdict, unpaired_verdict])


def draw_correlated(random: np.random.Generator, count: int) -> np.ndarray:
    return 10 * np.exp(0.03 * np.asarray(lfilter([1], [1, -0.5], random.normal(size=count + 50)))[50:])


NOISE = {
    "normal": lambda random, count: random.normal(10, 0.4, count),
    "lognormal": lambda random, count: 10 * random.lognormal(0, 0.2, count),
    "spiky": lambda random, count: random.normal(10, 0.3, count) * np.where(random.random(count) < 0.05, 20, 1),
    "correlated": draw_correlated,
}


@judges
@given(samples=pairs)
def test_verdict_is_finite_and_holds_its_estimate(judge, samples):
    first, second = zip(*samples, strict=True)
    verdict = judge(first, second)
    numbers = [verdict.ratio, verdict.interval.low, verdict.interval.high, verdict.interval.level]
    assert all(map(math.isfinite, numbers))
    assert verdict.interval.low <= verdict.ratio <= verdict.interval.high
    assert verdict.pairs == (len(samples) if judge is paired_verdict else 0)
    if len(samples) < 6:
        assert verdict.kind == "inconclusive"


@judges
@given(samples=pairs)
def test_swapping_inverts(judge, samples):
    first, second = zip(*samples, strict=True)
    there, back = judge(first, second), judge(second, first)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.interval.low == pytest.approx(1 / there.interval.high)
    assert back.interval.high == pytest.approx(1 / there.interval.low)
    opposite = {"faster": "slower", "slower": "faster"}
    assert back.kind == opposite.get(there.kind, there.kind)


@judges
@given(samples=pairs, factor=st.sampled_from([0.25, 2, 1024]))
def test_the_unit_does_not_matter(judge, samples, factor):
    first, second = np.array(samples).T
    assert judge(first * factor, second * factor).ratio == pytest.approx(judge(first, second).ratio)


@pytest.mark.long
@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
@pytest.mark.parametrize("count", [20, 60])
def test_the_same_thing_is_seldom_told_apart(noise, count):
    random = np.random.default_rng(count)
    claims = sum(
        paired_verdict(noise(random, count), noise(random, count)).kind in ("faster", "slower") for _ in range(300)
    )
    assert claims <= 0.04 * 300


@pytest.mark.long
def test_drift_common_to_both_cancels():
    random = np.random.default_rng(1)
    claims = found = 0
    for _ in range(200):
        drift = np.linspace(1, 2, 60) * np.where(np.arange(60) > 30, 1.5, 1)
        first, second = (drift * random.normal(10, 0.3, 60) for _ in range(2))
        claims += paired_verdict(first, second).kind in ("faster", "slower")
        found += paired_verdict(first, 1.03 * second).kind == "slower"
    assert claims <= 8
    assert found >= 180


def test_who_runs_second_does_not_matter():
    random = np.random.default_rng(2)
    order = np.where(np.arange(60) % 2, 1.05, 1 / 1.05)
    claims = sum(
        paired_verdict(random.normal(10, 0.1, 60), random.normal(10, 0.1, 60) * order).kind in ("faster", "slower")
        for _ in range(100)
    )
    assert claims <= 4


@pytest.mark.parametrize("noise", ["normal", "spiky"])
def test_three_percent_is_found(noise):
    random = np.random.default_rng(3)
    found = sum(
        paired_verdict(NOISE[noise](random, 100), 1.03 * NOISE[noise](random, 100)).kind == "slower" for _ in range(200)
    )
    assert found >= 180


@pytest.mark.long
def test_interval_covers_the_true_ratio():
    random = np.random.default_rng(4)
    covered = 0
    for _ in range(300):
        verdict = paired_verdict(NOISE["lognormal"](random, 40), 1.2 * NOISE["lognormal"](random, 40))
        covered += verdict.interval.low <= 1.2 <= verdict.interval.high
    assert covered >= 0.97 * 300


def test_the_sentences():
    random = np.random.default_rng(5)
    first = random.normal(10, 0.1, 50)
    names: dict[str, Any] = {"baseline_name": "no rtc", "candidate_name": "rtc"}
    slower = paired_verdict(first, first * random.normal(1.10, 0.02, 50), **names)
    assert slower.kind == "slower"
    assert slower.sentence == "`rtc` is 10 % slower than `no rtc`."
    assert re.fullmatch(r"10 % \[\d+, 1\d\] more time per call, 99 % CI, 50 pairs\.", slower.detail or "")
    faster = paired_verdict(first, first * random.normal(0.8, 0.02, 50), **names)
    assert faster.kind == "faster"
    assert faster.sentence == "`rtc` is 19.7 % faster than `no rtc`."
    wide = paired_verdict(first, first * random.lognormal(0, 1, 50), **names)
    assert wide.kind == "inconclusive"
    assert (wide.cause, wide.needed) == ("noise", 1500)
    assert wide.sentence == "Inconclusive: `rtc` against `no rtc` needs about 1,500 pairs, has 50."
    few = paired_verdict(first[:5], 2 * first[:5], **names)
    assert few.kind == "inconclusive"
    assert (few.cause, few.needed) == ("too few", 6)
    assert few.sentence == "Inconclusive: `rtc` against `no rtc` needs 6 pairs, has 5."
    assert few.detail == "Measured: +100.0 % time per call, from 5 pairs."


def test_percent_and_times_never_stand_in_one_interval():
    first = np.random.default_rng(5).normal(10, 0.1, 50)
    wide = np.random.default_rng(6).lognormal(0, 4, 50)
    for second in (first * wide, first * 20, first / 20, first * 2):
        detail = paired_verdict(first, second).detail or ""
        assert ("×" in detail) != ("% [" in detail)


def test_as_fast_as_is_said_within_a_bound_and_what_is_excluded_beyond_it():
    random = np.random.default_rng(5)
    first, second = random.normal(10, 0.5, 50), random.normal(10, 0.5, 50)
    verdict = paired_verdict(first, second)
    assert (verdict.kind, verdict.within) == ("no difference shown", None)
    most = 100 * max(verdict.interval.high - 1, 1 - verdict.interval.low)
    assert verdict.sentence == f"`candidate` and the baseline differ by at most {most:.1f} %."
    within = paired_verdict(first, second, within=0.06)
    assert (within.kind, within.within) == ("no difference shown", 0.06)
    assert within.sentence == "`candidate` is as fast as the baseline within 6 %."
    with pytest.raises(ValueError, match="within"):
        paired_verdict(first, second, within=-0.1)


@pytest.mark.parametrize("apart", [1.02, 1 / 1.02])
def test_as_fast_as_is_false_in_one_of_a_hundred_at_its_bound(apart):
    random = np.random.default_rng(10)
    said = sum(
        paired_verdict(random.normal(10, 0.2, 60), apart * random.normal(10, 0.2, 60)).within is not None
        for _ in range(300)
    )
    assert said <= 6


def test_a_difference_that_would_be_shown_as_nothing_is_none():
    first = np.random.default_rng(11).normal(10, 0.1, 50)
    verdict = paired_verdict(first, first * (1 + 1e-6))
    assert verdict.interval.low > 1
    assert (verdict.kind, verdict.within) == ("no difference shown", 0.02)
    assert paired_verdict(first, first * 1.002).kind == "slower"


@judges
@given(samples=pairs, factor=st.floats(-320, 320), count=st.integers(6, 30))
def test_no_sentence_has_endless_or_contradicting_figures(judge, samples, factor, count):
    first, second = zip(*(samples * count)[: max(count, len(samples))], strict=True)
    verdict = judge(first, np.array(second) * math.exp(factor))
    assert len(verdict.sentence) < 120
    assert len(verdict.text) < 250
    assert " -" not in verdict.text
    assert not re.search(r" 0(\.0+)? % (faster|slower)", verdict.sentence)
    assert not re.search(r"[−-]0(\.0+)?\b(?!\.)", verdict.text)


@pytest.mark.parametrize(("count", "level"), [(6, 0.96875), (7, 0.984375), (8, 0.99)])
def test_few_pairs_say_what_level_they_reach(count, level):
    alternating = np.linspace(1.1, 1.2, count)[np.argsort(np.arange(count) * 2 % (count | 1))]
    verdict = paired_verdict(np.full(count, 10.0), 10 * alternating)
    assert verdict.kind == "slower"
    assert verdict.interval.level == pytest.approx(level)


def test_thousands_of_pairs_are_judged_as_hundreds_are():
    random = np.random.default_rng(6)
    # A skewed ratio: its median, its mean and the middle of its pairs' means lie far apart.
    first, second = np.full(100_000, 10.0), 10 * np.exp(0.3 * random.exponential(size=100_000))
    some, many, all_of_them = (paired_verdict(first[:count], second[:count]) for count in (900, 3000, 100_000))
    assert some.kind == many.kind == all_of_them.kind == "slower"
    for verdict in (some, many):
        assert verdict.interval.low <= all_of_them.ratio <= verdict.interval.high
    assert all_of_them.pairs == 100_000


@given(st.lists(st.sampled_from([0.0, 0.1, 0.3, -0.2, 1e-9]) | st.floats(-50, 50), min_size=1, max_size=60))
def test_the_centre_is_that_of_all_pairs_means(differences):
    values = np.array(differences)
    rows, columns = np.triu_indices(len(values))
    averages = (values[rows] + values[columns]) / 2
    assert centre(values, 0.99)[0] == pytest.approx(np.median(averages), rel=1e-9, abs=1e-9)


def test_equal_samples_show_no_difference():
    verdict = paired_verdict([10.0] * 20, [10.0] * 20)
    assert (verdict.kind, verdict.ratio) == ("no difference shown", 1)
    with pytest.raises(ValueError, match="baseline has 2, candidate 1"):
        paired_verdict([1.0, 2.0], [1.0])


def test_separate_runs_need_more_than_their_own_noise():
    random = np.random.default_rng(7)
    first, second = random.normal(10, 0.05, 200), random.normal(10.15, 0.05, 200)
    assert unpaired_verdict(first, second).kind == "no difference shown"
    assert unpaired_verdict(first, second, between_runs=0).kind == "slower"
    verdict = unpaired_verdict(first, 1.1 * first)
    assert verdict.kind == "slower"
    assert (verdict.detail or "").endswith("99 % CI, separate runs of 200 and 200 samples.")


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_separate_runs_of_the_same_thing(noise):
    random = np.random.default_rng(8)
    claims = sum(
        unpaired_verdict(noise(random, 40), noise(random, 60), between_runs=0).kind in ("faster", "slower")
        for _ in range(300)
    )
    assert claims <= 0.04 * 300


@given(samples=pairs, paired=st.booleans())
def test_difference_agrees_with_the_verdict(samples, paired):
    first, second = zip(*samples, strict=True)
    verdict = (paired_verdict if paired else unpaired_verdict)(first, second)
    difference, interval = difference_interval(first, second, paired=paired)
    assert math.isfinite(difference)
    assert (interval is None) == (len(samples) < 6)
    if interval is not None:
        assert interval.low <= difference <= interval.high
        # A difference of 0.0 % is none, and of calls that fill a queue nothing is claimed.
        if abs(verdict.ratio - 1) > 0.001 and verdict.cause != "a queue":
            assert (interval.low > 0) == (verdict.kind == "slower")
            assert (interval.high < 0) == (verdict.kind == "faster")


@judges
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([], [1.0], "baseline: expected a non-empty list"),
        ([1.0], [-1.0], "candidate: a time cannot be negative"),
        ([1.0], [float("nan")], "candidate: every value must be finite"),
        ([0.0], [1.0], "baseline: a ratio needs times above zero"),
    ],
)
def test_bad_samples_are_named(judge, first, second, message):
    with pytest.raises(ValueError, match=message):
        judge(first, second)


def test_two_processes_that_took_turns_for_a_moment_are_not_told_apart():
    """Seen on a busy machine: 24 rounds of 2 ms claimed that the other process took three times as long."""
    noise = np.random.default_rng(0).normal(1, 0.01, (2, 24))
    claim = paired_verdict(2 * noise[0], 6 * noise[1], baseline_name="here", candidate_name="next")
    assert claim.kind == "slower"
    short = drop_short_claim(claim, 0.3, 4.0, baseline_name="here", candidate_name="next")
    assert short.kind == "inconclusive"
    assert short.sentence == "Inconclusive: `next` against `here` needs 4 s of turns, has 0.3 s."
    assert (short.ratio, short.interval) == (claim.ratio, claim.interval)
    assert drop_short_claim(claim, 4.0, 4.0, baseline_name="here", candidate_name="next") == claim
    level = paired_verdict(2 * noise[0], 2 * noise[1])
    assert drop_short_claim(level, 0.3, 4.0, baseline_name="here", candidate_name="next") == level


@pytest.mark.parametrize("of", [2, 3, 10])
@pytest.mark.parametrize("judge", [paired_verdict, unpaired_verdict])
def test_calls_that_fill_a_queue_have_no_typical_one_however_many_they_are(judge: Any, of: int):
    random = np.random.default_rng(of)
    queue = np.tile([4.0, *[0.05] * (of - 1)], 60 // of) * np.exp(random.normal(0, 0.01, 60))
    plain = np.exp(random.normal(math.log(3.0), 0.01, 60))
    for first, second in ((plain, queue), (queue, plain), (queue, 2 * queue)):
        assert judge(first, second).kind == "inconclusive"
    assert judge(plain, np.tile([1.0, 2.0], 30) * plain).cause != "a queue", "a call of twice the time is no queue"
