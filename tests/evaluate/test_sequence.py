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
    difference_bounds,
    gains_above,
    log_capital,
    log_capital_after_each,
    log_capital_of_gains,
)
from strobe.evaluate.measure.success_rates import decide, paired_rates, paired_scores, success_rate

# Of successes; of progress in stages, or in any share of the task.
differences = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=60) | st.lists(
    st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 1.0]) | st.floats(-1, 1), min_size=1, max_size=60
)
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


@given(differences, st.floats(-0.9, 0.9))
def test_progress_is_bet_on_as_success_is_and_in_whatever_order_it_comes(values, claim):
    gains = gains_above(values, claim)
    owned = log_capital_after_each(gains)
    assert owned[-1] == pytest.approx(float(log_capital_of_gains(gains)))
    assert owned[-1] == pytest.approx(float(log_capital_of_gains(gains_above(values[::-1], claim))))
    lost, alike, won = (sum(value == step for value in values) for step in (-1, 0, 1))
    if lost + alike + won == len(values):
        assert owned[-1] == pytest.approx(float(log_capital(lost, alike, won, (1 + claim) / 2)))
    assert log_capital_of_gains(gains_above(values, claim + 0.05)) <= owned[-1] + 1e-9


@given(differences, st.sampled_from([0.8, 0.95, 0.99]))
def test_each_end_is_the_last_claim_that_the_bets_have_shown_wrong(values, level):
    low, high = difference_bounds(values, level)
    for end, side in ((low, np.array(values)), (-high, -np.array(values))):
        if end > -1:
            shown = log_capital_of_gains(gains_above(side, end)) >= decisive_log_capital(level) - 1e-9
            assert shown, "a claim is excluded that was not shown wrong"
        wider = log_capital_of_gains(gains_above(side, end + 2e-6)) < decisive_log_capital(level)
        assert wider, "the interval is wider than it needs to be"


@given(differences)
def test_every_interval_holds_the_mean_so_far_and_turns_with_the_sides(values):
    low, high = difference_bounds(values)
    assert -1 <= low <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= high <= 1
    assert np.allclose(difference_bounds([-value for value in values]), (-high, -low), atol=1e-6)


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


@pytest.mark.parametrize("kind", ["lost and won", "stages", "beta", "shared starts"])
def test_the_chance_of_ever_leaving_the_truth_out_is_at_most_a_twentieth(kind):
    random, size = np.random.default_rng(5), (600, 150)
    values = {
        "lost and won": lambda: random.choice([-1, 0, 1], p=[0.3, 0.6, 0.1], size=size),
        "stages": lambda: (random.binomial(4, 0.3, size) - random.binomial(4, 0.3, size)) / 4,
        "beta": lambda: random.beta(0.3, 1.5, size) - random.beta(0.3, 1.5, size),
        "shared starts": lambda: 0.3 * random.random(size) * random.choice([-1, 1], size),
    }[kind]()
    truth = -0.2 if kind == "lost and won" else 0.0
    sides = [log_capital_after_each(gains_above(side * values, side * truth)) for side in (1, -1)]
    out = (np.maximum(*sides) >= decisive_log_capital(0.95)).any(axis=1)
    assert out.mean() <= 0.05


def test_rounds_of_tasks_keep_the_level_where_single_pairs_would_not():
    values = [1] * 10 + [-1] * 10  # two tasks in turn, ten seeds each: no difference over a whole round
    assert decide(values[:10]).kind == "better", "taken as one task they would differ"
    assert decide(values, every=20).kind == "undecided"
    unfinished = decide(values[:19], every=20).interval
    assert (unfinished.low, unfinished.high) == (-1.0, 1.0)


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


def test_progress_shows_what_success_hides():
    """Neither ever succeeds; one gets through three stages of four, the other through one or two."""
    first, second = [0.75] * 40, [0.25, 0.5] * 20
    progress = paired_scores(first, second, margin=0.1)
    assert (progress.decision.kind, progress.pairs, progress.difference) == ("worse", 40, pytest.approx(-0.375))
    assert progress.decision.pairs < 20
    assert paired_scores(second, first, margin=0.1).decision.kind == "better"
    assert paired_scores(first, first, margin=0.3).decision.kind == "not worse by more than the margin"
    assert paired_scores(first[:7], second[:7], every=5).pairs == 5


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
    for odd in ([0, 2], [float("nan")], [[0.0]]):
        with pytest.raises(ValueError, match="from −1 to 1"):
            decide(odd)
    with pytest.raises(ValueError, match="margin"):
        decide([0], margin=5)
    for compare in (paired_rates, paired_scores):
        with pytest.raises(ValueError, match="12 outcomes against 3"):
            compare([True] * 12, [True] * 3)
    with pytest.raises(ValueError, match="level"):
        decide([0], level=95)
    with pytest.raises(ValueError, match="round"):
        decide([0], every=0)
