"""Confidence sequences by betting: valid at every number of pairs at once, and the verdicts that rest on them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.evaluate.measure.betting import (
    decisive_log_capital,
    difference_sequence,
    log_capital,
    mean_bounds,
    rate_sequence,
)
from strobe.evaluate.measure.success_rates import decide, paired_rates, success_rate

differences = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=60)
STEPS = (0.0, 0.5, 1.0)


@pytest.mark.parametrize("shares", [(0.3, 0.3, 0.4), (0.0, 0.95, 0.05), (0.5, 0.0, 0.5), (0.9, 0.1, 0.0)])
def test_a_bet_against_the_true_mean_is_fair(shares):
    """Over all outcomes of four pairs, weighed by their chances, a stake of 1 comes to 1."""
    mean = float(np.dot(shares, STEPS))
    for side in (1, -1):
        owned = 0.0
        for outcome in itertools.product(range(3), repeat=4):
            counts = [outcome.count(step) for step in range(3)]
            claim = mean if side > 0 else 1 - mean
            owned += math.prod(shares[step] for step in outcome) * math.exp(float(log_capital(*counts[::side], claim)))
        assert owned == pytest.approx(1.0)


def test_tasks_in_turn_with_different_means_leave_the_bet_no_better_than_fair():
    """Two tasks of which one is always lost and one always won: their mean is 1/2, and no bet on it pays."""
    for rounds in (1, 5, 100):
        assert float(log_capital(rounds, 0, rounds, 0.5)) <= 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.floats(0.01, 0.98))
def test_capital_falls_as_the_claim_grows(lowest, middle, highest, claim):
    """So that the claims that are shown wrong are all those up to one end."""
    assert log_capital(lowest, middle, highest, claim) >= log_capital(lowest, middle, highest, claim + 0.01) - 1e-9


@given(st.integers(0, 80), st.integers(0, 80), st.integers(0, 80), st.sampled_from([0.8, 0.95, 0.99]))
def test_each_end_is_the_last_claim_that_the_bets_have_shown_wrong(lowest, middle, highest, level):
    low, high = map(float, mean_bounds(lowest, middle, highest, level))
    for end, counts in ((low, (lowest, middle, highest)), (1 - high, (highest, middle, lowest))):
        if end > 0:
            assert log_capital(*counts, end) >= decisive_log_capital(level) - 1e-9, (
                "a claim is excluded that was not shown wrong"
            )
        assert log_capital(*counts, end + 1e-6) < decisive_log_capital(level), (
            "the interval is wider than it needs to be"
        )


@given(differences)
def test_every_interval_holds_the_mean_so_far_and_turns_with_the_sides(values):
    found = difference_sequence(values)
    means = np.cumsum(values) / np.arange(1, len(values) + 1)
    assert found.shape == (len(values), 2)
    assert (found[:, 0] <= means + 1e-12).all()
    assert (means - 1e-12 <= found[:, 1]).all()
    assert (np.abs(found) <= 1).all()
    turned = difference_sequence([-value for value in values])
    assert np.allclose(turned, -found[:, ::-1], atol=1e-6)


@given(differences, st.integers(1, 60))
def test_what_was_said_early_does_not_change_when_more_is_played(values, looked):
    """A resumed evaluation, and one that looks after each pair, say the same as one that looks once."""
    assert np.array_equal(difference_sequence(values)[:looked], difference_sequence(values[:looked]))


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_rate_is_within_its_sequence_unless_it_moved(outcomes):
    found = rate_sequence(outcomes)
    assert (found >= 0).all()
    assert (found <= 1).all()
    low, high = mean_bounds(outcomes.count(False), 0, outcomes.count(True))
    assert low <= np.mean(outcomes) <= high


@pytest.mark.parametrize("every", [1, 3, 7])
@pytest.mark.parametrize(
    "values", [[1] * 60 + [-1] * 400, [-1] * 500 + [1] * 500, [0] * 700 + [-1] * 5, [-1, 1, -1], [-1] * 13 + [1] * 5]
)
def test_no_interval_excludes_the_figure_beside_it_in_whatever_order_the_pairs_come(values, every):
    first, second = [value < 0 for value in values], [value > 0 for value in values]
    for looks in (every, None):
        one = paired_rates(first, second, margin=0.1, every=looks)
        assert one.decision.interval.low <= one.difference <= one.decision.interval.high
        if one.decision.kind == "worse":
            assert one.difference < 0
        if one.decision.kind == "better":
            assert one.difference > 0


@pytest.mark.long
@pytest.mark.parametrize(("lost", "won"), [(0.25, 0.25), (0.05, 0.05), (0.3, 0.1)])
def test_the_chance_of_ever_leaving_the_truth_out_is_at_most_a_twentieth(lost, won):
    random = np.random.default_rng(5)
    values = random.choice([-1, 0, 1], p=[lost, 1 - lost - won, won], size=(600, 150))
    lows, highs = np.cumsum(values < 0, axis=1), np.cumsum(values > 0, axis=1)
    middles, truth = np.arange(1, 151) - lows - highs, (1 + won - lost) / 2
    out = (log_capital(lows, middles, highs, truth) >= decisive_log_capital(0.95)).any(1)
    out |= (log_capital(highs, middles, lows, 1 - truth) >= decisive_log_capital(0.95)).any(1)
    assert out.mean() <= 0.05


def test_rounds_of_tasks_keep_the_level_where_single_pairs_would_not():
    values = [1] * 10 + [-1] * 10  # two tasks in turn, ten seeds each: no difference over a whole round
    assert decide(values[:10]).kind == "better", "taken as one task they would differ"
    assert decide(values, every=20).kind == "undecided"
    assert np.array_equal(difference_sequence(values, every=20)[:19], [[-1.0, 1.0]] * 19)


def test_a_policy_that_loses_is_called_worse_as_soon_as_it_shows():
    lost = decide([-1] * 12 + [0] * 30, margin=0.1)
    assert (lost.kind, lost.pairs, lost.within_margin) == ("worse", 8, False)
    assert decide([-1] * 7).kind == "undecided"
    assert decide([1] * 12).kind == "better"
    assert decide([]).kind == "undecided"
    assert (decide([]).interval.low, decide([]).pairs) == (-1.0, None)


def test_pairs_that_all_end_alike_exclude_a_loss_above_the_margin():
    assert decide([0] * 47, margin=0.1).kind == "undecided"
    alike = decide([0] * 60, margin=0.1)
    assert (alike.kind, alike.pairs, alike.within_margin) == ("not worse by more than the margin", 48, True)
    assert decide([0] * 60).kind == "undecided", "without a margin there is nothing to exclude"
    assert -0.1 < alike.interval.low < 0 < alike.interval.high


def test_a_small_loss_is_told_as_worse_though_the_margin_allows_it():
    small = decide(([-1] + [0] * 9) * 20, margin=0.3)
    assert (small.kind, small.within_margin) == ("worse", True)
    assert -0.3 < small.interval.low < small.interval.high < 0


@settings(deadline=None)
@given(differences, st.sampled_from([None, 0.05, 0.3]), st.sampled_from([1, 4]))
def test_a_verdict_has_held_since_the_pairs_that_it_names(values, margin, every):
    one = decide(values, margin, every=every)
    assert (one.pairs is None) == (one.kind == "undecided")
    if one.pairs is not None:
        assert one.pairs % every == 0
        assert {decide(values[:count], margin, every=every).kind for count in range(one.pairs, len(values) + 1)} == {
            one.kind
        }
        assert decide(values[: one.pairs - 1], margin, every=every).kind != one.kind


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.data())
def test_finished_results_are_judged_alike_in_whatever_order_they_come(first, data):
    second = data.draw(st.lists(st.booleans(), min_size=len(first), max_size=len(first)))
    order = data.draw(st.permutations(range(len(first))))
    one = paired_rates(first, second, 0.1, every=None)
    assert paired_rates([first[i] for i in order], [second[i] for i in order], 0.1, every=None) == one
    assert (one.decision.kind in ("worse", "better")) <= (one.p <= 0.05), "only where the exact test shows it too"


def test_pairs_are_counted_by_their_four_outcomes():
    first = [True] * 6 + [True] * 3 + [False] * 1 + [False] * 2
    second = [True] * 6 + [False] * 3 + [True] * 1 + [False] * 2
    one = paired_rates(first, second, margin=0.2)
    assert (one.both, one.lost, one.won, one.neither, one.pairs) == (6, 3, 1, 2, 12)
    assert one.difference == pytest.approx(-2 / 12)
    assert one.interval.low < one.difference < one.interval.high
    assert one.p == pytest.approx(0.625)
    assert (one.decision.kind, one.decision.margin) == ("undecided", 0.2)
    assert type(one).model_validate_json(one.model_dump_json()) == one
    rate = success_rate(np.array(second))
    assert (rate.successes, rate.episodes, rate.rate) == (7, 12, pytest.approx(7 / 12))


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="−1, 0 or 1"):
        difference_sequence([0, 2])
    with pytest.raises(ValueError, match="margin"):
        decide([0], margin=5)
    with pytest.raises(ValueError, match="12 outcomes against 3"):
        paired_rates([True] * 12, [True] * 3)
    with pytest.raises(ValueError, match="level"):
        difference_sequence([0], level=95)
    with pytest.raises(ValueError, match="round"):
        difference_sequence([0], every=0)
