"""The range of actions that each joint will be sent, from the statistics that the postprocessor unnormalises with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strobe.results.reach import JointReach, Reach
from strobe.results.wiring import NEEDED, Feature, Wiring
from strobe.wiring.checkpoint import Checkpoint

Ends = tuple[Sequence[float | None], Sequence[float | None]]


@dataclass(frozen=True)
class Limits:
    """The limits of a robot's joints.

    Args:
        joints: joint → the ends of its range in degrees, as its calibration has it; empty without one.
        calibration: the files of the calibration; '' without one.
        capped: whether the step of an action is limited (``max_relative_target``).
    """

    joints: dict[str, tuple[float, float]] = field(default_factory=dict)
    calibration: str = ""
    capped: bool = False


def limits_of(robot: Any) -> Limits:
    """Return the ends of each calibrated joint's range in the robot's unit, and where they are from.

    LeRobot's degrees are 0 in the middle of the calibrated range, and nothing clamps them. Joints in its other units
    are left out: it clamps them to their range.
    """
    limits: dict[str, tuple[float, float]] = {}
    files = []
    for prefix, arm in _arms(robot).items():
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
    return Limits(limits, ", ".join(files), capped)


def _arms(robot: Any) -> dict[str, Any]:
    """Return a robot's arms by the prefix of their joints' names."""
    pair = {f"{side}_": getattr(robot, f"{side}_arm", None) for side in ("left", "right")}
    return pair if all(pair.values()) else {"": robot}


def reach(wiring: Wiring, checkpoint: Checkpoint, limits: Limits) -> Reach | None:
    """Return the range of each joint's action; None where the statistics do not give one, or actions are relative."""
    wire = wiring.wire("action")
    end = wire.ends.get("postprocessor") if wire is not None else None
    if wire is None or end is None or end.normalisation is None or _relative(checkpoint):
        return None
    found = _range(end.normalisation.mode, end.normalisation.statistics)
    if found is None:
        return None
    (lows, highs), basis = found
    data = wire.ends.get("dataset")
    names = _names(wiring, end, wire.ends.get("robot"), data, len(lows))
    recorded = _recorded(data, wire.ends.get("robot"))
    joints = []
    for index, (joint, low, high) in enumerate(zip(names, lows, highs, strict=False)):
        if low is None or high is None:
            continue
        limit = limits.joints.get(joint.rpartition(".")[0] or joint, (None, None))
        own = recorded.get(joint) or recorded.get(str(index), (None, None))
        joints.append(
            JointReach(
                joint=joint, low=low, high=high, limit_low=limit[0], limit_high=limit[1], data_low=own[0],
                data_high=own[1],
            )
        )  # fmt: skip
    at = wire.ends.get("robot")
    return Reach(
        joints=joints,
        basis=basis,  # type: ignore[arg-type]
        unit=at.unit if at is not None else "",
        calibration=limits.calibration,
        capped=limits.capped,
    )


def _relative(checkpoint: Checkpoint) -> bool:
    step = checkpoint.preprocessor.config("relative_actions_processor") if checkpoint.preprocessor is not None else None
    return bool((step or {}).get("enabled", step is not None))


def _range(mode: str, statistics: Mapping[str, list[float | None]]) -> tuple[Ends, str] | None:
    """Return the ends of each dimension's range, and where they are from: what the mode reads, else the extremes.

    Without these it is the mean and one σ each way, which every distribution reaches.
    """
    low, high = NEEDED[mode] if mode in NEEDED and mode != "MEAN_STD" else ("min", "max")
    if statistics.get(low) and statistics.get(high):
        return (statistics[low], statistics[high]), f"{low} and {high}"
    mean, std = statistics.get("mean"), statistics.get("std")
    if not mean or not std:
        return None
    pairs = [(m, s) if m is not None and s is not None else None for m, s in zip(mean, std, strict=False)]
    lows = [None if pair is None else pair[0] - pair[1] for pair in pairs]
    highs = [None if pair is None else pair[0] + pair[1] for pair in pairs]
    return (lows, highs), "mean ± σ"


def _names(wiring: Wiring, end: Feature, robot: Feature | None, data: Feature | None, count: int) -> list[str]:
    """Return the joints that the policy's numbers go to, in their order."""
    own = wiring.order if wiring.engine != "sync" else []  # the sync engine sends by the robot's order
    choices = (own, robot.dimensions if robot is not None else [], data.dimensions if data is not None else [])
    named = next((names for names in choices if len(names) == count), None)
    return list(named) if named is not None else [f"{end.name}[{index}]" for index in range(count)]


def _recorded(data: Feature | None, robot: Feature | None) -> dict[str, tuple[float, float]]:
    """Return the range of the data set's actions by the joint's name; by its number where it or the robot has none."""
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
