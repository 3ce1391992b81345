"""The things that a rollout of LeRobot would connect: the robot's joints in their order, its cameras, the loop's rates.

The robot is made from its config, as LeRobot makes it, and never connected: no port is opened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from strobe.core.errors import error_line
from strobe.core.untrusted import JsonObject
from strobe.preflight.results.wiring import Feature, FeatureKind
from strobe.preflight.wiring.reach import JointLimits, arms_by_prefix, joint_limits

UNITS = {"DEGREES": "degrees", "RANGE_M100_100": "−100 to 100", "RANGE_0_100": "0 to 100"}
_JOINTS = (".pos", ".vel")  # what LeRobot's rollout hands to the policy, and takes from it


@dataclass(frozen=True)
class Connected:
    """The robot, cameras and loop of a rollout; rates in Hz.

    Args:
        features: by the policy's kind of name: ``action``, ``observation.state``, ``observation.images.NAME``.
        execution_horizon: of RTC, in control ticks.
        unread: why there are no features, if the robot could not be made.
    """

    robot: str
    features: dict[str, Feature]
    fps: float
    task: str
    engine: Literal["sync", "rtc"]
    execution_horizon: int | None = None
    rename: dict[str, str] = field(default_factory=dict)
    camera_fps: dict[str, float] = field(default_factory=dict)
    compiles: bool = False
    limits: JointLimits = field(default_factory=JointLimits)
    unread: str | None = None


def read_robot(config: Any) -> Connected:
    """Return what ``config``, LeRobot's ``RolloutConfig``, would connect."""
    from lerobot.robots import make_robot_from_config

    rtc = getattr(config.inference, "rtc", None)
    features: dict[str, Feature] = {}
    unread = None
    limits = JointLimits()
    try:
        robot = make_robot_from_config(config.robot)
        features = _features(robot)
        limits = joint_limits(robot)
    except Exception as error:  # a plug-in's robot may want its hardware at once
        unread = (
            f"the robot's joints are not judged: {config.robot.type} cannot be made without its hardware: "
            f"{error_line(error, 120)}"
        )
    cameras = getattr(config.robot, "cameras", None) or {}
    return Connected(
        robot=str(config.robot.type),
        features=features,
        fps=float(config.fps),
        task=config.task or "",
        engine="rtc" if rtc is not None else "sync",
        execution_horizon=getattr(rtc, "execution_horizon", None),
        rename=dict(config.rename_map or {}),
        camera_fps={name: float(camera.fps) for name, camera in cameras.items() if getattr(camera, "fps", None)},
        compiles=bool(config.use_torch_compile),
        limits=limits,
        unread=unread,
    )


def _features(robot: Any) -> dict[str, Feature]:
    observed: JsonObject = robot.observation_features
    joints = [name for name, kind in observed.items() if kind is float and name.endswith(_JOINTS)]
    commands = [name for name in robot.action_features if name.endswith(_JOINTS)]
    features = {"action": _vector("action", "action", robot, commands)}
    features["observation.state"] = _vector("observation.state", "state", robot, joints)
    for name, kind in observed.items():
        if isinstance(kind, tuple):
            height, width, channels = (int(size) for size in kind)
            full = f"observation.images.{name}"
            features[full] = Feature(name=full, kind="image", shape=[channels, height, width])
    return features


def _vector(name: str, kind: FeatureKind, robot: Any, joints: list[str]) -> Feature:
    """Return the feature of these joints, with the unit of each."""
    motors: dict[str, Any] = {}
    for prefix, arm in arms_by_prefix(robot).items():
        own = getattr(getattr(arm, "bus", None), "motors", None) or {}
        motors |= {f"{prefix}{motor}": described for motor, described in own.items()}
    modes = [getattr(motors.get(joint.rpartition(".")[0]), "norm_mode", None) for joint in joints]
    units = [UNITS.get(getattr(mode, "name", ""), "") for mode in modes]
    most = Counter(units).most_common(1)[0][0] if units else ""
    return Feature(name=name, kind=kind, shape=[len(joints)], dimensions=joints, unit=most or None, units=units)
