"""Faults that a rehearsal plants on purpose, as a user writes them: ``late,seconds=0.06,when=2``."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from strobe.core.errors import UserError, nearest
from strobe.core.json_text import JsonObject
from strobe.rehearse.emulator import faults as bus

When = float | Literal["connect", "end"]


@dataclass(frozen=True, kw_only=True)
class BusFault:
    """A fault of a bus of servos, and when it is planted: seconds of the loop, before connecting, at the loop's end.

    ``arm`` is the one whose bus it is.
    """

    fault: bus.Fault
    when: When = 1.0
    arm: str = "robot"


@dataclass(frozen=True, kw_only=True)
class CameraFault:
    """A fault of one camera, or of all."""

    camera: str | None = None

    def fields(self) -> dict[str, float]:
        """Flags of the replaying camera."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Freeze(CameraFault):
    """New frames come, and all show the same."""

    when: float = 2.0
    seconds: float = 0.3

    def fields(self) -> dict[str, float]:
        return {"freeze_at_s": self.when, "freeze_s": self.seconds}


@dataclass(frozen=True, kw_only=True)
class Gap(CameraFault):
    """No frames come."""

    when: float = 2.0
    seconds: float = 0.3

    def fields(self) -> dict[str, float]:
        return {"gap_at_s": self.when, "gap_s": self.seconds}


@dataclass(frozen=True, kw_only=True)
class Rate(CameraFault):
    """The camera gives fewer frames per second than it was asked for, all the time."""

    fps: int = 10

    def fields(self) -> dict[str, float]:
        return {"fps": self.fps}


@dataclass(frozen=True, kw_only=True)
class LateFrames(CameraFault):
    """Frames come later than they were captured, all the time."""

    ms: float = 150.0

    def fields(self) -> dict[str, float]:
        return {"latency_ms": self.ms}


@dataclass(frozen=True, kw_only=True)
class SlowInference:
    """Calls of the policy that take longer: by ``ms``, and up to ``spread_ms`` more at random.

    ``call`` is the one call that it strikes (0 is the first); left out, all. ``like`` is a run: each call takes as long
    as one of that run's calls, where it does not take longer by itself.
    """

    ms: float = 100.0
    spread_ms: float = 0.0
    call: int | None = None
    like: str | None = None


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Work beside the loop: processes that keep CPUs busy, and threads of this process that keep its interpreter."""

    processes: int = 0
    threads: int = 0


Planned = BusFault | CameraFault | SlowInference | Busy

KINDS: dict[str, type[Any]] = {
    "camera-freeze": Freeze,
    "camera-gap": Gap,
    "camera-rate": Rate,
    "camera-late": LateFrames,
    "inference": SlowInference,
    "busy": Busy,
}


def planned(text: str, arms: Mapping[str, Mapping[str, int]], cameras: Collection[str]) -> Planned:
    """Return the fault that ``text`` requests.

    Args:
        arms: ids of the servos by the joint's name, either of which ``servo=`` takes, of each arm. ``arm=`` takes the
            arm's name; left out, it is the first.
        cameras: names of the robot's cameras.

    Raises:
        UserError: another kind, a key that it does not have, a value that it cannot take.
    """
    name, *settings = text.split(",")
    given: JsonObject = {}
    for part in settings:
        given |= _pair(text, part)
    if name in bus.FAULTS:
        return _bus_fault(text, name, given, arms)
    if name not in KINDS:
        raise UserError(f"--fault={text}: no fault is called '{name}'; {nearest(name, [*bus.FAULTS, *KINDS], many=20)}")
    kind = KINDS[name]
    wanted = typing.get_type_hints(kind)
    for key, value in given.items():
        if key not in wanted:
            raise UserError(f"--fault={text}: '{name}' has no '{key}'; {nearest(key, wanted)}")
        if not _fits(value, wanted[key]):
            raise UserError(f"--fault={text}: '{name}' cannot take {value!r} as '{key}'")
        if isinstance(value, int | float) and value < 0:
            raise UserError(f"--fault={text}: '{key}' must be 0 or above")
    if (camera := given.get("camera")) is not None and camera not in cameras:
        raise UserError(f"--fault={text}: the robot has no camera '{camera}'; {nearest(str(camera), cameras)}")
    made = kind(**given)
    if made == Busy():
        raise UserError(f"--fault={text}: say what makes it busy: processes=2 or threads=1")
    return made


def _pair(text: str, part: str) -> JsonObject:
    key, equals, value = part.partition("=")
    if not equals or not key:
        raise UserError(f"--fault={text}: '{part}' is not key=value, such as servo=2")
    try:
        return {key: yaml.safe_load(value)}
    except yaml.YAMLError:
        return {key: value}


def _bus_fault(text: str, name: str, given: JsonObject, arms: Mapping[str, Mapping[str, int]]) -> BusFault:
    when, arm = given.pop("when", 1.0), str(given.pop("arm", next(iter(arms))))
    if arm not in arms:
        raise UserError(f"--fault={text}: there is no arm '{arm}'; {nearest(arm, arms)}")
    joints = arms[arm]
    if isinstance(when, bool) or not ((isinstance(when, int | float) and when >= 0) or when in ("connect", "end")):
        raise UserError(f"--fault={text}: when={when}: seconds of the loop, 'connect' or 'end'")
    servo = given.get("servo")
    if isinstance(servo, str):
        given["servo"] = joints.get(servo, servo)
    if servo is not None and given["servo"] not in joints.values():
        raise UserError(f"--fault={text}: the arm has no servo '{servo}'; {nearest(str(servo), joints)}")
    try:
        return BusFault(fault=bus.from_content({"fault": name} | given), when=when, arm=arm)
    except ValueError as error:
        raise UserError(f"--fault={text}: {error}") from None


def _fits(value: object, wanted: Any) -> bool:
    allowed = wanted.__args__ if isinstance(wanted, types.UnionType) else (wanted,)
    if float in allowed:
        allowed = (*allowed, int)
    return not isinstance(value, bool) and isinstance(value, tuple(allowed))


def listed() -> str:
    """Return every kind with its own keys, for ``--help``."""
    shared = {field.name for field in dataclasses.fields(bus.Fault)}
    lines = []
    for name, kind in [*bus.FAULTS.items(), *KINDS.items()]:
        keys = [item.name for item in dataclasses.fields(kind) if name in KINDS or item.name not in shared]
        about = " ".join((kind.__doc__ or "").split("\n\n")[0].split()).replace("``", "")
        takes = f" ({', '.join(keys)})" if keys else ""
        lines.append(f"  {name:<14} {about}{takes}")
    return "\n".join(lines)
