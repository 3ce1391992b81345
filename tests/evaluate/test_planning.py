"""How many pairs would decide, and where no number of the planned ones can."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.evaluate.measure.planning import (
    chance_disagreement,
    fewest_pairs,
    fewest_pairs_apart,
    foresight,
    typical_pairs,
    typical_progress_pairs,
)
from strobe.evaluate.measure.success_rates import decide


@pytest.mark.parametrize("margin", [0.05, 0.1, 0.3])
def test_the_fewest_pairs_are_those_with_which_the_verdict_first_can_come(margin):
    enough = fewest_pairs(margin)
    assert decide([0] * enough, margin).within_margin
    assert not decide([0] * (enough - 1), margin).within_margin


def test_the_fewest_pairs_that_can_show_a_difference():
    assert decide([1] * fewest_pairs_apart()).kind == "better"
    assert decide([1] * (fewest_pairs_apart() - 1)).kind == "undecided"
    assert fewest_pairs(0.02) > fewest_pairs(0.05) > fewest_pairs(0.1) > fewest_pairs_apart()


def mean_stop(draw):
    """The mean number of pairs at which 40 evaluations first show a loss."""
    found = []
    for _ in range(40):
        values, pairs = draw(), 8
        while pairs < len(values) and decide(values[:pairs]).kind != "worse":
            pairs += 4
        found.append(pairs)
    return float(np.mean(found))


def test_what_a_plan_names_is_about_what_evaluations_come_to():
    random = np.random.default_rng(2)
    came = mean_stop(lambda: random.choice([-1, 0, 1], p=[0.34, 0.57, 0.09], size=600))
    assert came == pytest.approx(typical_pairs(-0.25, 0.43), rel=0.25)
    came = mean_stop(lambda: random.beta(0.7, 1.3, 600) - random.beta(1.3, 0.7, 600))
    assert came == pytest.approx(typical_progress_pairs(0.3), rel=0.25)
    assert typical_pairs(0.25, 0.43) == typical_pairs(-0.25, 0.43)
    assert typical_pairs(-0.25, 0.31) < typical_pairs(-0.25, 0.43), "pairs that share more need fewer"


def test_it_is_said_beforehand_when_the_pairs_cannot_decide():
    few = foresight(16, 0.2)
    assert foresight(1, 0.2).startswith("1 pair cannot exclude")
    assert few.startswith("16 pairs cannot exclude a loss of 20 points, even if every pair ends alike: that takes 23.")
    assert "Separating 20 points near 80 % takes about " in few
    assert foresight(50, 0.2).startswith("50 pairs exclude a loss of 20 points if nearly all pairs end alike")
    assert foresight(50, 0.2, rate=0.1).endswith("end alike (23 or more)."), "nobody can lose 20 points of 10 %"
    assert "near 100 % takes about " in foresight(50, 0.2, rate=1.0)
    both = foresight(50, 0.2, score="progress")
    assert both.index("20 points of progress takes about ") < both.index("20 points of success near 80 % takes about ")


def test_a_difference_takes_pairs_that_disagree():
    assert chance_disagreement(0.85, 0.6) == pytest.approx(0.43)
    for difference in (0.3, 0.0):
        with pytest.raises(ValueError, match="difference"):
            typical_pairs(difference, 0.2)
    for margin in (0.0, 5.0):
        with pytest.raises(ValueError, match="margin"):
            fewest_pairs(margin)
