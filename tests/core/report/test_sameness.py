"""How alike actions are, as people read it: sentences, tables and plots, in σ with yardsticks, or by cosines alone."""

from __future__ import annotations

import pytest
from support.checks.approval import approve_cases
from support.checks.renderings import answer_text, whole
from support.examples import runs
from support.examples.ladder import make_climb
from support.examples.sameness import (
    GUARD,
    YARDSTICKS,
    check,
    dimension,
    exact,
    joints,
    make_agreement,
    make_verification,
    yardstick,
)

from strobe.core import kinds
from strobe.core.report import sameness, verify
from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import CompareResult, Held
from strobe.ladder.results import OptimizeResult


def make_comparison(agreement: Agreement, **more) -> CompareResult:
    """pi0.5 with RTC and without, where RTC moved the actions that far."""
    result = runs.rtc(yardsticks=YARDSTICKS)
    result.comparisons[0] = result.comparisons[0].model_copy(update={"agreement": agreement, **more})
    return result


def test_it_is_shown_as_it_was_approved():
    moved, cosine = make_agreement(joints(0.004)), runs.rtc()
    many, beyond = joints(0.004, count=10), "rms 0.04 σ > 0.02 σ"
    many[9].worst = 0.7
    sixteen = moved.model_copy(update={"observations": 74, "distinct": 16})
    missing = "only paired episodes show success_drop"
    cosine.comparisons[0].guard, cosine.comparisons[0].broken = "cosine>=0.999", "cosine 0.98712 < 0.999"
    units_of_its_own = make_agreement([dimension("x", 0.04, offset=-0.03), dimension("grip", 0.01, flips=0.25)])
    still = make_agreement(
        [dimension("x", 0.01, along=[0.0, 0.01, 0.02]), dimension("held", 0.0, along=[0.0, 0.0, 0.0])]
    )
    said = {
        "numbers that are none": make_comparison(make_agreement(joints(0.001), not_finite=3)),
        "interrupted": make_verification(status="interrupted"),
        "no check": make_verification(checks=[]),
        "the user's own guard": make_verification(guard="rms<=0.5"),
        "sixteen observations": make_verification(check(agreement=sixteen)),
        "sixteen observations, of which one breaks it": make_verification(check(agreement=sixteen,
                                                                                broken="rms 1 σ > 0.02 σ")),
        "not judged": make_verification(exact(), check(unjudged=missing)),
        "a broken check and one that was not judged": make_verification(
            exact(unjudged="nobody looked"), check(broken="rms 1 σ > 0.02 σ")),
        "failed": make_verification(exact(), check(rms=0.04, broken=beyond)),
    }  # fmt: skip
    shown = {
        "a guard that holds": make_comparison(
            make_agreement(joints(0.004, gripper=0.0125)), effect="rounding", guard=GUARD
        ),
        "a guard that is broken by flips": make_comparison(
            make_agreement(joints(0.04, gripper=0.031)), guard=GUARD, broken=beyond
        ),
        "a whole chunk is executed": make_comparison(make_agreement(joints(0.004), executed=20), guard="exact"),
        "many dimensions": make_comparison(make_agreement(many)),
        "a few dimensions": make_comparison(make_agreement(joints(0.004, count=2))),
        "a dimension in its own units": make_comparison(units_of_its_own),
        "not moved at all": make_comparison(make_agreement([dimension("x", 0.0)])),
        "some actions did not move": make_comparison(still),
        "a cosine alone": runs.rtc(),
        "a cosine that breaks a guard": cosine,
        "passed": make_verification(),
        "failed in the call": make_verification(exact(agreement=None, broken="the call fails: no such thing"), check()),
        "a ladder": spread_ladder(),
        "a ladder of cosines": make_climb(),
    }
    texts = {name: answer_text(one) for name, one in said.items()}
    approve_cases("sameness", texts | {name: whole(one, "agreement", "checks", "price") for name, one in shown.items()})


def test_many_dimensions_share_one_entry_of_the_legend():
    (plot,) = kinds.figures(make_comparison(make_agreement(joints(0.004, count=30))))[sameness.KEY]
    lines = [trace for trace in plot.data if trace.get("legendrank") is None]
    assert len(lines) == 31
    assert [trace["name"] for trace in lines if trace.get("showlegend", True)] == [
        "25 others", *(f"joint_{index}" for index in range(6)),
    ]  # fmt: skip


def test_a_broken_candidate_comes_before_those_that_hold():
    many = [Held(f"v{index}", "", make_agreement(joints(0.001)), None, GUARD, None) for index in range(9)]
    many[2] = Held("v2", "", make_agreement(joints(0.5)), None, GUARD, "RMS 0.5 σ, limit 0.02 σ")
    assert [one.name for one in sameness.focus(many)] == ["v2", "v7", "v8"]
    many[8] = Held("v8", "", make_agreement(joints(0.5)), None, GUARD, "RMS 0.5 σ, limit 0.02 σ")
    said = sameness.answers(many, YARDSTICKS)
    assert len(said) == 8
    assert [sentence.split()[0] for sentence in said[:6]] == [f"`v{index}`" for index in (0, 1, 2, 3, 4, 8)]
    assert said[-2] == "The table has 3 more variants."


def test_of_observations_that_all_hold_a_share_may_still_be_wrong():
    assert (1 - verify.max_missed_share(16)) ** 16 == pytest.approx(0.05)


def spread_ladder() -> OptimizeResult:
    result = make_climb()
    for one in result.comparisons[:2]:
        one.agreement, one.guard = make_agreement(joints(0.004, gripper=0.0125)), GUARD
    result.yardsticks = [yardstick("reordered sums", 3e-7)]
    return result
