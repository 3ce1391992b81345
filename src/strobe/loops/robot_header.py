"""The ground that a rollout runs on: facts about its policy and robot, its cameras, motor buses and strategies."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lerobot.rollout.inference.rtc import supports_rtc_inference
from lerobot.rollout.strategies import core

from strobe.policies import lerobot_policies
from strobe.policies.families.registry import registered
from strobe.results.subject import SubjectInfo

MADE = "made_with.json"  # beside a policy of random weights: the flags that make it once more


def header_of(context: Any) -> dict[str, Any]:
    """Facts about a run that events do not tell, as JSON data."""
    config, policy = context.runtime.cfg, context.policy.policy
    kind, path = config.policy.type, config.policy.pretrained_path
    family = registered(kind)
    robot = asked("--robot.type") or config.robot.type  # so100 and so101 are one class, which knows one name
    images = [one for one in context.hardware.robot_wrapper.observation_features.values() if isinstance(one, tuple)]
    info = SubjectInfo(
        name=kind,
        kind=kind,
        source="random weights" if path is None else Path(str(path)).name,
        inputs=f"the robot {robot}, {len(images)} cameras",
        anatomy=family.name if family is not None and family.probes is not None else "modules",
        **lerobot_policies.count(policy),
    )
    engine = config.inference
    rtc_config = getattr(engine, "rtc", None)
    return {
        "subject": info.model_dump(mode="json"),
        "robot": robot,
        "device": str(config.device),
        "strategy": config.strategy.type,
        "engine": engine.type,
        "fps": config.fps,
        "multiplier": config.interpolation_multiplier,
        "dataset_fps": config.dataset.fps if config.dataset is not None else None,
        "threshold": getattr(engine, "queue_threshold", None),
        "horizon": getattr(rtc_config, "execution_horizon", None),
        "guided": bool(getattr(rtc_config, "enabled", False)),
        "can_rtc": supports_rtc_inference(policy),
        "joints": list(context.data.ordered_action_keys),
        "main": threading.get_ident(),
        "compiled": bool(config.use_torch_compile),
        **_or_nothing(_for_a_replay, context),
    }


def asked(flag: str) -> str:
    """The value of ``flag`` among the run's arguments; '' without one."""
    given = [argument.partition("=")[2] for argument in sys.argv if argument.startswith(f"{flag}=")]
    return given[-1] if given else ""


def _or_nothing(facts: Callable[[Any], dict[str, Any]], context: Any) -> dict[str, Any]:
    """``facts`` of the run; none where a LeRobot keeps them elsewhere, since the rest is worth having without."""
    try:
        return facts(context)
    except Exception:
        return {}


def _for_a_replay(context: Any) -> dict[str, Any]:
    """Facts that `strobe replay` builds the same policy and engine from."""
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
        "rtc": None if rtc_config is None else json.loads(json.dumps(dataclasses.asdict(rtc_config), default=str)),
        "warmups": config.compile_warmup_inferences,
        "executed": getattr(policy, "n_action_steps", None),
        "chunk": getattr(policy, "chunk_size", None),
        "observation_features": features,  # of a camera its shape, of a number None
        "action_features": list(robot.action_features),
    }


def _numbers(robot: Any) -> Iterable[tuple[str, Any]]:
    return ((name, kind) for name, kind in robot.observation_features.items() if kind is float or type(kind) is tuple)


def strategies() -> Iterable[Any]:
    """The modules of LeRobot's strategies, each of which holds the loop's functions under their own names."""
    package = core.__name__.rpartition(".")[0]
    return [module for name, module in list(sys.modules.items()) if name.startswith(f"{package}.")]


def type_of(device: Any) -> str:
    """The type of a robot or leader, as its flag names it; where it keeps no config, its own name."""
    return str(getattr(getattr(device, "config", None), "type", None) or device.name)


def cameras_of(robot: Any) -> dict[str, Any]:
    """The robot's cameras by their names in an observation; none where it keeps them elsewhere.

    Of a robot of several arms, an arm's own cameras have the arm's name before theirs.
    """
    own = getattr(robot, "cameras", None)
    found = dict(own) if isinstance(own, dict) else {}
    arms = {name: arm for name, arm in _arms_of(robot, "send_action").items() if isinstance(_cameras(arm), dict)}
    if len(arms) < 2:
        return found
    shared = _cameras(getattr(robot, "config", None)) or {}  # one of the arms opens them
    return {
        name if name in shared else f"{arm}_{name}": camera
        for arm, each in arms.items()
        for name, camera in _cameras(each).items()
    }


def buses_of(robot: Any, method: str = "send_action") -> dict[str, Any]:
    """The motor buses of a robot or leader, also those of its arms, which have its ``method``.

    They are by the arm's name ("left"), '' for the one of the robot itself or of its only arm.
    """
    found: dict[str, Any] = {}
    for name, one in ({"": robot} | _arms_of(robot, method)).items():
        bus = getattr(one, "bus", None)
        if hasattr(bus, "sync_read") and all(bus is not other for other in found.values()):
            found[name] = bus
    return found if len(found) > 1 else dict(zip([""], found.values(), strict=False))


def _arms_of(robot: Any, method: str) -> dict[str, Any]:
    """Parts of a robot that are robots themselves, by name: ``left_arm`` is "left"."""
    return {name.strip("_").removesuffix("_arm"): part for name, part in vars(robot).items() if hasattr(part, method)}


def _cameras(robot: Any) -> Any:
    return getattr(robot, "cameras", None)
