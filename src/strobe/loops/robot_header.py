"""The robot that a loop runs on: the header of a rollout, and a robot's cameras, motor buses and strategies."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lerobot.rollout.inference.rtc import supports_rtc_inference
from lerobot.rollout.strategies import core

from strobe.loops.header import Header, subject_of
from strobe.policies import lerobot_policies

MADE = "made_with.json"  # beside a policy of random weights: the flags that make it once more


def header_of(context: Any) -> Header:
    """Return the header of a run of lerobot-rollout, from what its ``build_rollout_context`` made."""
    config, policy = context.runtime.cfg, context.policy.policy
    kind, path = config.policy.type, config.policy.pretrained_path
    robot = argument("--robot.type") or config.robot.type  # so100 and so101 are one class, which knows one name
    features = context.hardware.robot_wrapper.observation_features.values()
    engine = config.inference
    rtc_config = getattr(engine, "rtc", None)
    header = Header(
        subject=subject_of(
            kind,
            "random weights" if path is None else Path(str(path)).name,
            f"the robot {robot}, {sum(isinstance(shape, tuple) for shape in features)} cameras",
            **lerobot_policies.count(policy),
        ),
        robot=robot,
        device=str(config.device),
        strategy=config.strategy.type,
        engine=engine.type,
        fps=config.fps,
        multiplier=config.interpolation_multiplier,
        dataset_fps=config.dataset.fps if config.dataset is not None else None,
        threshold=getattr(engine, "queue_threshold", None),
        horizon=getattr(rtc_config, "execution_horizon", None),
        guided=bool(getattr(rtc_config, "enabled", False)),
        can_rtc=supports_rtc_inference(policy),
        joints=list(context.data.ordered_action_keys),
        main=threading.get_ident(),
        compiled=bool(config.use_torch_compile),
    )
    try:
        return replace(header, **_for_a_replay(context))
    except Exception:  # a LeRobot that keeps these elsewhere: the rest is worth having without them
        return header


def argument(flag: str) -> str:
    """Return the value of ``flag`` among the run's arguments; '' without one."""
    given = [argument.partition("=")[2] for argument in sys.argv if argument.startswith(f"{flag}=")]
    return given[-1] if given else ""


def _for_a_replay(context: Any) -> dict[str, Any]:
    """Return the fields of the header that `strobe replay` builds the same policy and engine from."""
    config = context.runtime.cfg
    policy, robot = config.policy, context.hardware.robot_wrapper
    path = Path(str(policy.pretrained_path))
    rtc_config = getattr(config.inference, "rtc", None)
    features = {name: list(kind) if isinstance(kind, tuple) else None for name, kind in _numbers(robot)}
    return {
        "arguments": sys.argv[1:],  # lent to LeRobot's parser: those of lerobot-rollout
        "policy": str(path.resolve()) if path.exists() else str(path),
        "made": json.loads((path / MADE).read_text()) if (path / MADE).exists() else [],
        "task": config.dataset.single_task if config.dataset is not None else config.task,
        "rtc": None if rtc_config is None else json.loads(json.dumps(asdict(rtc_config), default=str)),
        "warmups": config.compile_warmup_inferences,
        "executed": getattr(policy, "n_action_steps", None),
        "chunk": getattr(policy, "chunk_size", None),
        "observation_features": features,  # of a camera its shape, of a number None
        "action_features": list(robot.action_features),
    }


def _numbers(robot: Any) -> Iterable[tuple[str, Any]]:
    return ((name, kind) for name, kind in robot.observation_features.items() if kind is float or type(kind) is tuple)


def strategies() -> Iterable[Any]:
    """Return the modules of LeRobot's strategies, each of which holds the loop's functions under their own names."""
    package = core.__name__.rpartition(".")[0]
    return [module for name, module in list(sys.modules.items()) if name.startswith(f"{package}.")]


def type_of(device: Any) -> str:
    """Return the type of a robot or leader, as its flag names it; where it keeps no config, its own name."""
    return str(getattr(getattr(device, "config", None), "type", None) or device.name)


def cameras_of(robot: Any) -> dict[str, Any]:
    """Return the robot's cameras by their names in an observation; none where it keeps them elsewhere.

    In a robot of several arms, the name of an arm's own camera begins with the arm's.
    """
    own = _cameras(robot)
    arms = {name: arm for name, arm in _arms_of(robot, "send_action").items() if isinstance(_cameras(arm), dict)}
    if len(arms) < 2:
        return dict(own) if isinstance(own, dict) else {}
    shared = _cameras(getattr(robot, "config", None)) or {}  # one of the arms opens them
    return {
        name if name in shared else f"{arm}_{name}": camera
        for arm, each in arms.items()
        for name, camera in _cameras(each).items()
    }


def buses_of(robot: Any, method: str = "send_action") -> dict[str, Any]:
    """Return the motor buses of a robot or leader by the arm's name; '' is the robot itself, or its only arm.

    Args:
        method: that a part has which is an arm.
    """
    buses: dict[str, Any] = {}
    for name, part in ({"": robot} | _arms_of(robot, method)).items():
        bus = getattr(part, "bus", None)
        if hasattr(bus, "sync_read") and all(bus is not other for other in buses.values()):
            buses[name] = bus
    return buses if len(buses) > 1 else dict(zip([""], buses.values(), strict=False))


def _arms_of(robot: Any, method: str) -> dict[str, Any]:
    """Return parts of a robot that are robots themselves, by name: ``left_arm`` is "left"."""
    return {name.strip("_").removesuffix("_arm"): part for name, part in vars(robot).items() if hasattr(part, method)}


def _cameras(robot: Any) -> Any:
    return getattr(robot, "cameras", None)
