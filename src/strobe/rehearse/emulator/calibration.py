"""Calibration files of LeRobot's arms, and a plausible one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, os_error_reason
from strobe.core.untrusted import JsonObject, parse_json
from strobe_servos.servo import TURN, Joint

_LAST_ID = 253


Calibration = dict[str, Joint]


def so101() -> Calibration:
    """Return a calibration as `lerobot-calibrate` might save it for an SO-101."""
    values = {
        "shoulder_pan": (-31, 740, 3420),
        "shoulder_lift": (812, 800, 3210),
        "elbow_flex": (-1022, 860, 3080),
        "wrist_flex": (101, 830, 3190),
        "wrist_roll": (-455, 0, 4095),
        "gripper": (1290, 2030, 3480),
    }
    return {name: Joint(id, 0, *counts) for id, (name, counts) in enumerate(values.items(), start=1)}


def read(path: Path, offset: int = 2047) -> Calibration:
    """Return the joints of a calibration file by name, see `from_content`. Raises UserError for an invalid file."""
    try:
        content = parse_json(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the calibration {path}: {os_error_reason(error)}") from None
    except ValueError:
        raise UserError(f"{path} is not a calibration file: it is not JSON") from None
    try:
        return from_content(content, offset)
    except ValueError as error:
        raise UserError(f"{path} is not a calibration file of LeRobot: {error}") from None


def from_content(content: Any, offset: int = 2047) -> Calibration:
    """Return the joints in a calibration file's content. ``offset``: the largest homing offset, as of an STS3215.

    Raises ValueError, naming the joint, for values that no servo can hold.
    """
    if not isinstance(content, Mapping) or not content:
        raise ValueError("it names no joints")
    joints = {str(name): _joint(str(name), values, offset) for name, values in content.items()}
    if len({joint.id for joint in joints.values()}) < len(joints):
        raise ValueError("two joints have the same id")
    return joints


def write(calibration: Calibration, path: Path) -> None:
    """Save ``calibration`` as LeRobot does. Missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(calibration_content(calibration), indent=4))


def calibration_content(calibration: Calibration) -> JsonObject:
    """Return a calibration file's content, for `from_content`."""
    return {name: asdict(joint) for name, joint in calibration.items()}


def _joint(name: str, values: Any, offset: int) -> Joint:
    names = [field.name for field in fields(Joint)]
    if not isinstance(values, Mapping) or not all(type(values.get(each)) is int for each in names):
        raise ValueError(f"{name} needs whole numbers for {', '.join(names)}")
    joint = Joint(**{each: values[each] for each in names})
    if not 0 <= joint.id <= _LAST_ID:
        raise ValueError(f"{name} has the id {joint.id}")
    if abs(joint.homing_offset) > offset:
        raise ValueError(f"{name} has the homing offset {joint.homing_offset}, of at most {offset}")
    if not 0 <= joint.range_min < joint.range_max < TURN:
        raise ValueError(f"{name} has the range {joint.range_min} to {joint.range_max}, of 0 to {TURN - 1}")
    return joint
