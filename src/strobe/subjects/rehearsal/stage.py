"""lerobot-rollout's arguments, turned to an emulated arm and to cameras that replay."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from strobe.errors import UserError, install, nearest
from strobe.subjects.lerobot_flags import joined
from strobe.subjects.rehearsal import faults as f
from strobe.subjects.robot import calibration as cal
from strobe.subjects.robot.arm import EmulatedArm
from strobe.subjects.rollout_config import COMMAND, rollout_config

LIVE = "live"  # instead of a recording: the robot's own cameras
PLAYED = ("so100_follower", "so101_follower")
LED = ("so100_leader", "so101_leader")
_PATTERN_S = 2.0


@dataclass
class Plan:
    """A rehearsal as it was asked for, checked; nothing is started.

    Attributes:
        kept: lerobot-rollout's arguments without those that a rehearsal replaces.
        arms: "robot", and "teleop" where there is a leader: its calibration, and its file where it was found.
        cameras: flags of the replaying cameras by name, without a path where a test pattern is shown.
        shown: what the cameras show, in words.
    """

    kept: list[str]
    arms: dict[str, tuple[cal.Calibration, Path | None]]
    cameras: dict[str, dict[str, Any]]
    shown: str
    on_bus: list[f.BusFault] = field(default_factory=list)
    slow: list[f.SlowInference] = field(default_factory=list)
    busy: list[f.Busy] = field(default_factory=list)


@dataclass
class Stage:
    """A plan whose emulated arms run: the arguments that lerobot-rollout is given, and the arms by name."""

    arguments: list[str]
    arms: dict[str, EmulatedArm]


def plan(argv: Sequence[str], frames: Mapping[str, str], episode: int, faults: Sequence[str]) -> Plan:
    """Check ``argv``, and everything else that can be wrong before something starts.

    Args:
        argv: lerobot-rollout's arguments.
        frames: recordings (a video, or a LeRobotDataset's folder, or 'live') by camera; '' is for all others.
        episode: of a dataset.
        faults: as `faults.planned` reads them.

    Raises:
        UserError: a package that is not installed; what `rollout_config` refuses; a robot that cannot be emulated; a
            camera or a recording that is not there; a fault that is none; a calibration file that is none.
    """
    if find_spec("scservo_sdk") is None:
        raise UserError(f"LeRobot's driver of SO arms is not installed: {install('robot')}")
    argv = with_port(argv)
    config = rollout_config(argv)
    robot, teleop = config.robot, getattr(config, "teleop", None)
    assert robot is not None
    if robot.type not in PLAYED:
        raise UserError(f"--robot.type={robot.type}: a rehearsal can play {' and '.join(PLAYED)} only")
    if teleop is not None and teleop.type not in LED:
        raise UserError(f"--teleop.type={teleop.type}: a rehearsal can play {' and '.join(LED)} only")
    arms = {"robot": _calibration(robot, "robots", "so_follower")}
    if teleop is not None:
        arms["teleop"] = _calibration(teleop, "teleoperators", "so_leader")
    eyes: dict[str, Any] = dict(getattr(robot, "cameras", {}))
    for name in frames:
        if name and name not in eyes:
            raise UserError(f"--frames.{name}: the robot has no camera '{name}'; {nearest(name, eyes)}")
    ids = {name: joint.id for name, joint in arms["robot"][0].items()}
    planned = [f.planned(text, ids, list(eyes)) for text in faults]
    told, shown = {}, []
    for name, camera in eyes.items():
        source = frames.get(name, frames.get("", ""))
        if source == LIVE:
            told[name] = {LIVE: True}
            shown.append(f"{name}: the camera itself")
            continue
        if find_spec("lerobot_camera_strobe") is None:
            raise UserError("the package lerobot_camera_strobe, which replays cameras, is not installed: make env")
        told[name] = {"type": "strobe_replay", "fps": camera.fps, "width": camera.width, "height": camera.height}
        told[name] |= _recording(name, source, episode) | {"seed": len(told)}
        for fault in planned:
            if isinstance(fault, f.CameraFault) and fault.camera in (None, name):
                told[name] |= fault.fields()
        shown.append(f"{name}: {source or 'a test pattern'}")
    if any(LIVE in flags for flags in told.values()) and len({LIVE in flags for flags in told.values()}) > 1:
        raise UserError(f"--frames={LIVE} is for all cameras or for none")
    replaced = {"--robot.port", "--robot.cameras", "--teleop.port"}
    replaced |= {f"--{arm}.{name}" for arm in arms for name in ("id", "calibration_dir") if arms[arm][1] is None}
    if any(LIVE in flags for flags in told.values()):
        replaced.discard("--robot.cameras")
    return Plan(
        [argument for argument in argv if argument.partition("=")[0] not in replaced],
        arms,
        {name: flags for name, flags in told.items() if LIVE not in flags},
        "; ".join(shown) or "no cameras",
        [each for each in planned if isinstance(each, f.BusFault)],
        [each for each in planned if isinstance(each, f.SlowInference)],
        [each for each in planned if isinstance(each, f.Busy)],
    )


@contextlib.contextmanager
def staged(made: Plan, latency_ms: float) -> Iterator[Stage]:
    """Start the emulated arms of a plan, and end them with the block. Raises UserError where an arm cannot be made."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strobe-rehearsal-")))
        arguments, arms = list(made.kept), {}
        for name, (calibration, file) in made.arms.items():
            at_once = [each.fault for each in made.on_bus if each.when == "connect" and name == "robot"]
            arms[name] = stack.enter_context(EmulatedArm(calibration, latency_ms=latency_ms, faults=at_once))
            arguments.append(f"--{name}.port={arms[name].port}")
            if file is None:
                cal.write(calibration, folder / name / "rehearsal.json")
                arguments += [f"--{name}.id=rehearsal", f"--{name}.calibration_dir={folder / name}"]
        if made.cameras:
            told = {}
            for name, flags in made.cameras.items():
                shown = flags if "path" in flags else flags | {"path": str(_pattern(folder / f"{name}.mp4", flags))}
                told[name] = shown
            arguments.append(f"--robot.cameras={json.dumps(told)}")
        yield Stage(arguments, arms)


