"""The first action of a rollout, in its report."""

from __future__ import annotations

import pytest
from support.checks.golden import TESTS

from strobe.core.kinds import document
from strobe.core.report.document import Section
from strobe.core.runs import store
from strobe.loops.measure.rollout import quantiles
from strobe.loops.results.motion import FirstAction
from strobe.loops.results.rollout import JointSeam, RolloutResult


@pytest.fixture
def result() -> RolloutResult:
    answer = store.load_answer(TESTS / "golden" / "rollout")
    assert isinstance(answer, RolloutResult)
    return answer


def first_action(result: RolloutResult) -> Section | None:
    return next((section for section in document(result).sections if section.key == "first-action"), None)


def test_a_joint_stands_with_its_jump_beside_its_usual_step(result: RolloutResult):
    steps = quantiles([1.0, 2.0, 3.0])
    result.rollout.seams = [JointSeam(joint="lift.pos", step=steps, jump=steps)]
    result.rollout.first_action = [FirstAction(joint="lift.pos", at=-95.0, sent=-23.5)]
    section = first_action(result)
    assert section is not None
    assert section.table is not None
    (row,) = section.table.rows
    assert row.cells[:4] == ["lift.pos", "−95", "−23.5", "71.5"]
    assert row.cells[4] == f"{steps.p95:.3g}"


def test_positions_that_are_not_told_are_not_judged(result: RolloutResult):
    result.rollout.first_action = []
    section = first_action(result)
    assert section is not None
    assert section.table is None
    assert section.text == ["Not judged: the robot does not report the positions of all its joints."]


def test_a_run_of_an_earlier_version_says_nothing_of_it(result: RolloutResult):
    assert result.rollout.first_action is None
    assert first_action(result) is None
