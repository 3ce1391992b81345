"""LeRobot's unmodified rollout: an SO-101 follower on emulated servos, two replaying cameras, a tiny ACT."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.arm_policy import save_act

from strobe.rehearse.emulator import calibration
from strobe.rehearse.emulator.arm import EmulatedArm
from strobe_servos import feetech as r

try:
    importlib.metadata.distribution("lerobot_camera_strobe")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("the plug-in is not installed: make env", allow_module_level=True)

# The driver gives an answer 50 ms and spins meanwhile: beside other tests on two cores answers come late, which is just
# what it takes for a fault. `STROBE_REAL_TIME=1 pytest -n 0` runs these on a machine with nothing else to do.
pytestmark = [
    pytest.mark.skipif(os.environ.get("STROBE_REAL_TIME") != "1", reason="in real time: STROBE_REAL_TIME=1, alone"),
    pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux"),
    pytest.mark.skipif(importlib.util.find_spec("scservo_sdk") is None, reason="Strobe's extra 'robot' is missing"),
]

SECONDS, FPS = 1, 30
WIDTH, HEIGHT = 640, 480


def save_video(path: Path) -> None:
    import av

    with av.open(str(path), "w") as out:
        made: Any = out.add_stream("mpeg4", rate=FPS)
        made.width, made.height, made.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for k in range(FPS):
            image = np.full((HEIGHT, WIDTH, 3), 8 * k, dtype=np.uint8)
            out.mux(made.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(made.encode())


def rollout(arm: EmulatedArm, folder: Path) -> subprocess.CompletedProcess[str]:
    camera = f"type: strobe_replay, path: {folder / 'seen.mp4'}, fps: {FPS}, width: {WIDTH}, height: {HEIGHT}"
    return subprocess.run(
        [
            sys.executable, "-m", "lerobot.scripts.lerobot_rollout", "--robot.type=so101_follower",
            f"--robot.port={arm.port}", "--robot.id=arm", f"--robot.calibration_dir={folder}",
            f"--robot.cameras={{front: {{{camera}}}, wrist: {{{camera}, seed: 1}}}}",
            f"--policy.path={folder / 'act'}", "--device=cpu", "--task=push the button", f"--fps={FPS}",
            f"--duration={SECONDS}", "--return_to_initial_position=false", "--play_sounds=false",
        ],
        capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip


# Nine seconds to import LeRobot and one of rollout: the one test that joins arm, cameras and command.
def test_a_rollout_moves_the_arm_and_lets_it_go(tmp_path: Path) -> None:
    save_act(tmp_path / "act", WIDTH, HEIGHT)
    save_video(tmp_path / "seen.mp4")
    calibration.write(calibration.so101(), tmp_path / "arm.json")
    with EmulatedArm(record=tmp_path / "packets.jsonl") as arm:
        ran = rollout(arm, tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert arm.ended is not None
    assert arm.ended.holding == []
    assert (arm.ended.corrupt, arm.ended.noise) == (0, 0)
    lines = [json.loads(line) for line in (tmp_path / "packets.jsonl").read_text().splitlines()]
    goals = [bytes.fromhex(line["parameters"]) for line in lines if line["instruction"] == "sync_write"]
    assert len(goals) > 5  # a busy machine has fewer ticks
    assert len(set(goals)) > 5
    assert {each[0] for each in goals} == {r.GOAL_POSITION.address}
    ids = [joint.id for joint in calibration.so101().values()]
    last = {each: goals[-1][3 + 3 * at : 5 + 3 * at] for at, each in enumerate(ids)}
    assert {id: r.GOAL_POSITION.decode(data) for id, data in last.items()} == {
        id: servo.goal for id, servo in arm.ended.servos.items()
    }