def _calibration(config: Any, kind: str, name: str) -> tuple[cal.Calibration, Path | None]:
    """The calibration that the arm would load, and its file; a plausible one and None where there is no file."""
    from lerobot.utils.constants import HF_LEROBOT_CALIBRATION

    folder = config.calibration_dir or HF_LEROBOT_CALIBRATION / kind / name
    file = Path(folder) / f"{config.id}.json"
    return (cal.read(file), file) if file.is_file() else (cal.so101(), None)


def _recording(camera: str, source: str, episode: int) -> dict[str, Any]:
    """The replaying camera's flags for ``source``."""
    if not source:
        return {}
    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(f"--frames: there is no {path}")
    found: dict[str, Any] = {"path": str(path.absolute()), "episode": episode}
    if path.is_dir():
        info = path / "meta" / "info.json"
        if not info.is_file():
            raise UserError(f"--frames: {path} is no LeRobotDataset (it has no meta/info.json), and no video")
        features = json.loads(info.read_text()).get("features", {})
        videos = [key for key, one in features.items() if one.get("dtype") == "video"]
        named = [key for key in videos if key.rpartition(".")[2] == camera]
        if not named and len(videos) != 1:
            there = ", ".join(videos) or "none: its images are no videos"
            raise UserError(f"--frames.{camera}: {path} has no video of that name; it has {there}")
        found["camera"] = (named or videos)[0]
    return found


def _pattern(path: Path, flags: Mapping[str, Any]) -> Path:
    """A video of a bright square that moves over a grey ramp, which stands in for what a camera sees."""
    import av

    fps, width, height = int(flags["fps"]), int(flags["width"]), int(flags["height"])
    ramp = np.broadcast_to(np.linspace(40, 160, width, dtype=np.uint8)[None, :, None], (height, width, 3))
    frames = max(2, round(_PATTERN_S * fps))
    side = max(2, min(width, height) // 5)
    with av.open(str(path), "w") as out:
        made: Any = out.add_stream("mpeg4", rate=fps)
        made.width, made.height, made.pix_fmt = width, height, "yuv420p"
        for at in range(frames):
            image = ramp.copy()
            left, top = (int((size - side) * at / frames) for size in (width, height))
            image[top : top + side, left : left + side] = (240, 200, 60)
            out.mux(made.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(made.encode())
    return path


def with_port(argv: Sequence[str]) -> list[str]:
    """``argv``, each flag with its value, and with a port where none is named: a rehearsal has its own."""
    found = joined(argv, COMMAND)
    return found if any(one.startswith("--robot.port=") for one in found) else [*found, "--robot.port=emulated"]
