"""Advice on agreement: defects, broken guards, flips, offsets, and figures that show nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.any_result import with_checks
from support.example_ladder import climbed
from support.example_sameness import GUARD, YARDSTICKS, apart, check, dimension, exact, joints, verified, yardstick
from support.examples import scaled
from support.findings_results import compared, measured, put_on, result, rules, treated

from strobe.findings import sameness
from strobe.findings.rules import run
from strobe.kinds import advise
from strobe.results.agreement import Agreement
from strobe.results.answer import CompareResult, OptimizeResult
from strobe.results.ladder import Try

OURS = {
    "exact-treatment-broken", "guard-broken", "decisions-flip", "offset", "guard-blind", "drowned",
    "policy-ignores-its-input",
}  # fmt: skip


def variant(agreement: Agreement | None, **more: Any) -> CompareResult:
    """A comparison of 'bf16' with the policy as it is."""
    judged = compared("faster", candidate="bf16", baseline="as it is")
    judged = judged.model_copy(update={"agreement": agreement, "effect": "rounding", "guard": GUARD} | more)
    return result(
        measured({"policy": 100.0}, name="as it is"), measured({"policy": 50.0}, name="bf16", whole=50.0),
        of=CompareResult, comparisons=[judged], yardsticks=YARDSTICKS,
    )  # fmt: skip


def ladder(rms: float, **more: Any) -> OptimizeResult:
    """A ladder whose rungs all moved the actions so far."""
    made = climbed()
    made.yardsticks = YARDSTICKS
    for one in made.comparisons:
        one.agreement, one.guard, one.effect = apart(joints(rms)), GUARD, "rounding"
        for name, value in more.items():
            setattr(one, name, value)
    return made


def test_what_agrees_is_passed_over_in_silence():
    climb = ladder(0.004)
    assert climb.ladder is not None
    climb.ladder.guard = GUARD
    for made in (variant(apart(joints(0.004))), verified(), climb):
        assert not OURS & set(rules(made))


def test_an_exact_treatment_that_moves_the_actions_is_a_defect():
    broken = exact(3e-4, broken="rms 0.0003 σ, and reordered sums differ by 3e-07 σ: it is not exact")
    found = rules(verified(broken, check()))["exact-treatment-broken"]
    assert found.level == "warning"
    assert found.title == "Defect: padding=trimmed must not change the actions, and does"
    assert "apart by 3e-4 σ" in found.seen
    assert "Reordered sums move them by 3e-7 σ, 1.2e-6 σ at most, so it moves them 1,000 × as far." in found.seen
    assert "strobe optimize --skip=padding" in found.do
    assert "strobe verify --recipe=recipe.yaml --policy.type=act" in found.do
    assert "strobe 0.1.0, torch 2.11.0, lerobot 0.6.1" in found.do
    assert "joint_0, observation 3 again, action 18 of 20" in found.do
    assert "guard-broken" not in rules(verified(broken, check()))
    of_variant = rules(variant(apart(joints(3e-4)), effect="exact", guard="exact", broken="not exact"))
    assert "Take it out of the variant." in of_variant["exact-treatment-broken"].do


def test_a_defect_that_a_ladder_refused_is_told_with_the_way_round():
    made = ladder(0.004)
    assert made.ladder is not None
    made.ladder.tries.append(
        Try(treatment="prefix_cache=static, prefix_cache.part=x", rung=3, before_ms=120, outcome="guard",
            effect="exact", reason="guard: rms 0.3 σ, and reordered sums differ by 3e-07 σ: it is not exact",
            agreement=apart(joints(0.3)))
    )  # fmt: skip
    found = rules(made)["exact-treatment-broken"]
    assert "prefix_cache=static" in found.title
    assert found.do.startswith("Run the command without it: --skip=prefix_cache. ")
    assert "exact-treatment-broken" not in rules(ladder(0.004))


def test_of_a_ladder_the_first_rung_that_breaks_is_to_blame():
    made = ladder(0.3, effect="exact", guard="exact", broken="it is not exact")
    found = [one for one in advise(made) if one.rule == "exact-treatment-broken"]
    assert [one.title for one in found] == ["Defect: cameras=batched must not change the actions, and does"]


def test_a_broken_guard_is_told_with_its_limit():
    found = rules(variant(apart(joints(0.05)), broken="rms 0.05 σ > 0.02 σ"))["guard-broken"]
    assert found.level == "warning"
    assert found.title == "'bf16' breaks its guard: rms 0.05 σ > 0.02 σ"
    assert f"Allowed is {GUARD}." in found.seen
    assert "0.05 σ" in found.seen
    failed = check(agreement=None, broken="the call fails (with RTC): no such thing")
    assert "the call fails" in rules(verified(failed))["guard-broken"].seen
    assert len([one for one in advise(ladder(0.05, broken="rms 0.05 σ > 0.02 σ")) if one.rule == "guard-broken"]) == 1


def test_flips_are_told_by_dimension_and_share():
    found = rules(variant(apart(joints(0.004, gripper=0.0312)), broken="flips 0.0312 > 0"))["decisions-flip"]
    assert found.title == "'bf16' flips 3.1 % of the decisions of gripper"
    assert found.level == "warning"
    assert rules(variant(apart(joints(0.004, gripper=0.03)), guard="flips<=0.1"))["decisions-flip"].level == "info"


@pytest.mark.parametrize(("rms", "off", "fires"), [(0.04, -0.03, True), (0.04, -0.01, False), (0.005, -0.005, False)])
def test_a_dimension_that_is_always_off_is_told_in_its_own_units(rms: float, off: float, fires: bool):
    found = rules(variant(apart([dimension("x", rms, offset=off), dimension("y", 0.001)])))
    assert ("offset" in found) == fires
    if fires:
        assert found["offset"].title == "'bf16' shifts x by −0.3, always in the same direction"
        assert "−0.03 σ, of 0.04 σ RMS" in found["offset"].seen


def test_what_differs_on_purpose_is_not_judged_by_its_offset():
    guided = apart([dimension("x", 0.9, offset=-0.9)], on_purpose=True)
    assert not {"offset", "drowned"} & set(rules(variant(guided, guard="")))


@pytest.mark.parametrize(
    ("guard", "blind"),
    [
        ("cosine>=0.999", True), ("cosine>=0.999, success_drop<=0.1", True), ("cosine>=0.999, worst<=0.2", False),
        (GUARD, False), ("exact", False), ("exact, cosine>=0.9", False), ("", False),
    ],
)  # fmt: skip
def test_a_guard_of_a_cosine_alone_is_blind(guard: str, blind: bool):
    of_ladder = ladder(0.004)
    assert of_ladder.ladder is not None
    of_ladder.ladder.guard = guard
    for made in (variant(apart(joints(0.004)), guard=guard), verified(exact(), guard=guard), of_ladder):
        found = rules(made)
        assert ("guard-blind" in found) == blind
        if blind:
            assert "inverted gripper" in found["guard-blind"].why
            assert found["guard-blind"].level == "info"


def test_a_backbones_cosine_alone_is_blind_too():
    seen = Agreement(of="features", cosine=0.9995, largest_error=1, mean_error=1, observations=4, rms=2.0, worst=9.0)
    found = rules(variant(seen, guard="cosine>=0.999"))
    assert "factor" in found["guard-blind"].why
    assert "guard-blind" not in rules(variant(seen, guard="cosine>=0.999, rms<=0.1"))


def test_a_guard_that_was_not_judged_is_a_warning_that_says_what_is_missing():
    made = variant(Agreement(cosine=1, largest_error=0, mean_error=0, observations=4), guard="success_drop<=0.1")
    made.comparisons[0].unjudged = "success_drop is seen in paired episodes alone"
    found = rules(made)["guard-not-judged"]
    assert found.level == "warning"
    assert "paired episodes" in found.seen


@pytest.mark.parametrize(("rms", "effect", "fires"), [
    (0.41, "lossy", True), (0.39, "lossy", False), (0.9, "rounding", True), (0.9, "exact", False),
])  # fmt: skip
def test_a_treatment_that_drowns_what_the_policy_sees(rms: float, effect: str, fires: bool):
    found = rules(variant(apart(joints(rms)), effect=effect))
    assert ("drowned" in found) == fires
    if fires:
        assert "another observation by 0.8 σ" in found["drowned"].seen
        assert ("nearly as much" in found["drowned"].title) == (rms < 0.8)


def test_a_policy_that_does_not_look():
    made = verified(yardsticks=[yardstick("another observation", 9e-4)])
    found = rules(made)
    assert "9e-4 σ" in found["policy-ignores-its-input"].seen
    assert "drowned" not in found, "there is nothing to drown"
    assert "policy-ignores-its-input" not in rules(verified(yardsticks=[yardstick("another observation", 2e-3)]))


def test_what_a_ladders_guard_refused_is_told_in_spreads():
    made = ladder(0.004)
    assert made.ladder is not None
    made.ladder.tries[2].agreement = apart(joints(0.05, gripper=0.1))
    found = rules(made)["guard-refused"]
    assert "int8=true (RMS 0.05 σ, worst 0.2 σ in joint_0, 10 % of decisions flip)" in found.seen
    assert "σ, the spread of each action dimension" in found.do


def test_a_precision_is_judged_by_spreads_where_there_are_some():
    def precise(agreement: Agreement) -> CompareResult:
        made = variant(agreement)
        for measurement, name in zip(made.measurements, ("fp32", "bf16"), strict=True):
            measurement.traits = treated(put_on("precision", name))
        return made

    rule = "precision-bf16-inaccurate"
    far = rules(precise(apart(joints(0.021), cosine=0.99999)))[rule]
    assert far.title == "bf16 changes the outputs: the actions are 0.021 σ (RMS of the worst dimension) from as it is"
    assert "within 0.02 σ" in far.why
    assert rule not in rules(precise(apart(joints(0.019), cosine=0.9)))
    assert "cosine 0.0000" in rules(precise(apart(joints(0.001), cosine=0.0, not_finite=3)))[rule].title


@given(with_checks)
@settings(
    max_examples=scaled(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_no_rule_fails_on_any_agreement(made: Any):
    for finding in run(sameness.RULES, made):
        assert finding.rule != "rule-failed", finding.seen
