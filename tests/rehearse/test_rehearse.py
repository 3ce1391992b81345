"""strobe rehearse: LeRobot's own loop and driver on emulated servos, faults on demand, and how the arm was left.

The driver waits a minute for an answer instead of 50 ms, by a clock that nobody sets, so that a busy machine is no
fault. Nothing here judges time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.utils.feature_utils import build_dataset_frame
from support.builders.arm_policy import save_act
from support.builders.broken_datasets import write_dataset
from support.suite.matrix import matrix
from support.suite.patience import BUSY

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.core.runs import store
from strobe.loops import rollout
from strobe.loops.event_log import read
from strobe.loops.files import EVENTS, OBSERVATIONS
from strobe.loops.observations import Observations
from strobe.rehearse import run as rehearsal
from strobe.rehearse import stage
from strobe.rehearse.emulator import calibration
from strobe.rehearse.faults import Busy, Planned, SlowInference, plan_fault
from strobe.rehearse.stage import RehearsalOptions
from strobe.replay.policy import fed_policy

pytest.importorskip("scservo_sdk", reason="Strobe's extra 'robot' is not installed")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux"),
    pytest.mark.usefixtures("patient_drivers"),
]

SIZE = 64
JOINTS = {name: joint.id for name, joint in calibration.so101().items()}
ARMS = {"robot": JOINTS}
CAMERAS = "{front: {type: opencv, index_or_path: 0, fps: 30, width: 64, height: 64}, "
CAMERAS += "wrist: {type: opencv, index_or_path: 1, fps: 30, width: 64, height: 64}}"


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    save_act(folder, SIZE, SIZE)
    return folder


def arguments(act: Path, *more: str) -> list[str]:
    return [
        "--robot.type=so101_follower", "--robot.port=/dev/ttyACM0", f"--robot.cameras={CAMERAS}",
        f"--policy.path={act}", "--device=cpu", "--task=push", "--return_to_initial_position=false",
        "--play_sounds=false", "--duration=1.5", *more,
    ]  # fmt: skip


def test_the_whole_of_it_from_the_command_line(
    act: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("strobe.preflight.wiring.of_run.FRAMES_S", 1.0)
    write_dataset(tmp_path / "data", joints=[f"{name}.pos" for name in JOINTS])
    ours = ["rehearse", "--full", "--fault=corrupt,servo=6,count=2", f"--dataset.root={tmp_path / 'data'}"]
    theirs = ["--", *arguments(act, "--duration=1.5")]
    assert main([*ours, f"--output_dir={tmp_path / 'refused'}", *theirs]) == 1
    assert "Not started" in capsys.readouterr().out, "the statistics are not those of the data set"
    assert main([*ours, "--anyway", f"--output_dir={tmp_path / 'runs'}", *theirs]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    result: Any = store.load(run)
    assert result.wiring.on_frames.open_loop.frames > 0
    told = result.rollout.rehearsal
    assert result.rollout.robot == "so101_follower"
    assert told.holding == []
    assert [servo.joint for servo in told.arms["robot"]] == list(JOINTS)
    assert told.goals > 2
    assert result.rollout.pace.ticks > 2
    assert [joint.joint for joint in result.rollout.tracking] == [f"{name}.pos" for name in JOINTS]
    assert max(joint.error.max for joint in result.rollout.tracking) > 0.1, "servos move with their own speed"
    said = " ".join(capsys.readouterr().out.split())
    assert "strobe rehearse act on so101_follower" in said
    assert "JOINT TRACKING" in said
    assert "At the end, torque was off" in said
    assert "front: a test pattern" in " ".join(said.split())
    assert "6 gripper" in said
    assert "WHAT DID IT LEARN?" in said


@pytest.mark.slow("a rehearsal in real time, and its replay")
def test_a_rehearsal_with_random_weights_is_replayed_with_the_same_ones(
    act: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [one for one in arguments(act, "--policy.type=act") if "policy.path" not in one]
    assert main(["rehearse", "--observations", f"--output_dir={tmp_path / 'runs'}", "--", *flags]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    # RUN may stand behind the flags.
    assert main(["replay", "--output_dir", str(tmp_path / "replays"), str(run), "--draws=1"]) == 0
    (replayed,) = (tmp_path / "replays").iterdir()
    result: Any = store.load_answer(replayed)
    assert result.policy.calls > 0
    capsys.readouterr()
    header, events = read(run / EVENTS)
    observations = Observations(run / OBSERVATIONS)
    origin = next(event[1] for event in events if event[0] == "tick")
    inputs = fed_policy(header, [], observations, origin).inputs
    frame = build_dataset_frame(inputs.dataset_features, inputs.world.observe(0)(), prefix="observation")
    batch = prepare_observation_for_inference(frame, torch.device("cpu"), inputs.task, "so101_follower")
    with torch.inference_mode():
        action = inputs.postprocessor(inputs.policy.select_action(inputs.preprocessor(batch)))
    first = next(event[2] for event in events if event[0] == "values")
    # Observations are kept as JPEG, which moves the actions by about 1; other weights, by tens.
    torch.testing.assert_close(action[0], torch.tensor(first), rtol=0, atol=5)


@pytest.mark.slow("the documented command in real time", each_change=True)
def test_the_first_documented_command_needs_no_camera_and_no_checkpoint(tmp_path: Path) -> None:
    flags = ["--robot.type=so101_follower", "--policy.type=act", "--task=push", "--duration=4", "--device=cpu"]
    flags += ["--return_to_initial_position=false", "--play_sounds=false"]
    found = rehearsal.rehearse(flags, tmp_path / "events", RehearsalOptions()).result
    assert [camera.name for camera in found.rollout.cameras] == ["front"]
    assert found.rollout.rehearsal is not None
    # A busy machine may take seconds for the first call: one goal shows that the arm was told to move.
    assert found.rollout.rehearsal.goals >= 1


@pytest.mark.matrix
def test_a_tiny_policy_whose_config_has_no_tiny_size_is_loaded_as_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LeRobot makes a pi0.5 of three billion weights from the config of a tiny one."""
    from lerobot.policies.pi05 import modeling_pi05

    monkeypatch.setattr(modeling_pi05, "get_gemma_config", lambda _: pytest.fail("a size of LeRobot's own"))
    flags = ["--robot.type=so101_follower", "--policy.type=pi05", "--policy.num_inference_steps=2", "--task=push"]
    flags += ["--device=cpu", "--return_to_initial_position=false", "--play_sounds=false", "--duration=4"]
    found = rehearsal.rehearse(flags, tmp_path / "events", RehearsalOptions()).result
    assert found.rollout.rehearsal is not None
    assert found.rollout.rehearsal.goals >= 1
    assert found.subject.parameters is not None
    assert found.subject.parameters < 5e6


