"""The range of actions that each joint will be sent, from the statistics that the postprocessor unnormalises with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strobe.lerobot.processors import READ
from strobe.preflight.results.wiring import Feature, JointReach, RangeBasis, Reach, Wiring
from strobe.preflight.wiring.checkpoint import Checkpoint

Ends = tuple[Sequence[float | None], Sequence[float | None]]
_QUANTILES: dict[tuple[str, str], RangeBasis] = {("q01", "q99"): "q01 and q99", ("q10", "q90"): "q10 and q90"}


@dataclass(frozen=True)
class JointLimits:
    """The limits of a robot's joints.

    Args:
        joints: joint → the ends of its range in degrees, as its calibration has it; empty without one.
        calibration: the files of the calibration.
        capped: whether the step of an action is limited (``max_relative_target``).
    """

    joints: dict[str, tuple[float, float]] = field(default_factory=dict)
    calibration: str | None = None
    capped: bool = False


def joint_limits(robot: Any) -> JointLimits:
    """Return the ends of each calibrated joint's range in the robot's unit, and where they are from.

    LeRobot's degrees are 0 in the middle of the calibrated range, and nothing clamps them. Joints in its other units
    are left out: it clamps them to their range.
    """
    limits: dict[str, tuple[float, float]] = {}
    files = []
    for prefix, arm in arms_by_prefix(robot).items():
        bus, calibration = getattr(arm, "bus", None), getattr(arm, "calibration", None) or {}
        if not calibration or bus is None:
            continue
        files.append(str(getattr(arm, "calibration_fpath", "")))
        for joint, measured in calibration.items():
            motor = bus.motors.get(joint)
            if getattr(getattr(motor, "norm_mode", None), "name", "") == "DEGREES":
                counts = bus.model_resolution_table[motor.model] - 1
                half = (measured.range_max - measured.range_min) / 2 * 360 / counts
                limits[f"{prefix}{joint}"] = (-half, half)
    capped = getattr(robot.config, "max_relative_target", None) is not None
    return JointLimits(limits, ", ".join(files) or None, capped)


def arms_by_prefix(robot: Any) -> dict[str, Any]:
    """Return a robot's arms by the prefix of their joints' names."""
    pair = {f"{side}_": getattr(robot, f"{side}_arm", None) for side in ("left", "right")}
    return pair if all(pair.values()) else {"": robot}


def reach(wiring: Wiring, checkpoint: Checkpoint, limits: JointLimits) -> Reach | None:
    """Return the range of each joint's action, and why it is not known; None for a policy without actions."""
    wire = wiring.wire("action")
    if wire is None or "policy" not in wire.ends:
        return None
    robot, data = wire.ends.get("robot"), wire.ends.get("dataset")
    end = wire.ends.get("postprocessor")
    statistics = end.normalisation.statistics if end is not None and end.normalisation is not None else {}
    relative = relative_actions(checkpoint)
    found = (_extremes(statistics) if relative is not None else None) or (
        _range(end.normalisation.mode, statistics) if end is not None and end.normalisation is not None else None
    )
    (lows, highs), basis = found if found is not None else (((), ()), None)
    count = len(lows) or math.prod(wire.ends["policy"].shape)
    names = _names(wiring, wire.name, robot, data, count)
    recorded = {} if relative is not None else _recorded_ranges(data, robot)
    made = Reach(
        joints=[_joint(name, number, limits, recorded) for number, name in enumerate(names)],
        basis=basis,
        unit=robot.unit if robot is not None else None,
        calibration=limits.calibration,
        capped=limits.capped,
    )
    if found is None:
        made.unjudged.append(
            f"What will be sent: {wiring.sources.get('postprocessor', 'the checkpoint')} has no statistics of the "
            "action."
        )
    for joint, low, high in zip(made.joints, lows, highs, strict=False):
        joint.low, joint.high = (low, high) if low is not None and high is not None else (None, None)
    if relative is not None:
        _make_absolute(made, wiring, relative)
    return made


def _joint(name: str, number: int, limits: JointLimits, recorded: Mapping[str, tuple[float, float]]) -> JointReach:
    limit = limits.joints.get(name.rpartition(".")[0] or name, (None, None))
    own = recorded.get(name) or recorded.get(str(number), (None, None))
    return JointReach(joint=name, limit_low=limit[0], limit_high=limit[1], data_low=own[0], data_high=own[1])


