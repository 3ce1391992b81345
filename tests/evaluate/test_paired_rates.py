"""Exact intervals of one rate, Tango's interval of a paired difference, and McNemar's exact test."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint
from support.suite.example_count import scale_count

from strobe.evaluate.measure.success_rates import mcnemar_p, rate_interval, tango_interval, tango_score

counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 100)).filter(sum)


def score_by_search(lost: int, won: int, pairs: int, difference: float) -> float:
    """The score statistic with the chance of a loss found by searching the likelihood for its largest value."""

    def unlikely(losing: float) -> float:
        chances = losing, losing + difference, 1 - 2 * losing - difference
        seen = lost, won, pairs - lost - won
        return -sum(count * math.log(chance) if count else 0.0 for count, chance in zip(seen, chances, strict=True))

    low, high = max(0.0, -difference), (1 - difference) / 2
    found = optimize.minimize_scalar(
        unlikely, bounds=(low + 1e-13, high - 1e-13), method="bounded", options={"xatol": 1e-13}
    )
    variance = pairs * (2 * found.x + difference * (1 - difference))
    return (won - lost - pairs * difference) / math.sqrt(variance)


def test_a_rate_that_never_failed_is_not_taken_for_certain():
    # With all of n successes the exact lower end is (0.025)^(1/n).
    interval = rate_interval(10, 10)
    assert (interval.low, interval.high) == (pytest.approx(0.025**0.1), 1.0)
    assert rate_interval(0, 10).low == 0.0
    with pytest.raises(ValueError, match="0 episodes"):
        rate_interval(0, 0)
    with pytest.raises(ValueError, match="3 successes in 2"):
        rate_interval(3, 2)


@given(st.integers(1, 200), st.data())
def test_the_exact_interval_leaves_a_fortieth_in_each_tail(episodes, data):
    successes = data.draw(st.integers(0, episodes))
    interval = rate_interval(successes, episodes)
    assert interval.low <= successes / episodes <= interval.high
    if successes:
        assert stats.binom.sf(successes - 1, episodes, interval.low) == pytest.approx(0.025)
    if successes < episodes:
        assert stats.binom.cdf(successes, episodes, interval.high) == pytest.approx(0.025)


def test_tango_gives_what_others_published():
    # Airway reactivity of 21 children, 7 against 1: Fagerland, Lydersen and Laake, Statistics in Medicine 33, 2014.
    interval = tango_interval(7, 1, 21)
    assert (round(interval.low, 3), round(interval.high, 3)) == (-0.517, -0.026)


def test_tango_without_a_disagreement_is_what_the_score_test_gives_by_hand():
    # n d / (1 − d) = z², so d = z² / (n + z²).
    square = stats.norm.ppf(0.975) ** 2
    interval = tango_interval(0, 0, 50)
    assert interval.high == pytest.approx(square / (50 + square)) == -interval.low


@settings(max_examples=scale_count(60), deadline=None)
@given(counts, st.sampled_from([0.9, 0.95, 0.99]))
def test_tango_holds_what_the_score_test_does_not_reject(seen, level):
    lost, won, _ = seen
    pairs, limit = sum(seen), stats.norm.ppf((1 + level) / 2)
    interval = tango_interval(lost, won, pairs, level)
    assert -1 <= interval.low <= (won - lost) / pairs <= interval.high <= 1
    turned = tango_interval(won, lost, pairs, level)
    assert (turned.low, turned.high) == (pytest.approx(-interval.high), pytest.approx(-interval.low))
    for end, sign in ((interval.low, 1), (interval.high, -1)):
        if abs(end) < 0.999:
            assert sign * score_by_search(lost, won, pairs, end) == pytest.approx(limit, rel=1e-3)


@given(counts, st.floats(-0.98, 0.97))
def test_the_score_falls_as_the_difference_grows(seen, difference):
    lost, won, _ = seen
    pairs = sum(seen)
    assert tango_score(lost, won, pairs, difference) >= tango_score(lost, won, pairs, difference + 0.01)


def test_pairs_are_needed():
    for lost, won, pairs in ((0, 0, 0), (2, 2, 3), (-1, 0, 4)):
        with pytest.raises(ValueError, match="pairs"):
            tango_interval(lost, won, pairs)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_and_the_exact_interval_are_those_of_another_library(lost, won):
    theirs: Any = mcnemar([[3, lost], [won, 5]], exact=True)
    assert mcnemar_p(lost, won) == pytest.approx(theirs.pvalue)
    if lost + won:
        interval = rate_interval(won, lost + won)
        ends = proportion_confint(won, lost + won, method="beta")
        assert (interval.low, interval.high) == pytest.approx(ends)
