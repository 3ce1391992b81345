"""Recordings of the simulators: what is in them, what ends them early, and what a user is told."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.suite import warm

from strobe.core.errors import UserError
from strobe.lerobot.quiet import priority_restored
from strobe.simulators import scripted
from strobe.simulators.recorder import Scripted, write
from strobe.simulators.scripted import record_pusht

# Looked for without importing it: MuJoCo must not be loaded before Strobe has said how it is to render.
renders = pytest.mark.skipif(
    importlib.util.find_spec("metaworld") is None
    or (sys.platform == "linux" and not any(map(ctypes.util.find_library, ("OSMesa", "EGL")))),
    reason="needs the extra 'metaworld' and OpenGL without a screen: libosmesa6 or libegl1",
)
FRAMES, IMAGE, SEED = 8, 64, 3


def one_number(frames: int = 99) -> Scripted:
    """Without images: written in no time. An episode's frames count up; it breaks off after ``frames``."""
    features = {"observation.state": {"dtype": "float32", "shape": (1,), "names": ["x"]}}

    def play(seed: int):
        for number in range(frames):
            yield {"observation.state": np.array([number], np.float32), "task": f"episode {seed}"}
        raise KeyboardInterrupt

    return Scripted("none", features, play)


class Still:
    """A source of noise that makes none."""

    def normal(self, *_: float) -> np.ndarray:
        return np.zeros(3)


def load(root: Path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset("local/test", root=root)


@pytest.fixture(scope="module")
def metaworld(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("metaworld") / "reach"
    return scripted.record_metaworld(root, 1, FRAMES, image=IMAGE, seed=SEED)


@pytest.mark.slow("whole episodes in MetaWorld")
@renders
def test_a_metaworld_recording_loads_in_lerobot(metaworld: Path) -> None:
    dataset = load(metaworld)
    assert (len(dataset), dataset.fps, dataset.num_episodes) == (FRAMES, 80, 1)
    frame: Any = dataset[FRAMES - 1]
    for camera in ("corner2", "topview"):
        image = frame[f"observation.images.{camera}"]
        assert image.shape == (3, IMAGE, IMAGE)
        assert image.std() > 0.05
    assert frame["observation.state"].shape == frame["action"].shape == (4,)
    assert frame["task"] == "Reach a goal position"
    assert len(list(metaworld.rglob("*.mp4"))) == 2


@pytest.mark.slow("whole episodes of a scripted expert")
@renders
def test_its_actions_are_the_experts_and_lead_to_its_states(metaworld: Path) -> None:
    frames: Any = load(metaworld).hf_dataset.with_format("numpy")
    world = scripted.open_metaworld("metaworld-reach-v3", ["corner2"], 16)
    raw = world.reset(SEED)
    for frame in frames:
        assert frame["observation.state"] == pytest.approx(raw[:4], abs=1e-6)
        still: Any = Still()
        wanted = scripted._act(world.expert, raw, still)
        assert frame["action"] == pytest.approx(wanted, abs=5 * scripted._NOISE)
        assert frame["action"][3] == wanted[3]
        raw, *_ = world.env.step(frame["action"])
    world.close()


@renders
def test_its_images_are_what_lerobots_environment_shows() -> None:
    world = scripted.open_metaworld("reach-v3", ["corner2"], 480)
    from lerobot.envs.metaworld import MetaworldEnv

    theirs = MetaworldEnv("reach-v3", obs_type="pixels_agent_pos")
    observation, _ = theirs.reset(seed=SEED)
    raw = world.reset(SEED)
    assert observation["agent_pos"] == pytest.approx(raw[:4])
    assert np.abs(observation["pixels"].astype(int) - world.images()["observation.images.corner2"]).max() <= 1
    theirs.close()
    world.close()


@renders
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "reech-v3"}, "did you mean 'reach-v3'"),
        ({"cameras": ["corner5"]}, "did you mean 'corner"),
        ({"cameras": []}, "at least one camera"),
        ({"cameras": ["corner2", "corner2"]}, "each once"),
    ],
)
def test_a_mistake_in_metaworld_is_one_clear_line(options, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        scripted.record_metaworld(tmp_path / "new", scene=scripted.Scene(**options))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_opengl_the_package_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(UserError, match=r"libosmesa6.*MUJOCO_GL=osmesa"):
        scripted.record_metaworld(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="a choice that only Linux has")
@renders
def test_a_renderer_that_does_not_work_is_one_line(tmp_path: Path) -> None:
    """In a process of its own: MuJoCo decides when it is imported. GLFW has no screen to open."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    arguments = ["record", "--env=metaworld", f"--root={tmp_path / 'new'}"]
    done = warm.run("-m", "strobe.core.cli.main", *arguments, env={**environment, "MUJOCO_GL": "glfw"})
    assert done.returncode == 2
    # A torch that is newer than torchao warns, in the form of its log.
    (line,) = [line for line in done.stderr.splitlines() if line.strip() and not re.match(r"W\d{4} .*torch/", line)]
    assert "libosmesa6" in line
    assert list(tmp_path.iterdir()) == []


def test_without_metaworld_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MUJOCO_GL", os.environ.get("MUJOCO_GL", "osmesa"))
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError, match=r"pip install 'strobe-lab\[metaworld\]'"):
        scripted.record_metaworld(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_recording_keeps_the_finished_episodes(tmp_path: Path) -> None:
    def start() -> Scripted:
        whole = one_number()
        return Scripted("none", whole.features, lambda seed: (one_number(2) if seed == 12 else whole).play(seed))

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "new", start, 5, 4, 10, seed=10)
    dataset = load(tmp_path / "new")
    assert (dataset.num_episodes, len(dataset)) == (2, 8)
    frame: Any = dataset[7]
    assert frame["task"] == "episode 11"


def test_an_interruption_before_the_first_episode_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "new", lambda: one_number(2), 1, 4, 10)
    assert list(tmp_path.iterdir()) == []


PRESSED = """
import signal
from strobe.simulators import recorder
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with recorder._defer_interrupt():
        signal.raise_signal(signal.SIGINT)
        print("written")
    print("not interrupted")
except KeyboardInterrupt:
    print("then interrupted")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


def test_ctrl_c_waits_until_an_episode_is_written() -> None:
    """In a process of its own, which alone the signal ends if this goes wrong."""
    done = warm.run("-c", PRESSED)
    assert done.stdout.splitlines() == ["written", "then interrupted"], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="this system knows no scheduling policies")
def test_an_encoder_that_makes_the_process_real_time_does_not_leave_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SVT-AV1 does for root, played here, because a user may not."""
    now = [os.SCHED_OTHER, os.sched_param(0)]
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: now[0])
    monkeypatch.setattr(os, "sched_getparam", lambda _: now[1])
    monkeypatch.setattr(os, "sched_setscheduler", lambda _, *given: now.__setitem__(slice(None), given))
    with priority_restored():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
        assert now[0] == os.SCHED_FIFO
    assert now[0] == os.SCHED_OTHER
    assert now[1].sched_priority == 0


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="this system knows no scheduling policies")
def test_a_recording_leaves_the_process_its_priority(tmp_path: Path) -> None:
    record_pusht(tmp_path / "set", 1, 3)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^cannot record into .*file/set: not a directory; name another folder"):
        record_pusht(tmp_path / "file" / "set", 1, 3)
