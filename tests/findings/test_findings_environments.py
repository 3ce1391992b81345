"""Findings on two environments: where they part, settings, training."""

from __future__ import annotations

from support.findings_results import measured, result

from strobe.findings import environments
from strobe.findings.thresholds import DEFAULTS
from strobe.results.answer import CompareResult
from strobe.results.comparison import Comparison, GradientAgreement, Verdict
from strobe.results.data import Interval
from strobe.results.environments import Environment, PassDifference, StageDifference

VISION = StageDifference(
    kind="values",
    stage="vision",
    place="model.vision_tower given 0",
    distance=0.02,
    rounding=1e-6,
    words="model.vision_tower given 0 differs by 0.02 of its length",
)
SETTING = StageDifference(
    kind="setting",
    stage="settings",
    place="policy.n_action_steps",
    words="policy.n_action_steps is 50 on one side and 10 on the other",
)


def answer(one: PassDifference, *, broken: str = "", error: float | None = 0.0) -> CompareResult:
    verdict = Verdict(
        kind="no difference shown",
        ratio=1.0,
        interval=Interval(low=0.99, high=1.01),
        pairs=20,
        sentence="no difference",
    )
    gradient = GradientAgreement(loss=1.0, baseline_loss=1.0, loss_error=0.0, cosine=1.0, error=error)
    pair = Comparison(
        baseline="here",
        candidate="next",
        verdict=verdict,
        difference_ms=0.0,
        guard="rms<=0.02",
        broken=broken,
        gradient=gradient,
    )
    versions = ("5.5.4", "5.24.0")
    made = [
        Environment(name=name, python="3.12.1", packages={"transformers": version}, threads=1)
        for name, version in zip(("here", "next"), versions, strict=True)
    ]
    found = result(measured({}, name="here"), measured({}, name="next"), of=CompareResult, comparisons=[pair])
    return found.model_copy(update={"environments": made, "passes": [one]})


def pass_of(*stages: StageDifference, settings: tuple[StageDifference, ...] = ()) -> PassDifference:
    return PassDifference(candidate="next", observation=1, compared=9, stages=list(stages), settings=list(settings))


def found(given: CompareResult) -> dict[str, object]:
    return {finding.rule: finding for rule in environments.OF_COMPARISONS for finding in rule(given, DEFAULTS)}


def test_nothing_is_found_where_nothing_differs():
    assert found(answer(pass_of())) == {}


def test_no_rule_on_parts_speaks_of_what_the_sides_timed_themselves():
    given = answer(pass_of())
    assert given.advised() == ()


def test_the_first_stage_is_a_warning_where_the_guard_breaks_and_names_what_was_updated():
    (finding,) = environments.first_stage(answer(pass_of(VISION), broken="rms"), DEFAULTS)
    assert finding.level == "warning"
    assert "vision" in finding.title
    assert "transformers 5.5.4 against 5.24.0" in finding.do


def test_the_first_stage_is_information_where_the_guard_holds():
    (finding,) = environments.first_stage(answer(pass_of(VISION)), DEFAULTS)
    assert finding.level == "info"


def test_a_setting_that_is_read_otherwise_is_named_with_both_values():
    (finding,) = environments.settings_differ(answer(pass_of(settings=(SETTING,))), DEFAULTS)
    assert "50 on one side and 10 on the other" in finding.seen


def test_another_gradient_is_found_and_rounding_is_not():
    assert "trains-differently" in found(answer(pass_of(), error=0.01))
    assert "trains-differently" not in found(answer(pass_of(), error=1e-5))
    assert "trains-differently" not in found(answer(pass_of(), error=None))
