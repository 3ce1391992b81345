"""`strobe.verify` in Python: whether one thing returns what another does."""

from __future__ import annotations

import functools
import random
import re
from datetime import datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import strobe
from strobe.core.errors import UserError
from strobe.core.kinds import document
from strobe.core.results.recipe import Recipe

INPUTS = [np.full(3, value, np.float32) for value in (1.0, 2.0, 2.0)]


class Fields(dict[str, Any]):
    def __init__(self, extra: float, **entries: Any) -> None:
        super().__init__(entries)
        self.extra = extra


class Hidden:
    def __init__(self, value: float) -> None:
        self._value = value

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.asarray(self._value)


def same(x: Any) -> Any:
    return 2 * x


def test_the_same_numbers_hold_on_so_many_different_inputs():
    answer = strobe.verify(same, lambda x: x + x, INPUTS, guard="largest_error<=0")
    assert answer.outcome == "held"
    (check,) = answer.checks
    assert (check.agreement.observations, check.agreement.distinct) == (3, 2)
    sentences = document(answer.result).answers
    assert sentences[:2] == [
        "PASSED: the outputs of `after` agree with `same` within the limits.",
        "3 inputs, 2 different.",
    ]
    assert not any("can be wrong" in sentence for sentence in sentences)
    assert "lossy" not in answer._repr_html_()


def test_what_moves_them_too_far_is_broken():
    answer = strobe.verify(same, lambda x: 2 * x + (x == 2), INPUTS, guard="largest_error<=0.5")
    assert answer.outcome == "broken"
    assert answer.checks[0].agreement.largest_error == 1
    assert repr(answer).startswith(
        "FAILED: the outputs of `after` differ from `same` beyond the limits.\n`after`: largest error 1, limit 0.5."
    )
    assert [finding.rule for finding in answer.findings] == ["guard-broken"]


def test_a_limit_in_spreads_is_not_judged_and_what_can_be_is_said():
    answer = strobe.verify(same, same, INPUTS, guard="rms<=0.02")
    assert answer.outcome == "not judged"
    (finding,) = answer.findings
    assert finding.rule == "guard-not-judged"
    assert "largest_error" in finding.do
    assert "rms" not in finding.do


def test_a_cosine_alone_is_blind_and_the_advice_can_be_followed():
    answer = strobe.verify(same, same, INPUTS, guard="cosine>=0.999")
    assert answer.outcome == "held"
    (finding,) = answer.findings
    assert finding.rule == "guard-blind"
    advised = finding.do.split("'")[1]
    assert strobe.verify(same, same, INPUTS, guard=advised).outcome == "held"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (lambda x: 1 / 0, "'after' failed on input 1 of 3: ZeroDivisionError"),
        (lambda x: x[:2], "input 1 gives an output of (2) in place of (3)"),
        (lambda x: "word", "input 1 gives an output without numbers (str) in place of (3)"),
        (lambda x: x * np.float32("nan"), "3 of 9 numbers|9 numbers are infinite"),
        (lambda x: {"action": x}, "input 1 gives an output of action (3) in place of (3)"),
    ],
)
def test_one_that_fails_or_answers_otherwise_is_broken(after: Any, words: str):
    answer = strobe.verify(same, after, INPUTS, guard="cosine>=-1")
    assert answer.outcome == "broken"
    assert any(each in answer.checks[0].broken for each in words.split("|"))


def test_a_baseline_that_fails_and_an_empty_guard_are_refused():
    with pytest.raises(UserError, match="FIGURE>=LIMIT"):
        strobe.verify(same, same, INPUTS, guard="")
    with pytest.raises(UserError, match="'before' failed on input 1 of 3: ZeroDivisionError"):
        strobe.verify(lambda x: 1 / 0, same, INPUTS, guard="cosine>=0")


def test_a_baseline_without_numbers_is_not_judged():
    answer = strobe.verify(lambda x: None, same, INPUTS, guard="cosine>=0")
    assert answer.outcome == "not judged"
    assert "before returns no numbers, but NoneType" in answer.checks[0].unjudged


def test_an_interrupt_keeps_the_inputs_that_were_looked_at():
    calls = iter(range(100))

    def interrupt_call(x: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return same(x)

    answer = strobe.verify(same, interrupt_call, INPUTS, guard="largest_error<=0")
    assert answer.status == "interrupted"
    assert answer.outcome == "not judged"
    assert answer.checks[0].agreement.observations == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0.0, 1.0), (True, False), (0, 1), ("reach", "grasp"), (None, 0.0),
        ([[0.0, 1.0], [2.0, 3.0]], [[0.0, 1.0], [2.0, 4.0]]), (SimpleNamespace(hand=0.0), SimpleNamespace(hand=1.0)),
        ({"hand": 0.0}.values(), {"hand": 1.0}.values()), (memoryview(b"ab"), memoryview(b"ac")),
        (np.array([np.zeros(2), 1.0], object), np.array([np.zeros(2), 2.0], object)),
        ({frozenset((0.0,))}, {frozenset((1.0,))}), (functools.reduce(lambda x, _: [x], range(20), "a"), "b"),
        (np.array([2**53]), np.array([2**53 + 1])), (torch.tensor([2**53]), torch.tensor([2**53 + 1])),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64)),
        (np.ones(1, "g"), np.ones(1, "g") + np.finfo("g").eps), (Decimal("0.1"), Decimal("0.2")),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[1, 0])),
        (Fields(1.0, hand=1.0), Fields(2.0, hand=1.0)), (datetime(2026, 1, 1), datetime(2026, 1, 2)),
        *[[functools.reduce(lambda x, _: {"d": x}, range(20), end) for end in (0.0, 1.0)]],
    ],
)  # fmt: skip
def test_whatever_an_output_holds_beside_its_array_is_compared(before: Any, after: Any):
    def answer(more: Any) -> Any:
        return lambda x: {"action": x, "more": more}

    assert strobe.verify(answer(before), answer(after), INPUTS, guard="largest_error<=1e-9").outcome == "broken"
    turned = strobe.verify(answer(before), lambda x: {"more": before, "action": x}, INPUTS, guard="largest_error<=0")
    assert turned.outcome == "held"