def test_a_first_call_that_outlasts_the_run_is_named(act: Path, tmp_path: Path) -> None:
    options = RehearsalOptions(faults=["inference,ms=1500,call=0"])
    said = r"first call took \d+\.\d s; give a longer --duration \(torque is off\)"
    with pytest.raises(UserError, match=said):
        rehearsal.rehearse(arguments(act, "--duration=1"), tmp_path / "events", options)


def test_damaged_answers_are_counted_where_the_driver_hides_them(act: Path, tmp_path: Path) -> None:
    options = RehearsalOptions(faults=["corrupt,servo=gripper,count=2,when=0"], latency_ms=0.2)
    found = rehearsal.rehearse(arguments(act), tmp_path / "events", options).result
    bus = found.rollout.bus
    assert bus is not None
    assert (bus.damaged, bus.lost, bus.stale) == (2, 0, 0)
    assert {one.rule for one in advise(found)} - BUSY == {"damaged-answers"}


def test_a_run_that_the_bus_ends_keeps_its_profile_and_says_why(act: Path, tmp_path: Path) -> None:
    faults = ["corrupt,servo=6,count=null,when=0.3"]
    found = rehearsal.rehearse(
        arguments(act, "--duration=60"), tmp_path / "events", RehearsalOptions(faults=faults)
    ).result
    assert found.status == "failed"
    assert "Incorrect status packet" in (found.rollout.error or "")
    assert {one.rule for one in advise(found)} - BUSY == {"motors-gone"}
    assert found.rollout.rehearsal is not None
    assert found.rollout.rehearsal.holding == []


def test_a_servo_in_error_at_the_end_leaves_torque_on_behind_it(act: Path, tmp_path: Path) -> None:
    faults = ["error-bits,servo=wrist_flex,when=end"]
    found = rehearsal.rehearse(arguments(act), tmp_path / "events", RehearsalOptions(faults=faults)).result
    assert found.rollout.rehearsal is not None
    left = found.rollout.rehearsal.holding
    assert "gripper" in left
    assert "shoulder_pan" not in left
    (finding,) = (one for one in advise(found) if one.rule == "torque-left-on")
    assert "gripper" in finding.found


