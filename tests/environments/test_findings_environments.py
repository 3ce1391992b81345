"""Findings on two environments: where they part, settings, training."""

from __future__ import annotations

from typing import Any

from support.examples.findings_results import approve_findings, make_comparison, make_measurement, result

from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import GradientAgreement
from strobe.environments.results import Environment, PassDifference, StageDifference

VISION = StageDifference(kind="values", stage="vision", place="model.vision_tower given 0", distance=0.02,
                         rounding=1e-6, words="model.vision_tower given 0 differs by 0.02 of its length")  # fmt: skip
SETTING = StageDifference(kind="setting", stage="settings", place="policy.n_action_steps",
                          words="policy.n_action_steps is 50 on one side and 10 on the other")  # fmt: skip


def answer(*stages: StageDifference, settings: Any = (), broken: str = "", error: float | None = 0.0) -> CompareResult:
    gradient = GradientAgreement(loss=1.0, baseline_loss=1.0, loss_error=0.0, cosine=1.0, error=error)
    pair = make_comparison("no difference shown", baseline="here", candidate="next").model_copy(
        update={"guard": "rms<=0.02", "broken": broken, "gradient": gradient}
    )
    sides = [
        Environment(name=name, python="3.12.1", packages={"transformers": version}, threads=1)
        for name, version in (("here", "5.5.4"), ("next", "5.24.0"))
    ]
    one = PassDifference(candidate="next", observation=1, compared=9, stages=list(stages), settings=list(settings))
    made = result(
        make_measurement({}, name="here"), make_measurement({}, name="next"), of=CompareResult, comparisons=[pair]
    )
    return made.model_copy(update={"environments": sides, "passes": [one]})


def test_what_is_found() -> None:
    approve_findings("environments", {"first-stage-that-differs|settings-differ|trains-differently": {
        "nothing differs": ("", answer()),
        "a stage that breaks the guard": ("first-stage-that-differs", answer(VISION, broken="rms")),
        "a stage while the guard holds": ("first-stage-that-differs", answer(VISION)),
        "a setting that is read otherwise": ("settings-differ", answer(settings=(SETTING,))),
        "another gradient": ("trains-differently", answer(error=0.01)),
        "rounding of a gradient": ("", answer(error=1e-5)),
        "no gradient": ("", answer(error=None)),
    }})  # fmt: skip


def test_no_rule_on_parts_speaks_of_what_the_sides_timed_themselves() -> None:
    assert answer().advised_measurements() == ()
