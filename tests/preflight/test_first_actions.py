"""The first action on the first frame of each episode, and the range of all predictions, of a policy by a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.turning_arm import ACTION, JOINTS, STATE, Frames, recording, subject
from support.suite.places import TESTS

from strobe.core.kinds import document
from strobe.core.report.document import Section
from strobe.core.runs import store
from strobe.loops.measure.rollout import quantiles
from strobe.loops.results.motion import FirstAction, FirstJump
from strobe.loops.results.rollout import JointSeam, RolloutResult
from strobe.open_loop import run as open_loop
from strobe.open_loop.results import OpenLoop
from strobe.preflight.findings.preflight import is_far
from strobe.preflight.lag import add_first_action, read_run

LOOK = open_loop.Frames(Path("unused"), seconds=120.0, most=12)
GOLDEN = TESTS / "golden"


def judge_frames(frames: Frames, **settings: Any) -> OpenLoop:
    return open_loop.judge_subject(subject(frames, **settings), LOOK, lambda _: None)[0]


@pytest.mark.parametrize("first", [0, 50])
def test_a_sound_policy_starts_as_the_demonstrations_do(first: int) -> None:
    frames = recording(first=first)
    jump = judge_frames(frames).first_jump
    assert jump is not None
    assert (jump.episodes, [joint.joint for joint in jump.joints], jump.unjudged) == (8, JOINTS, [])
    starts = np.arange(8) * 30
    recorded = np.abs(frames.whole[ACTION] - frames.whole[STATE])[starts, 0]
    pan = jump.joints[0]
    assert pan.recorded == pytest.approx(float(np.median(recorded)))
    assert pan.recorded_largest == pytest.approx(float(recorded.max()))
    assert pan.predicted == pytest.approx(pan.recorded, abs=0.2 * pan.spread)
    assert pan.ahead >= pan.recorded_largest
    assert not any(is_far(joint) for joint in jump.joints)


def test_a_policy_that_is_wired_to_other_statistics_jumps() -> None:
    frames = recording()
    far = {key: {of: np.asarray(value) * (1 if of == "std" else 4) + 200 for of, value in each.items()}
           for key, each in frames.meta.stats.items()}  # fmt: skip
    jump = judge_frames(frames, stats=far).first_jump
    assert jump is not None
    assert any(is_far(joint) for joint in jump.joints)


def test_ranges_are_of_the_actions_that_are_executed() -> None:
    frames = recording()
    result = judge_frames(frames)
    assert result.executed == result.chunk
    assert [own.name for own in result.ranges] == JOINTS
    for own, values in zip(result.ranges, frames.whole[ACTION].T, strict=True):
        assert own.low >= values.min() - 0.3 * values.std()
        assert own.high <= values.max() + 0.3 * values.std()
    made = subject(frames)
    made.policy.config.n_action_steps = 1  # type: ignore[assignment]
    (one, *_) = open_loop.judge_subject(made, LOOK, lambda _: None)[0].ranges
    assert result.ranges[0].low <= one.low <= one.high <= result.ranges[0].high
    assert one != result.ranges[0]


def test_a_state_of_other_dimensions_is_not_judged_and_ranges_are() -> None:
    frames = recording()
    frames.meta.features[STATE] = frames.meta.features[STATE] | {"names": [f"{name} of the base" for name in JOINTS]}
    result = judge_frames(frames)
    assert result.first_jump is not None
    assert result.first_jump.joints == []
    assert result.first_jump.unjudged == ["The first action: the state and the action have different dimensions."]
    assert len(result.ranges) == 4


def test_ctrl_c_on_the_first_frames_ends_it() -> None:
    def press(progress: object) -> None:
        if progress.done == 3:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    result = open_loop.judge_subject(subject(recording()), LOOK, press)[0]
    assert result.stopped
    assert result.first_jump is not None
    assert result.first_jump.episodes == 3
    assert "before the first frame" in (result.unjudged or "")


def test_a_runs_first_action_stands_beside() -> None:
    jump = judge_frames(recording()).first_jump
    assert jump is not None
    run = read_run(GOLDEN / "rollout")
    add_first_action(jump, run)
    assert "an earlier version of Strobe saved it" in jump.unjudged[0], "its answer has no first action"
    run.rollout.first_action = [FirstAction(joint="pan", at=1.0, sent=-2.5)]
    jump.unjudged.clear()
    add_first_action(jump, run)
    assert [joint.run for joint in jump.joints] == [3.5, None, None, None]
    assert jump.unjudged == []
    empty = FirstJump(joints=[joint.model_copy(update={"joint": "other"}) for joint in jump.joints])
    add_first_action(empty, run)
    assert "none of its joints" in empty.unjudged[0]


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
