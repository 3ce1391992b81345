"""How many pairs would decide: by simulation, by exact power, and where no number of the planned ones can."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from strobe.evaluate.measure.betting import difference_sequence
from strobe.evaluate.measure.planning import (
    chance_disagreement,
    expected_pairs,
    fewest_pairs,
    fewest_pairs_apart,
    fixed_pairs,
    foresight,
    mcnemar_power,
)
from strobe.evaluate.measure.success_rates import decide, mcnemar_p


@pytest.mark.parametrize("margin", [0.05, 0.1, 0.3])
def test_the_fewest_pairs_are_those_with_which_the_verdict_first_can_come(margin):
    enough = fewest_pairs(margin)
    assert decide([0] * enough, margin).within_margin
    assert not decide([0] * (enough - 1), margin).within_margin


def test_the_fewest_pairs_that_can_show_a_difference():
    assert decide([1] * fewest_pairs_apart()).kind == "better"
    assert decide([1] * (fewest_pairs_apart() - 1)).kind == "undecided"
    assert fewest_pairs(0.02) > fewest_pairs(0.05) > fewest_pairs(0.1) > fewest_pairs_apart()


@pytest.mark.parametrize(("pairs", "difference", "disagreement"), [(12, -0.5, 0.6), (30, 0.2, 0.3), (4, -0.5, 0.6)])
def test_power_is_the_sum_over_all_outcomes(pairs, difference, disagreement):
    lost_share, won_share = (disagreement - difference) / 2, (disagreement + difference) / 2
    total = 0.0
    for lost in range(pairs + 1):
        for won in range(pairs + 1 - lost):
            if mcnemar_p(lost, won) <= 0.05 and (won - lost) * difference > 0:
                counts = [lost, won, pairs - lost - won]
                total += stats.multinomial.pmf(counts, pairs, [lost_share, won_share, 1 - disagreement])
    assert mcnemar_power(pairs, difference, disagreement) == pytest.approx(total, abs=1e-9)


def test_a_fixed_design_is_the_smallest_with_its_power():
    pairs = fixed_pairs(-0.25, 0.43, 0.8)
    assert mcnemar_power(pairs, -0.25, 0.43) >= 0.8 > mcnemar_power(pairs - 1, -0.25, 0.43)
    assert fixed_pairs(-0.25, 0.43, 0.95) > pairs
    assert fixed_pairs(-0.25, 0.31, 0.8) < pairs, "pairs that share more need fewer"


@pytest.mark.long
def test_what_is_expected_is_what_evaluations_come_to():
    expected = expected_pairs(-0.25, 0.43, margin=0.1, most=120, runs=300, seed=1)
    random = np.random.default_rng(2)
    stops = []
    for _ in range(60):
        low, high = difference_sequence(random.choice([-1, 0, 1], p=[0.34, 0.57, 0.09], size=120)).T
        shown = (high < 0) | (low > -0.1)
        stops.append(int(np.argmax(shown)) + 1 if shown.any() else 120)
    assert expected.pairs == pytest.approx(np.mean(stops), abs=4 * np.std(stops) / 60**0.5)
    assert expected.kinds["worse"] > 0.9
    assert expected.decided == pytest.approx(sum(expected.kinds.values()))
    assert expected == expected_pairs(-0.25, 0.43, margin=0.1, most=120, runs=300, seed=1)


@pytest.mark.long
def test_policies_that_do_the_same_are_seldom_called_different():
    expected = expected_pairs(0.0, 0.2, most=200, runs=300)
    assert expected.decided <= 0.05
    assert expected.pairs > 190
    sure = expected_pairs(0.0, 0.0001, margin=0.1, most=100, runs=50)
    assert sure.kinds["not worse by more than the margin"] == 1.0
    assert sure.pairs == pytest.approx(fewest_pairs(0.1), abs=2)


def test_it_is_said_beforehand_when_the_pairs_cannot_decide():
    few = foresight(16, 0.2)
    assert foresight(1, 0.2).startswith("1 pair cannot exclude")
    assert few.startswith("16 pairs cannot exclude a loss of 20 points, even if every pair ends alike: that takes 23.")
    assert "Separating 20 points near 80 % takes about " in few
    assert foresight(50, 0.2).startswith("50 pairs exclude a loss of 20 points if nearly all pairs end alike")
    assert foresight(50, 0.2, rate=0.1).endswith("end alike (23 or more)."), "nobody can lose 20 points of 10 %"
    assert "near 100 % takes about " in foresight(50, 0.2, rate=1.0)


def test_a_difference_takes_pairs_that_disagree():
    assert chance_disagreement(0.85, 0.6) == pytest.approx(0.43)
    for call in (lambda: fixed_pairs(0.3, 0.2), lambda: fixed_pairs(0.0, 0.2), lambda: expected_pairs(0.3, 0.2)):
        with pytest.raises(ValueError, match="difference"):
            call()
    for margin in (0.0, 5.0):
        with pytest.raises(ValueError, match="margin"):
            fewest_pairs(margin)
