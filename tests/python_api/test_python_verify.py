"""`strobe.verify` in Python: whether one thing returns what another does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import strobe
from strobe.errors import UserError
from strobe.kinds import document

INPUTS = [np.full(3, value, np.float32) for value in (1.0, 2.0, 2.0)]


def same(x: Any) -> Any:
    return 2 * x


def test_the_same_numbers_hold_on_so_many_different_inputs():
    answer = strobe.verify(same, lambda x: x + x, INPUTS, guard="largest_error<=0")
    assert answer.outcome == "held"
    (check,) = answer.checks
    assert (check.agreement.observations, check.agreement.distinct) == (3, 2)
    sentences = document(answer.result).answers
    assert sentences[0] == "PASSED: the outputs of 'after' are those of same, within the guard (3 inputs, 2 different)."
    assert not any("can be wrong" in sentence for sentence in sentences)
    assert "lossy" not in answer._repr_html_()


def test_what_moves_them_too_far_is_broken():
    answer = strobe.verify(same, lambda x: 2 * x + (x == 2), INPUTS, guard="largest_error<=0.5")
    assert answer.outcome == "broken"
    assert answer.checks[0].agreement.largest_error == 1
    assert repr(answer).startswith("FAILED: the outputs of 'after' are not those of same. largest error 1 > 0.5.")
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
        (lambda x: x * np.float32("nan"), "3 numbers of 9|9 numbers are infinite"),
    ],
)
def test_one_that_fails_or_answers_otherwise_is_broken(after: Any, words: str):
    answer = strobe.verify(same, after, INPUTS, guard="cosine>=-1")
    assert answer.outcome == "broken"
    assert any(each in answer.checks[0].broken for each in words.split("|"))


def test_a_baseline_that_fails_is_refused():
    with pytest.raises(UserError, match="'before' failed on input 1 of 3: ZeroDivisionError"):
        strobe.verify(lambda x: 1 / 0, same, INPUTS, guard="cosine>=0")


def test_a_baseline_without_numbers_is_not_judged():
    answer = strobe.verify(lambda x: None, same, INPUTS, guard="cosine>=0")
    assert answer.outcome == "not judged"
    assert "before returns no numbers, but NoneType" in answer.checks[0].unjudged


def test_an_interrupt_keeps_the_inputs_that_were_looked_at():
    calls = iter(range(100))

    def interrupted(x: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return same(x)

    answer = strobe.verify(same, interrupted, INPUTS, guard="largest_error<=0")
    assert answer.status == "interrupted"
    assert answer.outcome == "not judged"
    assert answer.checks[0].agreement.observations == 2


def test_a_guard_is_needed():
    with pytest.raises(UserError, match="FIGURE>=LIMIT"):
        strobe.verify(same, same, INPUTS, guard="")
