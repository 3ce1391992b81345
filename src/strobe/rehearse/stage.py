"""The arguments of a loop of LeRobot, turned to emulated arms and to cameras that replay.

Who has no checkpoint gets a policy of random weights, made for the robot.
"""

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
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.robots import RobotConfig
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE
from lerobot.utils.import_utils import register_third_party_plugins

from strobe.core.errors import UserError, install, nearest
from strobe.core.families.registry import building
from strobe.core.untrusted import JsonObject, parse_json
from strobe.lerobot.datasets import finder
from strobe.lerobot.flags.lerobot_flags import join_flag_values, patched_arguments
from strobe.lerobot.flags.lerobot_flags import parse_config as parsed_flags
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.standins import stand_ins
from strobe.lerobot.quiet import quiet
from strobe.loops import rollout
from strobe.loops.header import MADE
from strobe.loops.registry import ROLLOUT, load_loop
from strobe.loops.rollout import COMMAND
from strobe.rehearse.emulator import calibration as cal
from strobe.rehearse.emulator.arm import EmulatedArm
from strobe.rehearse.emulator.arms import EmulatedPart, add_ports, configured_cameras, emulated_arms
from strobe.rehearse.faults import BusFault, Busy, CameraFault, SlowInference, plan_fault

_EYE = "--robot.cameras={front: {type: opencv, index_or_path: 0, fps: 30, width: 640, height: 480}}"
SOURCE = "random weights"  # the folder's name, which is where the report says that the policy is from


@dataclass
class _Body:
    robot: RobotConfig


def _robot(body: Sequence[str]) -> Any:
    with patched_arguments(body, COMMAND):
        return parsed_flags(body, _Body, lambda _: None, COMMAND).robot


@contextlib.contextmanager
def lend_policy(argv: Sequence[str]) -> Iterator[list[str]]:
    """Lend lerobot-rollout a policy of random weights where ``argv`` names a type instead of a checkpoint.

    ``--policy.type=KIND`` makes one for the robot's cameras and joints, tiny unless ``--policy.size=full``; further
    ``--policy.*`` flags are its config's. The same flags make the same weights. Yields the arguments that
    lerobot-rollout is to get. A robot without cameras gets one, ``front``.

    Raises:
        UserError: an unknown type or field, a type and a path, a robot that LeRobot does not know.
    """
    given = [argument.partition("=")[::2] for argument in join_flag_values(argv, COMMAND)]
    of_policy = {name.removeprefix("--policy."): value for name, value in given if name.startswith("--policy.")}
    if "type" not in of_policy:
        yield list(argv)
        return
    if "path" in of_policy:
        raise UserError("give --policy.path or --policy.type, not both: a checkpoint has its type in its config")
    made = [f"--policy.{name}={value}" for name, value in of_policy.items()]
    kind, size = of_policy.pop("type"), of_policy.pop("size", "tiny")
    if size not in ("tiny", "full"):
        raise UserError(f"--policy.size={size}: must be 'full' or 'tiny'")
    rest = [f"{name}={value}" for name, value in given if not name.startswith("--policy.")]
    body = [argument for argument in add_ports(rest) if argument.startswith("--robot.")]
    if not any(argument.startswith("--robot.type=") for argument in body):
        raise UserError("name the robot, such as --robot.type=so101_follower")
    register_third_party_plugins()  # cameras that a recorded run replays are one
    assert rollout.loop is not None  # robots and cameras register themselves when LeRobot's script is imported
    robot = _robot(body)
    if not configured_cameras(robot):  # LeRobot refuses most policies that see nothing
        rest.append(_EYE)
        robot = _robot([*body, _EYE])
    joints = sum(len(arm.kind.models) for arm in emulated_arms(robot, "robot").values())
    with tempfile.TemporaryDirectory(prefix="strobe-policy-") as temporary:
        folder = Path(temporary) / SOURCE
        device = [f"--device={value}" for name, value in given if name == "--device"]
        config = lerobot_policies.config_from_type(
            kind, [*device, *(f"--{name}={value}" for name, value in of_policy.items())]
        )
        config.input_features = {
            f"{OBS_IMAGES}.{name}": PolicyFeature(FeatureType.VISUAL, (3, camera.height, camera.width))
            for name, (_, _, camera) in configured_cameras(robot).items()
        } | {OBS_STATE: PolicyFeature(FeatureType.STATE, (joints,))}
        config.output_features = {ACTION: PolicyFeature(FeatureType.ACTION, (joints,))}
        loaded = lerobot_policies.load(config, inputs.synthetic(config), size=size)  # type: ignore[arg-type]
        with quiet():
            for part in (loaded.policy, loaded.preprocessor, loaded.postprocessor):
                part.save_pretrained(folder)
        (folder / MADE).write_text(json.dumps(made))
        del loaded
        # Some configs hold no tiny size: LeRobot makes such a policy again as it was made here.
        tiny = size == "tiny"
        with stand_ins(kind, random_weights=True, tiny=tiny), building(config, tiny):
            yield [*rest, f"--policy.path={folder}"]