@pytest.mark.skipif(importlib.util.find_spec("dynamixel_sdk") is None, reason="Dynamixel's SDK is not installed")
@pytest.mark.parametrize("robot", matrix(["koch_follower", "omx_follower"]))
def test_a_dynamixel_arm_moves_and_one_damaged_answer_ends_its_run(robot: str, act: Path, tmp_path: Path) -> None:
    """LeRobot's drivers of these arms ask once, those of SO arms three times."""
    flags = [one.replace("so101_follower", robot) for one in arguments(act, "--duration=60")]
    faults = ["corrupt,servo=elbow_flex,when=0,after=30"]
    found = rehearsal.rehearse(flags, tmp_path / "events", RehearsalOptions(faults=faults)).result
    told = found.rollout.rehearsal
    assert told is not None
    assert found.rollout.robot == robot
    assert told.goals > 2
    assert max(joint.error.max for joint in found.rollout.tracking) > 0.1, "servos move with their own speed"
    assert told.holding == []
    assert found.rollout.bus is not None
    assert (found.rollout.bus.damaged, found.rollout.bus.lost) == (1, 0)
    (finding,) = (one for one in advise(found) if one.rule not in BUSY)
    assert finding.rule == "motors-gone"
    assert "request this arm once" in finding.why


@pytest.mark.slow("a rehearsal of two arms in real time")
def test_two_arms_have_a_bus_and_faults_each(tmp_path: Path) -> None:
    eye = "{type: opencv, index_or_path: 0, fps: 30, width: 64, height: 64}"
    given = arguments(tmp_path, "--duration=3")
    flags = [one for one in given if not one.startswith(("--robot.", "--policy."))]
    flags += ["--robot.type=bi_so_follower", f"--robot.cameras={{top: {eye}}}", "--policy.type=act"]
    flags += [f"--robot.{side}_arm_config.cameras={{wrist: {eye}}}" for side in ("left", "right")]
    faults = ["error-bits,servo=wrist_flex,when=end,arm=left", "corrupt,servo=2,when=0,arm=right"]
    found = rehearsal.rehearse(flags, tmp_path / "events", RehearsalOptions(faults=faults)).result
    rollout, told = found.rollout, found.rollout.rehearsal
    assert told is not None
    assert {camera.name for camera in rollout.cameras} == {"top", "left_wrist", "right_wrist"}
    assert [(bus.arm, bus.damaged) for bus in rollout.buses] == [("left", 0), ("right", 1)]
    assert rollout.bus == rollout.buses[1]
    assert len(rollout.tracking) == 12
    assert told.holding == ["left wrist_roll", "left gripper"]
    assert {one.rule for one in advise(found)} - BUSY == {"damaged-answers", "torque-left-on"}


def test_a_frozen_picture_and_late_frames_are_told_of_their_camera(act: Path, tmp_path: Path) -> None:
    faults = ["camera-freeze,camera=front,when=0,seconds=100", "camera-late,camera=wrist,ms=300"]
    found = rehearsal.rehearse(
        arguments(act, "--duration=2"), tmp_path / "events", RehearsalOptions(faults=faults)
    ).result
    front, wrist = found.rollout.cameras
    assert front.frozen_frames > 2
    assert wrist.frozen_frames < front.frozen_frames / 2
    assert wrist.age is not None
    assert wrist.age.median > 300
    assert {"camera-frozen", "old-frames"} & {one.rule for one in advise(found)} - BUSY


