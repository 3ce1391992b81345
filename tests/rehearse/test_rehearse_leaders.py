"""strobe rehearse on lerobot-teleoperate and lerobot-record: LeRobot's own leaders and followers on emulated servos.

Nothing here judges time.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from lerobot.scripts import lerobot_teleoperate
from lerobot.teleoperators.omx_leader import OmxLeader
from support.suite.patience import BUSY

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.core.runs import store
from strobe.rehearse.run import rehearse
from strobe.rehearse.stage import RehearsalOptions
from strobe.rollout.page import describe_rehearsal

pytest.importorskip("scservo_sdk", reason="Strobe's extra 'robot' is not installed")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux"),
    pytest.mark.usefixtures("patient_drivers"),
]

RECORD, TELEOPERATE = "lerobot-record", "lerobot-teleoperate"
DYNAMIXEL = pytest.mark.skipif(
    importlib.util.find_spec("dynamixel_sdk") is None, reason="Dynamixel's SDK is not installed"
)
CAMERA = "--robot.cameras={front: {type: opencv, index_or_path: 0, fps: 30, width: 64, height: 64}}"


def pair(brand: str, *more: str) -> list[str]:
    return [f"--robot.type={brand}_follower", f"--teleop.type={brand}_leader", *more]


@pytest.mark.slow("each pair of arms in real time")
@pytest.mark.parametrize(
    ("brand", "arms"),
    [
        pytest.param("so100", ["robot", "teleop"], marks=pytest.mark.matrix),
        ("so101", ["robot", "teleop"]),
        ("bi_so", ["left", "right", "teleop left", "teleop right"]),
        pytest.param("koch", ["robot", "teleop"], marks=[DYNAMIXEL, pytest.mark.matrix]),
        pytest.param("omx", ["robot", "teleop"], marks=DYNAMIXEL),
    ],
)
def test_a_follower_follows_its_leader(brand: str, arms: list[str], tmp_path: Path) -> None:
    for seconds in (1.5, 6, 24):  # a busy machine makes fewer ticks, in which a joint may show no motion
        given = pair(brand, f"--teleop_time_s={seconds}", "--fps=30")
        events = tmp_path / f"events {seconds}"
        result = rehearse(given, events, RehearsalOptions(), command=TELEOPERATE).result
        if sum(joint.lag_ticks is not None for joint in result.rollout.tracking) >= 6 * len(arms) / 2 - 1:
            break
    rollout, told = result.rollout, result.rollout.rehearsal
    assert told is not None
    assert (result.status, rollout.robot) == ("complete", f"{brand}_follower")
    assert "lerobot-teleoperate, rehearsed," in result.title
    assert list(told.arms) == arms
    assert told.holding == []
    tick = result.measurement("control tick")
    assert tick.traits.loop.leader == f"{brand}_leader"
    assert "leader, whose joints an emulated hand swung" in describe_rehearsal(told)[0]
    parts = {part.name for part in tick.components}
    assert "leader" in parts
    assert len(rollout.tracking) == 6 * len(arms) / 2
    moved = [joint for joint in rollout.tracking if joint.lag_ticks is not None]
    held = {one.joint for one in rollout.tracking} - {one.joint for one in moved}
    assert held <= {"gripper.pos"}, "a hand swings each joint of a leader but a gripper that a motor holds open"
    assert max(joint.error.max for joint in moved) > 0.1, "servos move with their own speed"


@pytest.mark.slow("a recording in real time")
def test_a_rehearsed_recording_leaves_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    pushed: list[Any] = []
    monkeypatch.setattr(LeRobotDataset, "push_to_hub", lambda *given, **named: pushed.append(given))
    root = tmp_path / "data"
    given = pair("so101", CAMERA, "--dataset.repo_id=me/cubes", "--dataset.single_task=push", f"--dataset.root={root}")
    given += ["--dataset.num_episodes=2", "--dataset.episode_time_s=0.7", "--dataset.reset_time_s=0.3"]
    given += ["--dataset.video=false", "--play_sounds=false"]
    runs = tmp_path / "runs"
    faults = ["--fault=corrupt,servo=6,arm=robot,when=0.1", "--fault=error-bits,servo=2,arm=robot,when=end"]
    assert main(["rehearse", f"--output_dir={runs}", *faults, "--", RECORD, *given]) == 1
    (run,) = runs.iterdir()
    result: Any = store.load(run)
    assert result.rollout.recording.frames > 4
    assert not root.exists()
    assert pushed == []
    assert "the recorded data set was temporary and is deleted" in result.notes
    assert "Overload" in result.rollout.error
    assert {one.rule for one in advise(result)} - BUSY == {"damaged-answers", "torque-left-on"}


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (
            [],
            ["robot_client", "--robot.type=so101_follower"],
            "can run lerobot-rollout, lerobot-record and lerobot-tele",
        ),
        ([], [TELEOPERATE, "--robot.type=so101_follower"], "name the leader:"),
        ([], [TELEOPERATE, "--robot.type=so101_follower", "--teleop.type=gamepad"], "omx_leader and bi_so_leader only"),
        ([], [TELEOPERATE, *pair("so101"), "--fsp=3"], "did you mean '--fps'"),
        (["--bench"], [TELEOPERATE, *pair("so101")], "has none"),
        (["--observations"], [TELEOPERATE, *pair("so101")], "cannot be replayed"),
        (["--fault=inference,ms=9"], [TELEOPERATE, *pair("so101")], "has no policy"),
        (["--fault=dead,arm=leader"], [TELEOPERATE, *pair("so101")], "no arm 'leader'"),
    ],
)
def test_wrong_input_is_one_line(
    ours: list[str], theirs: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rehearse", f"--output_dir={tmp_path / 'runs'}", *ours, "--", *theirs]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in error if line.startswith("strobe:")]) == 1
    assert said in error[-1]
    assert not (tmp_path / "runs").exists()


@DYNAMIXEL
def test_a_follower_that_does_not_connect_lets_the_leader_go(tmp_path: Path) -> None:
    """A leader's gripper holds torque; LeRobot lets go of it when nobody holds the leader any more."""
    before = lerobot_teleoperate.teleop_loop, OmxLeader.disconnect
    faults = ["corrupt,servo=11,when=connect"]
    with pytest.raises(UserError, match=r"Incorrect status packet.*torque is off"):
        rehearse(pair("omx"), tmp_path / "events", RehearsalOptions(faults=faults), command=TELEOPERATE)
    assert (lerobot_teleoperate.teleop_loop, OmxLeader.disconnect) == before