LIVE = "live"  # instead of a recording: the robot's own cameras
_PATTERN_S = 2.0
_RECORDED = ("--dataset.root", "--dataset.push_to_hub", "--resume")


@dataclass(frozen=True, kw_only=True)
class RehearsalOptions:
    """The emulated parts of the robot, and the planted faults.

    Args:
        frames: recordings (a video, or a LeRobotDataset's folder, or 'live') by camera; '' is for all others.
        episode: of a dataset.
        faults: as `faults.planned` reads them.
        latency_ms: milliseconds that the emulated adapter adds to each answer; 1 is the least of a USB adapter.
    """

    frames: Mapping[str, str] = field(default_factory=dict)
    episode: int = 0
    faults: Sequence[str] = ()
    latency_ms: float = 1.0


@dataclass
class RehearsalPlan:
    """A rehearsal as it was requested, checked; nothing is started.

    Attributes:
        arguments: the command's, without those that a rehearsal replaces.
        arms: "robot", and "teleop" where there is a leader; two arms by their sides, see `arms_of`.
        cameras: flags of the replaying cameras by name, without a path where a test pattern is shown.
        places: of each camera, the flag of the dict that it is in, and its name there.
        shown: what the cameras show, in words.
        records: the command writes a data set.
    """

    arguments: list[str]
    arms: dict[str, EmulatedPart]
    cameras: dict[str, JsonObject]
    places: dict[str, tuple[str, str]]
    shown: str
    records: bool = False
    on_bus: list[BusFault] = field(default_factory=list)
    slow: list[SlowInference] = field(default_factory=list)
    busy: list[Busy] = field(default_factory=list)


@dataclass
class RehearsalStage:
    """A plan whose emulated arms run: the arguments that the command is given, and the arms by name."""

    arguments: list[str]
    arms: dict[str, EmulatedArm]


def plan(argv: Sequence[str], options: RehearsalOptions, command: str = ROLLOUT, config: Any = None) -> RehearsalPlan:
    """Check ``argv``, and everything else that can be wrong before something starts.

    Args:
        argv: the command's arguments.
        command: lerobot-rollout, lerobot-record or lerobot-teleoperate.
        config: LeRobot's config of ``argv``. None: it is parsed here.

    Raises:
        UserError: a package that is not installed; what the command refuses; an arm that cannot be emulated; a camera
            or a recording that is not there; an unknown fault; a policy fault for a command without policy; an invalid
            calibration file.
    """
    argv = add_ports(join_flag_values(argv, command))
    config = load_loop(command).check(argv) if config is None else config
    robot, teleop = config.robot, getattr(config, "teleop", None)
    assert robot is not None
    arms = emulated_arms(robot, "robot") | (emulated_arms(teleop, "teleop") if teleop is not None else {})
    if any(find_spec(arm.kind.brand.sdk) is None for arm in arms.values()):
        raise UserError(f"LeRobot's driver of these servos is not installed: {install('robot')}")
    eyes = configured_cameras(robot)
    ids = {name: {joint: servo.id for joint, servo in arm.calibration.items()} for name, arm in arms.items()}
    for name in options.frames:
        if name and name not in eyes:
            raise UserError(f"--frames.{name}: the robot has no camera '{name}'; {nearest(name, eyes)}")
    faults = [plan_fault(text, ids, list(eyes)) for text in options.faults]
    slow = [fault for fault in faults if isinstance(fault, SlowInference)]
    if slow and command != ROLLOUT:
        raise UserError(f"--fault=inference is for {ROLLOUT}: {command} has no policy")
    on_cameras = [fault for fault in faults if isinstance(fault, CameraFault)]
    cameras, shown = _replaying(eyes, options, on_cameras)
    replaced = {f"--{arm.flag}.port" for arm in arms.values()}
    replaced |= {f"--{flag}" for name, (flag, _, _) in eyes.items() if name in cameras}
    for part in _uncalibrated_parts(arms):
        replaced |= {f"--{part}.id", f"--{part}.calibration_dir"}
    records = getattr(config, "dataset", None) is not None
    replaced.update(_RECORDED if records else ())
    return RehearsalPlan(
        [argument for argument in argv if argument.partition("=")[0] not in replaced],
        arms,
        cameras,
        {name: (flag, short) for name, (flag, short, _) in eyes.items()},
        shown,
        records,
        [fault for fault in faults if isinstance(fault, BusFault)],
        slow,
        [fault for fault in faults if isinstance(fault, Busy)],
    )


