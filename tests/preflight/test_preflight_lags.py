"""Lags of a recording beside those of a rehearsal: measured alike, and a finding where they are far apart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.arm_policy import save_act
from support.builders.stage import JOINTS, LATE, Wired, make_wired
from support.suite.places import TESTS

from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.core.runs import store
from strobe.loops.files import EVENTS
from strobe.loops.measure.robot import lag_ticks
from strobe.preflight.findings.wiring import wiring_findings
from strobe.preflight.lag import measured_call_time, read_run
from strobe.preflight.run import Preflight, preflight

GOLDEN = TESTS / "golden"


@pytest.fixture
def stage(tmp_path: Path) -> Wired:
    folder = tmp_path / "trained"
    save_act(folder, 64, 64)
    return make_wired(folder, tmp_path)


def test_a_recordings_lag_is_found_joint_by_joint(stage: Wired):
    def still(values: np.ndarray, _: np.ndarray) -> np.ndarray:
        values[:, 5] = 3.0
        return values

    for name in ("action", "observation.state"):
        stage.change_vector(name, still)
    lag = preflight(Preflight(stage.policy, stage.dataset)).wiring.lag
    assert lag is not None
    assert [joint.joint for joint in lag.joints] == JOINTS
    for joint in lag.joints[:5]:
        assert joint.recorded == pytest.approx(LATE, abs=0.2)
        assert joint.interval is not None
    assert lag.joints[5].recorded is None
    assert any("gripper.pos: hardly moves" in reason for reason in lag.unjudged)
    assert any("age of the recording's frames" in reason for reason in lag.unjudged)


def test_names_that_action_and_state_do_not_share_are_not_judged(stage: Wired):
    stage.describe_feature("observation.state", names=[f"{name}.state" for name in JOINTS])
    lag = preflight(Preflight(stage.policy, stage.dataset)).wiring.lag
    assert lag is not None
    assert lag.joints == []
    assert any("no dimension of the same name" in reason for reason in lag.unjudged)


def test_a_data_set_without_its_frames_is_not_judged(stage: Wired):
    shutil.rmtree(stage.dataset / "data")
    lag = preflight(Preflight(stage.policy, stage.dataset)).wiring.lag
    assert lag is not None
    assert any("its frames were not read" in reason for reason in lag.unjudged)


def test_a_runs_lags_stand_beside_and_a_large_difference_is_a_finding(stage: Wired, tmp_path: Path):
    result = preflight(Preflight(stage.policy, stage.dataset, rollout=read_run(GOLDEN / "rollout")))
    assert result.wiring.lag is not None
    assert result.wiring.lag.run_fps
    assert result.wiring.lag.observations_run is not None
    lag = result.wiring.lag.joints[0]
    lag.run = LATE + 1.0
    assert "lags-differ" not in {finding.rule for finding in advise(result)}
    lag.run = LATE + 3.0
    (found,) = [finding for finding in advise(result) if finding.rule == "lags-differ"]
    assert found.title == "shoulder_pan.pos lags its actions by 5.0 control ticks, in the data by 2.0"


def test_lags_of_a_loop_that_did_not_hold_its_rate_are_not_judged(stage: Wired, tmp_path: Path):
    run = shutil.copytree(GOLDEN / "rollout", tmp_path / "slow")
    answer: Any = store.load_answer(run)
    answer.rollout.pace.held_hz = 0.8 * answer.rollout.pace.asked_hz
    store.save(answer, run)
    lag = preflight(Preflight(stage.policy, stage.dataset, rollout=read_run(run))).wiring.lag
    assert lag is not None
    assert {joint.run for joint in lag.joints} == {None}
    assert any(reason.startswith("Lags of the run: its loop ran at") for reason in lag.unjudged)


def test_a_runs_calls_are_held_against_its_chunk(stage: Wired):
    wiring = preflight(Preflight(stage.policy, stage.dataset, rollout=read_run(GOLDEN / "rollout"))).wiring
    answer: Any = store.load_answer(GOLDEN / "rollout")
    rollout = answer.rollout
    call = wiring.timing.call
    assert call is not None
    assert call.ms == rollout.inference.latency.median
    assert (call.fps, call.engine, call.run) == (rollout.fps, rollout.engine, str(GOLDEN / "rollout"))
    wiring.timing.chunk = rollout.inference.chunk
    assert "call-longer-than-chunk" not in {finding.rule for finding in wiring_findings(wiring)}
    wiring.timing.chunk = 30
    (found,) = [finding for finding in wiring_findings(wiring) if finding.rule == "call-longer-than-chunk"]
    assert found.level == "warning"
    assert f"in {GOLDEN / 'rollout'}" in found.found


def test_calls_of_a_server_are_not_judged():
    assert measured_call_time(read_run(GOLDEN / "rollout-remote")) is None


def test_another_answer_is_no_run():
    with pytest.raises(UserError, match="not a run of `strobe rollout`"):
        read_run(GOLDEN / "verify")
    assert not (GOLDEN / "verify" / EVENTS).exists()


def motion(seed: int, ticks: int = 300) -> np.ndarray:
    """A smooth random path, sampled ten times a tick."""
    rng = np.random.default_rng(seed)
    times = np.arange(ticks * 10) / 10
    phases, rates = rng.uniform(0, 6, 6), rng.uniform(0.05, 0.4, 6)
    return 10 * np.sin(np.outer(times, rates) + phases).sum(axis=1)


@pytest.mark.parametrize("late", [0, 1, 1.6, 3.3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_a_state_that_follows_late_is_measured_to_a_part_of_a_tick(late: float, seed: int):
    path, shift = motion(seed), round(late * 10)
    action, state = path[100::10], path[100 - shift : len(path) - shift : 10]
    noise = np.random.default_rng(seed).normal(0, 0.05, len(state))
    found = lag_ticks(action, state + noise)
    assert found == pytest.approx(late, abs=0.35)


def test_a_joint_that_rests_and_one_that_goes_its_own_way_are_not_judged():
    action = motion(1)[::10]
    assert lag_ticks(np.full(200, 40.0), np.full(200, 40.0)) is None
    assert lag_ticks(action, np.full_like(action, 3.0)) is None
    assert lag_ticks(action, np.random.default_rng(0).normal(size=len(action))) is None
    assert lag_ticks(action[:20], action[:20]) is None