def test_sigterm_ends_it_as_lerobot_does(act: Path, tmp_path: Path) -> None:
    process = os.getpid()

    def stop() -> None:
        log = tmp_path / "events"
        for _ in range(600):
            if log.is_file() and '"tick"' in log.read_text():
                break
            threading.Event().wait(0.1)
        os.kill(process, signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    found = rehearsal.rehearse(arguments(act, "--duration=120"), tmp_path / "events", RehearsalOptions()).result
    thread.join()
    assert found.status == "interrupted"
    assert found.rollout.rehearsal is not None
    assert found.rollout.rehearsal.holding == []


def test_lerobots_loop_is_given_back(act: Path, tmp_path: Path) -> None:
    before = rollout.loop.build_rollout_context, rollout.loop.create_strategy
    faults = ["error-bits,servo=2,when=connect"]
    with pytest.raises(UserError, match=r"Missing motor IDs.*torque is off"):
        rehearsal.rehearse(arguments(act), tmp_path / "events", RehearsalOptions(faults=faults))
    assert (rollout.loop.build_rollout_context, rollout.loop.create_strategy) == before


class Policy:
    """A policy that predicts three actions at a time."""

    def __init__(self) -> None:
        self._action_queue: list[int] = []

    def select_action(self) -> int:
        if not self._action_queue:
            self._action_queue = [1, 2, 3]
        return self._action_queue.pop()

    def predict_action_chunk(self) -> list[int]:
        return [1, 2, 3]


@pytest.mark.parametrize("each_tick", [True, False])
def test_only_calls_for_a_chunk_take_longer(each_tick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(rehearsal, "time", SimpleNamespace(sleep=slept.append))
    policy, slow = Policy(), [SlowInference(ms=40), SlowInference(ms=700, call=1), SlowInference(ms=0, spread_ms=9)]
    rehearsal.slow_down(policy, each_tick, slow, lambda run, number: 0.0)
    for _ in range(6 if each_tick else 2):
        policy.select_action() if each_tick else policy.predict_action_chunk()
    fixed, chance = [s for s in slept if s in (0.04, 0.7)], [s for s in slept if s not in (0.04, 0.7)]
    assert fixed == [0.04, 0.04, 0.7]
    assert all(0 <= each <= 0.009 for each in chance)


def test_calls_can_be_as_slow_as_in_another_run(tmp_path: Path, act: Path) -> None:
    main(["rehearse", f"--output_dir={tmp_path}", "--", *arguments(act)])
    (run,) = tmp_path.iterdir()
    drawn = rehearsal.draws([str(run)])
    calls = store.load(run).rollout.series.call_ms  # type: ignore[union-attr]
    assert drawn(str(run), 0) == calls[0]
    assert {drawn(str(run), number) for number in range(1, 50)} <= set(calls)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (["--fault=lats"], [], "did you mean 'late'"),
        (["--fault=late,secs=1"], [], "did you mean 'seconds'"),
        (["--fault=dead,servo=elbow"], [], "no servo 'elbow'"),
        (["--fault=dead,when=soon"], [], "'connect' or 'end'"),
        (["--fault=camera-gap,camera=top"], [], "no camera 'top'"),
        (["--fault=late,arm=left"], [], "no arm 'left'"),
        (["--fault=inference,ms=-5"], [], "0 or above"),
        (["--fault=inference,like=nowhere"], [], "nowhere"),
        (["--fault=busy"], [], "add processes=2 or threads=1"),
        (["--fault=late,0.06"], [], "not key=value"),
        (["--frames=nowhere.mp4"], [], "nowhere.mp4 does not exist"),
        (["--frames.top=x.mp4"], [], "no camera 'top'"),
        (["--frames=."], [], "is neither a LeRobotDataset"),
        (["--frames=live", "--frames.front=."], [], "for all cameras or for none|is neither a LeRobotDataset"),
        (["--dataset.root=nowhere"], [], "nowhere"),
        ([], ["--robot.type=hope_jr_arm"], "koch_follower, omx_follower and bi_so_follower only"),
        ([], ["--robot.tpye=x"], "no flag --robot.tpye"),
    ],
)
def test_wrong_input_is_one_line(
    ours: list[str], theirs: list[str], said: str, act: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given_args = arguments(act)
    if theirs and theirs[0].startswith("--robot.type"):
        given_args = [each for each in given_args if not each.startswith("--robot.type")]
    assert main(["rehearse", *ours, "--", *given_args, *theirs]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in error if line.startswith("strobe:")]) == 1
    import re

    assert re.search(said, error[-1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["scservo_sdk", "lerobot_camera_strobe"])
def test_a_package_that_is_missing_is_a_line(missing: str, act: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(UserError, match="not installed: "):
        stage.plan(arguments(act), RehearsalOptions())


@given(st.text(max_size=30) | st.from_regex(r"(late|busy|inference|camera-gap|dead),[a-z]{2,8}=[a-z0-9.]{0,4}"))
def test_any_text_is_a_fault_or_a_line(text: str) -> None:
    with contextlib.suppress(UserError):
        assert isinstance(plan_fault(text, ARMS, ["front"]), Planned)


def test_a_joints_name_is_its_servos_id() -> None:
    found: Any = plan_fault("dead,servo=gripper,when=end", ARMS, [])
    assert (found.fault.servo, found.when) == (6, "end")
    assert plan_fault("busy,threads=1", ARMS, []) == Busy(threads=1)


def test_a_users_own_calibration_is_what_the_servos_hold(act: Path, tmp_path: Path) -> None:
    mine = calibration.so101()
    calibration.write(mine, tmp_path / "mine.json")
    asked = arguments(act, "--robot.id=mine", f"--robot.calibration_dir={tmp_path}")
    made = stage.plan(asked, RehearsalOptions())
    assert (made.arms["robot"].calibration, made.arms["robot"].file) == (mine, tmp_path / "mine.json")
    with stage.stage_rehearsal(made, 1.0) as found:
        assert f"--robot.calibration_dir={tmp_path}" in found.arguments
        cameras = json.loads(next(one for one in found.arguments if "cameras" in one).partition("=")[2])
        assert cameras["front"]["type"] == "strobe_replay"
        assert Path(cameras["front"]["path"]).is_file()
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(UserError, match=r"mine\.json is not a calibration file"):
        stage.plan(asked, RehearsalOptions())