def _replaying(
    eyes: Mapping[str, tuple[str, str, Any]], options: RehearsalOptions, faults: Sequence[CameraFault]
) -> tuple[dict[str, JsonObject], str]:
    cameras: dict[str, JsonObject] = {}
    shown = []
    for name, (_, _, camera) in eyes.items():
        source = options.frames.get(name, options.frames.get("", ""))
        if source == LIVE:
            shown.append(f"{name}: the camera itself")
            continue
        if find_spec("lerobot_camera_strobe") is None:
            raise UserError("the package lerobot_camera_strobe, which replays cameras, is not installed: make env")
        flags = {"type": "strobe_replay", "fps": camera.fps, "width": camera.width, "height": camera.height}
        flags |= _recording(name, source, options.episode) | {"seed": len(cameras) + 1}
        for fault in faults:
            if fault.camera in (None, name):
                flags |= fault.fields()
        cameras[name] = flags
        shown.append(f"{name}: {source or 'a test pattern'}")
    if cameras and len(cameras) < len(eyes):
        raise UserError(f"give --frames={LIVE} for all cameras or for none")
    return cameras, "; ".join(shown) or "no cameras"


@contextlib.contextmanager
def stage_rehearsal(made: RehearsalPlan, latency_ms: float) -> Iterator[RehearsalStage]:
    """Start the emulated arms of a plan, and end them with the block. Raises UserError where an arm cannot be made."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strobe-rehearsal-")))
        arguments, arms = list(made.arguments), {}
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
        for part in _uncalibrated_parts(made.arms):
            for arm in made.arms.values():
                if arm.part == part:
                    cal.write(arm.calibration, folder / part / f"rehearsal{arm.suffix}.json")
            arguments += [f"--{part}.id=rehearsal", f"--{part}.calibration_dir={folder / part}"]
        dicts: dict[str, dict[str, Any]] = {}
        for name, flags in made.cameras.items():
            shown = flags if "path" in flags else flags | {"path": str(_pattern(folder / f"{name}.mp4", flags))}
            flag, short = made.places[name]
            dicts.setdefault(flag, {})[short] = shown
        arguments += [f"--{flag}={json.dumps(cameras)}" for flag, cameras in dicts.items()]
        if made.records:  # what nobody did must not be taken for a demonstration
            arguments += [f"--dataset.root={folder / 'dataset'}", "--dataset.push_to_hub=false"]
        yield RehearsalStage(arguments, arms)


def _uncalibrated_parts(arms: Mapping[str, EmulatedPart]) -> list[str]:
    return list(dict.fromkeys(arm.part for arm in arms.values() if arm.file is None))


def _recording(camera: str, source: str, episode: int) -> JsonObject:
    if not source:
        return {}
    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(f"--frames: {path} does not exist")
    flags: JsonObject = {"path": str(path.absolute()), "episode": episode}
    if path.is_dir():
        info = path / "meta" / "info.json"
        if not info.is_file():
            raise UserError(f"--frames: {path} is neither a LeRobotDataset (it has no meta/info.json) nor a video")
        with finder.reading(path):
            features = parse_json(info.read_text()).get("features", {})
        videos = [key for key, feature in features.items() if feature.get("dtype") == "video"]
        named = [key for key in videos if key.rpartition(".")[2] == camera]
        if not named and len(videos) != 1:
            there = ", ".join(videos) or "none: its images are no videos"
            raise UserError(f"--frames.{camera}: {path} has no video of that name; it has {there}")
        flags["camera"] = (named or videos)[0]
    return flags


def _pattern(path: Path, flags: Mapping[str, Any]) -> Path:
    """Write a video of a bright square that moves over a grey ramp, in place of what a camera sees; return its path."""
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
