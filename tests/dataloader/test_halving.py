"""Successive halving finds the best arm at a fraction of the cost, whatever the arms do."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.dataloader.throughput import halve


@dataclass(frozen=True)
class Known:
    value: float
    low: float
    high: float


def exactly(value: float) -> Known:
    return Known(value, value, value)


class Arms:
    """Arms of known worth; remembers what each was given."""

    def __init__(self, worth: dict[str, float], spread: float = 0.0) -> None:
        self.worth, self.spread = worth, spread
        self.spent = dict.fromkeys(worth, 0.0)

    def measure(self, arm: str, budget: float) -> Known | None:
        assert budget >= self.spent[arm], "a budget counts what was spent before"
        self.spent[arm] = budget
        value = self.worth[arm]
        return Known(value, value * (1 - self.spread), value * (1 + self.spread)) if value > 0 else None


worths = st.dictionaries(st.text(min_size=1, max_size=3), st.floats(1, 1e6), min_size=1, max_size=24)


@given(worths, st.floats(0, 0.5))
def test_the_best_arm_wins_and_rungs_cost_no_more_than_the_first(worth: dict[str, float], spread: float) -> None:
    arms = Arms(worth, spread)
    found = halve(list(worth), arms.measure, first=1, last=9)
    assert worth[found.remaining[0]] == max(worth.values())
    assert found.remaining == sorted(found.remaining, key=lambda arm: -worth[arm])
    # 1, then a third of the arms for 2 more, a ninth for 6 more; thirds are rounded up.
    assert sum(arms.spent.values()) <= 2.4 * len(worth) + 12
    assert found.reason


@given(worths)
def test_a_clear_winner_costs_nothing_more_than_the_first_rung(worth: dict[str, float]) -> None:
    arms = Arms(worth | {"winner": 2e6})
    found = halve([*worth, "winner"], arms.measure, first=1, last=8)
    assert found.remaining == ["winner"]
    assert set(arms.spent.values()) == {1}


@given(worths, st.data())
def test_arms_that_fail_never_win_and_are_let_go(worth: dict[str, float], data: st.DataObject) -> None:
    broken = data.draw(st.sets(st.sampled_from(list(worth))))
    arms = Arms({arm: 0.0 if arm in broken else value for arm, value in worth.items()}, spread=0.1)
    gone: list[str] = []
    found = halve(list(worth), arms.measure, first=1, last=4, dropped=gone.append)
    assert not set(found.remaining) & broken
    assert bool(found.remaining) == (len(broken) < len(worth))
    assert sorted([*gone, *found.remaining]) == sorted(worth), "every arm is let go once, or is left"


def test_the_search_ends_with_the_first_arm_that_is_good_enough() -> None:
    arms = Arms({"a": 1.0, "b": 5.0, "c": 9.0}, spread=0.1)
    found = halve(list("abc"), arms.measure, first=1, last=8, enough=lambda arm, known: known.low >= 4)
    assert found.remaining[0] == "b"
    assert arms.spent["c"] == 0
    assert found.good_enough
    assert "good enough" in str(found.reason)


def test_doubt_keeps_an_arm_in_the_search_and_certainty_does_not() -> None:
    worth = {"best": 100.0, "near": 96.0, "far": 50.0, "farther": 40.0}
    doubtful = halve(list(worth), Arms(worth, spread=0.05).measure, first=1, last=1)
    assert doubtful.remaining == ["best", "near"]
    certain = halve(list(worth), Arms(worth, spread=0.01).measure, first=1, last=1)
    assert certain.remaining == ["best"]


def test_practically_equal_arms_are_not_told_apart_at_any_cost() -> None:
    worth = {"a": 100.0, "b": 100.5, "c": 100.2, "d": 50.0}
    arms = Arms(worth, spread=0.01)
    found = halve(list(worth), arms.measure, first=1, last=64, tie=0.03)
    assert set(found.remaining) == {"b", "c"}
    assert max(arms.spent.values()) == 1
    assert "within 3 %" in str(found.reason)
    assert not found.good_enough


def test_nothing_to_search_and_budgets_that_make_no_sense() -> None:
    assert halve([], lambda arm, budget: exactly(1), first=1, last=1).remaining == []
    for first, last in ((0, 1), (2, 1), (-1, 1)):
        with pytest.raises(ValueError, match="budgets"):
            halve(["a"], lambda arm, budget: exactly(1), first=first, last=last)