def relative_actions(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return the config of the step that makes actions relative to the state; None where none does."""
    step = checkpoint.preprocessor.config("relative_actions_processor") if checkpoint.preprocessor is not None else None
    return step if step is not None and step.get("enabled", True) else None


def relative_mask(step: Mapping[str, Any], count: int) -> list[bool]:
    """Return for each of ``count`` dimensions of the action whether the step makes it relative."""
    excluded = [str(name).lower() for name in step.get("exclude_joints") or [] if name]
    names = [str(name).lower() for name in step.get("action_names") or []]
    return [not (at < len(names) and any(one in names[at] for one in excluded)) for at in range(count)]


def _make_absolute(made: Reach, wiring: Wiring, step: Mapping[str, Any]) -> None:
    """Add the range of the data's state to that of each relative action: an outer bound.

    LeRobot adds number i of the state to number i of the action. Joints that the step excludes stay as they are.
    """
    made.unjudged.append("In the data: the actions are relative to the state, and so may be their statistics.")
    mask = relative_mask(step, len(made.joints))
    wire = wiring.wire("observation.state")
    data = wire.ends.get("dataset") if wire is not None else None
    states = _extremes(data.normalisation.statistics) if data is not None and data.normalisation is not None else None
    (lows, highs), _ = states if states is not None else (((), ()), None)
    unknown = False
    for number, joint in enumerate(made.joints):
        if not mask[number]:
            continue
        low, high = (ends[number] if number < len(ends) else None for ends in (lows, highs))
        bounded = made.basis == "min and max" and None not in (joint.low, joint.high, low, high)
        joint.outer = bounded
        joint.low, joint.high = (joint.low + low, joint.high + high) if bounded else (None, None)  # type: ignore[operator]
        unknown = unknown or not bounded
    if unknown and made.basis is not None:
        lacking = "the postprocessor's statistics have no min and max"
        if made.basis == "min and max":
            lacking = "the range of the state is unknown: give --dataset.root=DATA"
        made.unjudged.append(f"What will be sent: actions are relative to the state, and {lacking}.")


def _extremes(statistics: Mapping[str, Any]) -> tuple[Ends, RangeBasis] | None:
    low, high = statistics.get("min"), statistics.get("max")
    return ((low, high), "min and max") if low and high else None


def _range(mode: str, statistics: Mapping[str, list[float | None]]) -> tuple[Ends, RangeBasis] | None:
    """Return the ends of each dimension's range, and where they are from: what the mode reads, else the extremes.

    Without these it is the mean and one σ each way, which every distribution reaches.
    """
    for quantiles, basis in _QUANTILES.items():
        low, high = (statistics.get(name) for name in quantiles)
        if READ.get(mode) == quantiles and low and high:
            return (low, high), basis
    if (found := _extremes(statistics)) is not None:
        return found
    mean, std = statistics.get("mean"), statistics.get("std")
    if not mean or not std:
        return None
    pairs = [(m, s) if m is not None and s is not None else None for m, s in zip(mean, std, strict=False)]
    lows = [None if pair is None else pair[0] - pair[1] for pair in pairs]
    highs = [None if pair is None else pair[0] + pair[1] for pair in pairs]
    return (lows, highs), "mean ± σ"


def _names(wiring: Wiring, action: str, robot: Feature | None, data: Feature | None, count: int) -> list[str]:
    own = wiring.order if wiring.engine != "sync" else []  # the sync engine sends by the robot's order
    choices = (own, robot.dimensions if robot is not None else [], data.dimensions if data is not None else [])
    named = next((names for names in choices if len(names) == count), None)
    return list(named) if named is not None else [f"{action}[{index}]" for index in range(count)]


def _recorded_ranges(data: Feature | None, robot: Feature | None) -> dict[str, tuple[float, float]]:
    if data is None or data.normalisation is None:
        return {}
    lows, highs = (data.normalisation.statistics.get(name) or [] for name in ("min", "max"))
    named = bool(data.dimensions) and (robot is None or bool(robot.dimensions))
    keys = data.dimensions if named else [str(index) for index in range(len(lows))]
    return {
        key: (low, high)
        for key, low, high in zip(keys, lows, highs, strict=False)
        if low is not None and high is not None
    }