def test_what_cannot_be_compared_is_named():
    def answering(x: Any) -> Any:
        return {"action": x, "model": print, "policy_timing": {"infer_ms": random.random()}}

    answer = strobe.verify(answering, answering, INPUTS, guard="largest_error<=0")
    assert answer.outcome == "held", "one function on both sides is the same"
    assert "Not compared: policy_timing.infer_ms (a time)" in repr(answer)
    deep = functools.reduce(lambda x, _: [x], range(200), 1.0)
    for strange in (deep, Hidden(1.0), lambda: 1, [str(number) for number in range(12_000)]):
        other = functools.partial(lambda value, x: {"action": x, "more": value}, strange)
        answer = strobe.verify(other, lambda x: {"action": x, "more": Hidden(2.0)}, INPUTS, guard="largest_error<=0")
        assert answer.outcome != "held"
        assert strobe.verify(other, other, INPUTS, guard="cosine>=-1").outcome == (
            "held" if callable(strange) else "not judged"
        )


def test_inputs_that_are_one_and_outputs_that_are_all_nan_are_not_judged():
    for inputs, after in ((INPUTS[1:] * 6, same), (INPUTS, lambda x: x * np.float32("nan"))):
        answer = strobe.verify(after, after, inputs, guard="largest_error<=0")
        assert answer.outcome == "not judged"
        assert re.search("All 12 inputs are one|No number of either side is finite", repr(answer))
    for inputs in (INPUTS[0], INPUTS):
        assert strobe.verify(same, same, inputs, guard="largest_error<=0").outcome == "held"
    assert strobe.verify(lambda: INPUTS[0], lambda: INPUTS[0], [(), ()], guard="largest_error<=0").outcome == "held"


def test_what_an_object_keeps_between_its_resets_is_looked_at():
    class Decaying:
        def __init__(self, share: float) -> None:
            self.share, self.kept = share, np.zeros(3)

        def reset(self) -> None:
            self.kept = np.zeros(3)

        def infer(self, x: Any) -> Any:
            self.kept = self.share * self.kept + x
            return self.kept

    for inputs in (INPUTS, INPUTS[0]):
        answer = strobe.verify(Decaying(0.5), Decaying(0.6).infer, inputs, guard="largest_error<=1e-6")
        assert answer.outcome == "broken"
        one = Decaying(0.5)
        for other in (one, one.infer, Decaying(0.5)):
            assert strobe.verify(one, other, inputs, guard="largest_error<=0").outcome == "held"
    assert "3 inputs, 2 different. 4 more calls were made in a row" in repr(
        strobe.verify(one, one, INPUTS, guard="cosine>=1")
    )


def test_numbers_that_are_not_finite_and_the_same_are_no_error():
    masked = np.array([-np.inf, np.nan, 1.0, np.inf])
    answer = strobe.verify(lambda x: masked, lambda x: masked.copy(), INPUTS, guard="largest_error<=0, cosine>=0.999")
    assert answer.outcome == "held"
    assert "9 of 12 numbers are infinite or not a number, the same in both" in repr(answer)
    assert strobe.verify(lambda x: masked, lambda x: -masked, INPUTS, guard="largest_error<=9").outcome == "broken"


def test_two_equal_objects_with_a_state_are_the_same():
    class Counting:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, x: Any) -> Any:
            self.calls += 1
            return x + self.calls

    assert strobe.verify(Counting(), Counting(), INPUTS, guard="largest_error<=0").outcome == "held"


def test_a_policy_with_a_recipe_on_it_is_not_verified_against_itself():
    class Policy:
        def __init__(self) -> None:
            self.net = torch.nn.Linear(3, 3)

        def infer(self, x: Any) -> Any:
            return self.net(x)

    policy = Policy()
    recipe = Recipe(policy="", object="Policy", treatments=[{"precision": "bf16"}])
    treated = strobe.apply_recipe(recipe, policy)
    for before, after in ((policy, treated.infer), (lambda x: policy.infer(x), lambda x: treated.infer(x))):
        with pytest.raises(UserError, match="'before' and 'after' are one object with a recipe applied"):
            strobe.verify(before, after, torch.ones(3), guard="largest_error<=1")
