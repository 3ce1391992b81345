"""strobe rollout on lerobot-record and lerobot-teleoperate as they are, with a robot and a leader without hardware."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
from lerobot.scripts import lerobot_record, lerobot_teleoperate
from support.fakes.watched_robot import Bus, Eye, watched_robot

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.findings.thresholds import Thresholds
from strobe.core.kinds import advise, document
from strobe.core.runs import store
from strobe.loops.registry import load_loop, split_command
from strobe.rollout.run import watch

RECORD, TELEOPERATE = "lerobot-record", "lerobot-teleoperate"
CALM = Thresholds(cpu_waited=1.0, camera_stall=1e3)  # whoever else runs on this machine


@pytest.fixture
def robot(monkeypatch):
    yield from watched_robot(monkeypatch)


def arguments(command: str, folder: Path, *more: str) -> list[str]:
    given = [
        "--robot.type=dummy", f"--robot.told={folder / 'told.jsonl'}", "--robot.id=test",
        f"--robot.calibration_dir={folder}", "--teleop.type=dummy_leader", "--teleop.id=lead",
        f"--teleop.calibration_dir={folder}",
    ]  # fmt: skip
    if command == RECORD:
        given += [
            "--dataset.repo_id=test/cubes", f"--dataset.root={folder / 'data'}", "--dataset.single_task=push",
            "--dataset.num_episodes=1", "--dataset.episode_time_s=1", "--dataset.push_to_hub=false",
            "--dataset.video=false", "--play_sounds=false",
        ]  # fmt: skip
    else:
        given += ["--teleop_time_s=1", "--fps=30"]
    return [*given, *more]


def read_log(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


@pytest.mark.slow("a recording in real time")
def test_a_recording_is_watched_and_its_true_rate_told(robot, tmp_path):
    before = dict(vars(lerobot_record))
    given = arguments(RECORD, tmp_path, "--dataset.num_episodes=2", "--dataset.reset_time_s=0.5")
    result = watch(given, tmp_path / "run.events", command=RECORD).result
    assert dict(vars(lerobot_record)) == before
    assert not robot.made[-1].is_connected
    rollout, sent = result.rollout, read_log(tmp_path)
    assert (result.status, rollout.command, rollout.engine) == ("complete", RECORD, "none")
    assert (rollout.inference, rollout.age, rollout.seams) == (None, None, [])
    assert rollout.pace is not None
    assert rollout.pace.ticks == len(sent), "ticks of both episodes and of the reset between them"
    assert rollout.pace.period.n == len(sent) - 3, "what lies between two episodes and a reset is no tick"
    frames = rollout.recording
    assert frames is not None
    info = json.loads((next(tmp_path.glob("data*")) / "meta" / "info.json").read_text())
    assert frames.frames == info["total_frames"]
    assert frames.stamped_s == pytest.approx((frames.frames - 2) / 30)
    # By the clock of the robot: the same frames took this long.
    moments = [line[0] for line in sent]
    rows = pandas.concat(map(pandas.read_parquet, sorted(tmp_path.glob("data*/data/*/*.parquet"))))
    first = int((rows["episode_index"] == 0).sum())  # on a busy machine an episode has fewer frames than the other
    episodes = [moments[:first], moments[-(frames.frames - first) :]]
    assert frames.real_s == pytest.approx(sum(each[-1] - each[0] for each in episodes), abs=0.15)
    paths = {tuple(part.path) for part in result.measurement("control tick").components}
    assert {("observation", "read motors"), ("observation", "camera front"), ("leader",), ("action", "write motors"),
            ("process observation",), ("record frame",)} <= paths  # fmt: skip
    keys = [section.key for section in document(result).sections]
    assert keys[:6] == ["pace", "first-action", "tracking", "cameras", "bus", "recording"]
    assert [joint.lag_ticks for joint in rollout.tracking] != [None] * 6, "the leader's joints count its answers"
    timed = importlib.util.find_spec("lerobot.utils.cycle_timer") is not None  # LeRobot's own, after 0.6.1
    assert ("Cadence summary" in (rollout.cadence or "")) == timed == ("cadence" in keys)
    assert "queue" not in keys


def test_a_slow_leader_is_found_and_the_stamps_are_wrong(robot, tmp_path):
    given = arguments(RECORD, tmp_path, "--teleop.delay_s=0.06")
    result = watch(given, tmp_path / "run.events", command=RECORD).result
    found = {finding.rule: finding for finding in advise(result, CALM)}
    assert set(found) == {"slow-leader", "frames-stamped"}
    assert "--dataset.fps=1" in found["slow-leader"].do, "60 ms a tick are no 17 Hz, and no 9"
    assert result.rollout.pace is not None
    assert result.rollout.pace.late == result.rollout.pace.ticks
    frames = result.rollout.recording
    assert frames is not None
    assert frames.real_s > 1.7 * frames.stamped_s


def test_a_slow_camera_of_a_recording_is_found_with_the_commands_own_flag(robot, tmp_path, monkeypatch):
    monkeypatch.setattr(Eye, "every", 3)
    given = arguments(RECORD, tmp_path, "--dataset.episode_time_s=2")  # enough ticks on a busy machine too
    result = watch(given, tmp_path / "run.events", command=RECORD).result
    found = [finding for finding in advise(result, CALM) if finding.rule == "repeated-frames"]
    assert len(found) == 2
    assert all("--dataset.fps=" in finding.do for finding in found)
    assert result.rollout.sentence.startswith("The control loop ran at ")


@pytest.mark.parametrize("driver", ["as it is", "clamps", "refuses", "returns nothing"])
def test_a_command_that_is_no_number_is_said_first_whatever_a_driver_makes_of_it(robot, tmp_path, monkeypatch, driver):
    module = sys.modules[robot.__module__]
    lead, send = module.DummyLeader.get_action, robot.send_action

    def get_action(self):
        return lead(self) | ({"joint_3.pos": float("nan")} if self._asked >= 4 else {})

    def send_action(self, action):
        if driver == "refuses" and math.isnan(action["joint_3.pos"]):
            raise ValueError("cannot convert float NaN to integer")
        given = action | {"joint_3.pos": max(-100.0, action["joint_3.pos"])} if driver == "clamps" else action
        sent = send(self, given)
        return None if driver == "returns nothing" else sent

    monkeypatch.setattr(module.DummyLeader, "get_action", get_action)
    monkeypatch.setattr(robot, "send_action", send_action)
    result = watch(arguments(TELEOPERATE, tmp_path), tmp_path / "run.events", command=TELEOPERATE).result
    found = result.rollout.not_finite
    assert found is not None
    assert (found.read, found.joints) == (0, ["joint_3.pos"])
    assert found.sent == (1 if driver == "refuses" else result.rollout.pace.ticks - 4 + 1)
    assert "sent the robot NaN or infinite numbers" in result.rollout.sentence
    assert advise(result)[0].rule == "not-finite"


SEEN = "the driver switched it off in each motor"


@pytest.mark.parametrize(
    ("fails", "torque", "found"),
    [
        ("never", f"off: {SEEN}", False),
        ("before torque", "on: nothing switched it off", True),
        ("in it", "not known: switching it off ended in ConnectionError: no answer of 3", True),
        ("without a driver's word", "not known: this robot's driver does not show it", False),
    ],
)
def test_the_answer_says_how_torque_was_left(robot, tmp_path, monkeypatch, fails, torque, found):
    def disable_torque(self, motors=None, num_retry=0):
        if fails == "in it":
            raise ConnectionError("no answer\nof 3")

    def disconnect(self):
        if fails == "before torque":
            raise ConnectionError("the camera is gone")
        if fails != "without a driver's word":
            self.bus.disable_torque(num_retry=5)
        self._connected = False

    if fails != "without a driver's word":
        monkeypatch.setattr(Bus, "disable_torque", disable_torque, raising=False)
    monkeypatch.setattr(robot, "disconnect", disconnect)
    result = watch(arguments(TELEOPERATE, tmp_path), tmp_path / "run.events", command=TELEOPERATE).result
    assert result.rollout.torque == torque
    assert [each.rule for each in advise(result)[:1] if each.rule == "torque-left-on"] == ["torque-left-on"] * found
    assert f"At the end, torque was {torque}." in document(result).answers


def test_a_teleoperation_is_watched(robot, tmp_path):
    before = dict(vars(lerobot_teleoperate))
    result = watch(arguments(TELEOPERATE, tmp_path), tmp_path / "run.events", command=TELEOPERATE).result
    assert dict(vars(lerobot_teleoperate)) == before
    assert not robot.made[-1].is_connected
    rollout = result.rollout
    assert rollout.pace is not None
    assert (rollout.command, rollout.pace.asked_hz, rollout.recording) == (TELEOPERATE, 30, None)
    assert rollout.pace.ticks == len(read_log(tmp_path)) > 10
    assert result.title == f"dummy: {rollout.pace.seconds:.0f} s of lerobot-teleoperate at 30 Hz"
    assert {"leader", "action"} <= {part.name for part in result.measurement("control tick").components}


@pytest.mark.parametrize(("command", "number"), [(RECORD, signal.SIGTERM), (TELEOPERATE, signal.SIGTERM),
                                                 (TELEOPERATE, signal.SIGINT)])  # fmt: skip
def test_a_signal_disconnects_the_robot_and_keeps_the_profile(robot, tmp_path, monkeypatch, command, number):
    def interrupt_at_tick(tick: int) -> None:
        if tick >= 12:  # again, should the first one get lost where Python must not raise
            os.kill(os.getpid(), number)

    monkeypatch.setattr(robot, "before", staticmethod(interrupt_at_tick))
    leave = robot.disconnect

    def disconnect(self):
        if number == signal.SIGTERM:
            os.kill(os.getpid(), number)  # an impatient sender must not disturb this
        leave(self)

    monkeypatch.setattr(robot, "disconnect", disconnect)
    longer = "--dataset.episode_time_s=60" if command == RECORD else "--teleop_time_s=60"
    previous = signal.getsignal(signal.SIGTERM)
    try:
        given = arguments(command, tmp_path, longer)
        assert main(["rollout", f"--output_dir={tmp_path / 'runs'}", "--", command, *given]) == 130
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert not robot.made[-1].is_connected
    (folder,) = (tmp_path / "runs").iterdir()
    kept = store.load(folder)
    assert kept.status == "interrupted"
    assert 12 <= len(read_log(tmp_path)) <= 14


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lerobot-recrod"], "no loop is called 'lerobot-recrod': did you mean 'lerobot-record'?"),
        ([RECORD, "--robot.type=dummy"], "name the leader: --teleop.type=so101_leader --teleop.port=… (or another)"),
        ([TELEOPERATE, *arguments(TELEOPERATE, Path("x")), "--fsp=3"],
         "lerobot-teleoperate has no flag --fsp: did you mean '--fps'?"),
        ([TELEOPERATE, *arguments(TELEOPERATE, Path("x")), "--fps=0"], "--fps=0: must be above 0"),
    ],
)  # fmt: skip
def test_wrong_words_are_a_line_before_anything_is_connected(robot, words, said):
    def check() -> None:
        command, rest = split_command(words)
        load_loop(command).check(rest)

    with pytest.raises(UserError) as refused:
        check()
    assert str(refused.value) == said
    assert not robot.made
