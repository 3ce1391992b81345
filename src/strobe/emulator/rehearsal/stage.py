"""The arguments of a loop of LeRobot, turned to emulated arms and to cameras that replay."""

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

from strobe.datasets import finder
from strobe.emulator import calibration as cal
from strobe.emulator.arm import EmulatedArm
from strobe.emulator.rehearsal import faults as f
from strobe.emulator.rehearsal.arms import Played, arms_of, cameras_of, with_ports
from strobe.errors import UserError, install, nearest
from strobe.lerobot.flags import joined
from strobe.loops.registry import ROLLOUT, loop_of

LIVE = "live"  # instead of a recording: the robot's own cameras
_PATTERN_S = 2.0
_RECORDED = ("--dataset.root", "--dataset.push_to_hub", "--resume")


@dataclass
class Plan:
    """A rehearsal as it was asked for, checked; nothing is started.

    Attributes:
        kept: the command's arguments without those that a rehearsal replaces.
        arms: "robot", and "teleop" where there is a leader; two arms by their sides, see `arms_of`.
        cameras: flags of the replaying cameras by name, without a path where a test pattern is shown.
        places: of each camera, the flag of the dict that it is in, and its name there.
        shown: what the cameras show, in words.
        records: the command writes a data set.
    """

    kept: list[str]
    arms: dict[str, Played]
    cameras: dict[str, dict[str, Any]]
    places: dict[str, tuple[str, str]]
    shown: str
    records: bool = False
    on_bus: list[f.BusFault] = field(default_factory=list)
    slow: list[f.SlowInference] = field(default_factory=list)
    busy: list[f.Busy] = field(default_factory=list)


@dataclass
class Stage:
    """A plan whose emulated arms run: the arguments that the command is given, and the arms by name."""

    arguments: list[str]
    arms: dict[str, EmulatedArm]


def plan(
    argv: Sequence[str], frames: Mapping[str, str], episode: int, faults: Sequence[str], command: str = ROLLOUT
) -> Plan:
    """Check ``argv``, and everything else that can be wrong before something starts.

    Args:
        argv: the command's arguments.
        frames: recordings (a video, or a LeRobotDataset's folder, or 'live') by camera; '' is for all others.
        episode: of a dataset.
        faults: as `faults.planned` reads them.
        command: lerobot-rollout, lerobot-record or lerobot-teleoperate.

    Raises:
        UserError: a package that is not installed; what the command refuses; an arm that cannot be emulated; a camera
            or a recording that is not there; a fault that is none, or of a policy where the command asks none; a
            calibration file that is none.
    """
    argv = with_ports(joined(argv, command))
    config = loop_of(command).check(argv)
    robot, teleop = config.robot, getattr(config, "teleop", None)
    assert robot is not None
    arms = arms_of(robot, "robot") | (arms_of(teleop, "teleop") if teleop is not None else {})
    if any(find_spec(arm.kind.brand.sdk) is None for arm in arms.values()):
        raise UserError(f"LeRobot's driver of these servos is not installed: {install('robot')}")
    eyes = cameras_of(robot)
    for name in frames:
        if name and name not in eyes:
            raise UserError(f"--frames.{name}: the robot has no camera '{name}'; {nearest(name, eyes)}")
    ids = {name: {joint: told.id for joint, told in arm.calibration.items()} for name, arm in arms.items()}
    planned = [f.planned(text, ids, list(eyes)) for text in faults]
    slow = [each for each in planned if isinstance(each, f.SlowInference)]
    if slow and command != ROLLOUT:
        raise UserError(f"--fault=inference is for {ROLLOUT}: {command} asks no policy")
    told, shown = {}, []
    for name, (_, _, camera) in eyes.items():
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
    replaced = {f"--{arm.flag}.port" for arm in arms.values()}
    replaced |= {f"--{flag}" for name, (flag, _, _) in eyes.items() if LIVE not in told[name]}
    for part in _without_file(arms):
        replaced |= {f"--{part}.id", f"--{part}.calibration_dir"}
    records = getattr(config, "dataset", None) is not None
    replaced.update(_RECORDED if records else ())
    return Plan(
        [argument for argument in argv if argument.partition("=")[0] not in replaced],
        arms,
        {name: flags for name, flags in told.items() if LIVE not in flags},
        {name: (flag, short) for name, (flag, short, _) in eyes.items()},
        "; ".join(shown) or "no cameras",
        records,
        [each for each in planned if isinstance(each, f.BusFault)],
        slow,
        [each for each in planned if isinstance(each, f.Busy)],
    )


@contextlib.contextmanager
def staged(made: Plan, latency_ms: float) -> Iterator[Stage]:
    """Start the emulated arms of a plan, and end them with the block. Raises UserError where an arm cannot be made."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strobe-rehearsal-")))
        arguments, arms = list(made.kept), {}
        for name, arm in made.arms.items():
            at_once = [each.fault for each in made.on_bus if each.when == "connect" and each.arm == name]
            arms[name] = stack.enter_context(
                EmulatedArm(
                    arm.calibration,
                    models=arm.kind.models,
                    latency_ms=latency_ms,
                    led=arm.part == "teleop",
                    faults=at_once,
                )
            )
            arguments.append(f"--{arm.flag}.port={arms[name].port}")
        for part in _without_file(made.arms):
            for arm in made.arms.values():
                if arm.part == part:
                    cal.write(arm.calibration, folder / part / f"rehearsal{arm.suffix}.json")
            arguments += [f"--{part}.id=rehearsal", f"--{part}.calibration_dir={folder / part}"]
        told: dict[str, dict[str, Any]] = {}
        for name, flags in made.cameras.items():
            shown = flags if "path" in flags else flags | {"path": str(_pattern(folder / f"{name}.mp4", flags))}
            flag, short = made.places[name]
            told.setdefault(flag, {})[short] = shown
        arguments += [f"--{flag}={json.dumps(cameras)}" for flag, cameras in told.items()]
        if made.records:  # what nobody did must not be taken for a demonstration
            arguments += [f"--dataset.root={folder / 'dataset'}", "--dataset.push_to_hub=false"]
        yield Stage(arguments, arms)


def _without_file(arms: Mapping[str, Played]) -> list[str]:
    """Parts that lack a calibration file for one of their arms: "robot", "teleop"."""
    return list(dict.fromkeys(arm.part for arm in arms.values() if arm.file is None))


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
        with finder.reading(path):
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
