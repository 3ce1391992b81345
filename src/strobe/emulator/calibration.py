"""Calibration files of LeRobot's arms, and one for an arm that nobody owns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from strobe.emulator.register import TURN
from strobe.errors import UserError, in_words

_LAST_ID = 253


@dataclass(frozen=True)
class Joint:
    """The calibration of one joint, as LeRobot keeps it. ``homing_offset`` and the range are counts, 4096 a turn."""

    id: int
    drive_mode: int
    homing_offset: int
    range_min: int
    range_max: int


Calibration = dict[str, Joint]


def so101() -> Calibration:
    """A calibration as `lerobot-calibrate` might have left it for an SO-101."""
    values = {
        "shoulder_pan": (-31, 740, 3420),
        "shoulder_lift": (812, 800, 3210),
        "elbow_flex": (-1022, 860, 3080),
        "wrist_flex": (101, 830, 3190),
        "wrist_roll": (-455, 0, 4095),
        "gripper": (1290, 2030, 3480),
    }
    return {name: Joint(id, 0, *told) for id, (name, told) in enumerate(values.items(), start=1)}


def read(path: Path, offset: int = 2047) -> Calibration:
    """Joints of a calibration file by name, see `of`. Raise UserError for a file that is none."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the calibration {path}: {in_words(error)}") from None
    except ValueError:
        raise UserError(f"{path} is not a calibration file: it is not JSON") from None
    try:
        return of(content, offset)
    except ValueError as error:
        raise UserError(f"{path} is not a calibration file of LeRobot: {error}") from None


def of(content: Any, offset: int = 2047) -> Calibration:
    """Joints from a calibration file's content. Raise ValueError, naming the joint, for what no servo can hold.

    ``offset`` is the largest homing offset, of the STS3215 unless told.
    """
    if not isinstance(content, Mapping) or not content:
        raise ValueError("it names no joints")
    joints = {str(name): _joint(str(name), told, offset) for name, told in content.items()}
    if len({joint.id for joint in joints.values()}) < len(joints):
        raise ValueError("two joints have the same id")
    return joints


def write(calibration: Calibration, path: Path) -> None:
    """Keep ``calibration`` as LeRobot does, in folders that are made if they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content_of(calibration), indent=4))


def content_of(calibration: Calibration) -> dict[str, Any]:
    """A calibration file's content, for `of`."""
    return {name: asdict(joint) for name, joint in calibration.items()}


def _joint(name: str, told: Any, offset: int) -> Joint:
    names = [field.name for field in fields(Joint)]
    if not isinstance(told, Mapping) or not all(type(told.get(each)) is int for each in names):
        raise ValueError(f"{name} needs whole numbers for {', '.join(names)}")
    joint = Joint(**{each: told[each] for each in names})
    if not 0 <= joint.id <= _LAST_ID:
        raise ValueError(f"{name} has the id {joint.id}")
    if abs(joint.homing_offset) > offset:
        raise ValueError(f"{name} has the homing offset {joint.homing_offset}, of at most {offset}")
    if not 0 <= joint.range_min < joint.range_max < TURN:
        raise ValueError(f"{name} has the range {joint.range_min} to {joint.range_max}, of 0 to {TURN - 1}")
    return joint
