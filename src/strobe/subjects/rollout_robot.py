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

from strobe.results.subject import SubjectInfo
from strobe.subjects import policies
from strobe.subjects.families.registry import registered

MADE = "made_with.json"  # beside a policy of random weights: the flags that make it once more


def header_of(context: Any) -> dict[str, Any]:
    """Facts about a run that events do not tell, as JSON data."""
    config, policy = context.runtime.cfg, context.policy.policy
    kind, path = config.policy.type, config.policy.pretrained_path
    family = registered(kind)
    robot = _asked("--robot.type") or config.robot.type  # so100 and so101 are one class, which knows one name
    images = [one for one in context.hardware.robot_wrapper.observation_features.values() if isinstance(one, tuple)]
    info = SubjectInfo(
        name=kind,
        kind=kind,
        source="random weights" if path is None else Path(str(path)).name,
        inputs=f"the robot {robot}, {len(images)} cameras",
        anatomy=family.name if family is not None and family.probes is not None else "modules",
        **policies.count(policy),
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


def _asked(flag: str) -> str:
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
    """The robot's cameras by name; none where it keeps them elsewhere."""
    found = getattr(robot, "cameras", None)
    return dict(found) if isinstance(found, dict) else {}


def buses_of(robot: Any, method: str = "send_action") -> list[Any]:
    """The motor buses of a robot or leader, also those of its arms, which have its ``method``."""
    holders = [robot, *(value for value in vars(robot).values() if hasattr(value, method))]
    return list({id(bus): bus for one in holders if hasattr(bus := getattr(one, "bus", None), "sync_read")}.values())


def actions_left(policy: Any) -> int:
    """Actions that the policy holds for the next ticks; -1 where it does not say."""
    queue = getattr(policy, "_action_queue", None)
    if queue is None:
        queue = (getattr(policy, "_queues", None) or {}).get("action")
    return -1 if queue is None else len(queue)
