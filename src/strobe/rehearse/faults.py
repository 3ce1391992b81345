"""Faults planted on purpose: of a servo bus, of cameras, of the policy's calls, of the machine.

Each fault of a bus strikes requests of one instruction (or of any), after the first ``after`` of them, ``count`` times
or for ever, and touches the answers of one servo or of all. The requests are counted from the moment the fault is
planted. A user writes a fault as ``late,seconds=0.06,when=2``.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

import yaml

from strobe.core.errors import UserError, nearest
from strobe.core.untrusted import JsonObject
from strobe_servos.wire import KINDS as INSTRUCTIONS


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The fields that all faults share. ``instruction`` is None for any, ``servo`` for all, ``count`` for ever."""

    name: ClassVar[str]
    instruction: str | None = "sync_read"
    servo: int | None = None
    after: int = 0
    count: int | None = 1

    def __init_subclass__(cls, name: str) -> None:
        cls.name = name

    def __post_init__(self) -> None:
        name = self.instruction
        if name is not None and name not in INSTRUCTIONS:
            raise ValueError(f"no instruction is called '{name}'; {nearest(name, INSTRUCTIONS)}")
        if self.after < 0:
            raise ValueError(f"a fault cannot strike after {self.after} requests")
        if self.count is not None and self.count < 1:
            raise ValueError(f"a fault cannot strike {self.count} times")

    def touches(self, servo: int) -> bool:
        """Return whether it strikes the answers of ``servo``."""
        return self.servo is None or self.servo == servo


class Lost(Fault, name="lost"):
    """The answer never comes, though the servo executed the request."""


class Corrupt(Fault, name="corrupt"):
    """The answer's checksum is wrong."""


class Short(Fault, name="short"):
    """The answer's last byte is missing."""


@dataclass(frozen=True, kw_only=True)
class Late(Fault, name="late"):
    """All answers to the request reach the host ``seconds`` later: a hiccup of the adapter or of the host."""

    seconds: float = 0.06


@dataclass(frozen=True, kw_only=True)
class Slow(Fault, name="slow"):
    """The servo takes ``seconds`` longer to answer, and those behind it in a sync read wait."""

    seconds: float = 0.01
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class ErrorBits(Fault, name="error-bits"):
    """The answer's error byte has ``bits``; 0 for those of an overload. The servo goes on as before."""

    bits: int = 0
    instruction: str | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Dead(Fault, name="dead"):
    """The servo neither hears nor answers."""

    instruction: str | None = None
    count: int | None = None


class Restart(Fault, name="restart"):
    """The servo loses power for a moment before it answers: torque off, unsaved registers forgotten."""


class Unplugged(Fault, name="unplugged"):
    """The adapter leaves the host: the terminal hangs up."""


FAULTS: dict[str, type[Fault]] = {
    each.name: each for each in (Lost, Corrupt, Short, Late, Slow, ErrorBits, Dead, Restart, Unplugged)
}


def fault_content(fault: Fault) -> JsonObject:
    """Return a fault as plain data, for `from_content`."""
    return {"fault": fault.name} | asdict(fault)


def from_content(content: Mapping[str, Any]) -> Fault:
    """Return the fault of ``content``: its name under "fault", and its fields. Raises ValueError for invalid ones."""
    name = content.get("fault")
    kind = FAULTS.get(str(name))
    if kind is None:
        raise ValueError(f"no fault is called '{name}'; {nearest(str(name), FAULTS)}")
    values = {key: value for key, value in content.items() if key != "fault"}
    if wrong := _wrong(kind.name, kind, values):
        raise ValueError(f"the fault {wrong}")
    return kind(**values)


def _wrong(name: str, kind: type[Any], values: Mapping[str, object]) -> str | None:
    """Return what is wrong with ``values`` of the fields of ``kind``, which a user calls ``name``."""
    hints = typing.get_type_hints(kind)
    wanted = {field.name: hints[field.name] for field in fields(kind)}
    for key, value in values.items():
        if key not in wanted:
            return f"'{name}' has no '{key}'; {nearest(key, wanted)}"
        if not _fits(value, wanted[key]):
            return f"'{name}' cannot take {value!r} as '{key}'"
    return None


def _fits(value: object, wanted: Any) -> bool:
    allowed = wanted.__args__ if isinstance(wanted, types.UnionType) else (wanted,)
    if float in allowed:
        allowed = (*allowed, int)
    return not isinstance(value, bool) and isinstance(value, tuple(allowed))


class Planted:
    """Faults that wait for their requests. ``struck`` counts the requests that each kind has struck."""

    def __init__(self) -> None:
        self._waiting: list[list[Any]] = []  # fault, requests seen
        self.struck: dict[str, int] = {}

    def plant(self, fault: Fault) -> None:
        """Add a fault, which has seen no request yet."""
        self._waiting.append([fault, 0])

    def clear(self) -> None:
        """Remove all of them."""
        self._waiting.clear()

    def strike(self, instruction: str, servos: list[int]) -> list[Fault]:
        """Count a request to ``servos``; return the faults that strike it."""
        met = []
        for entry in list(self._waiting):
            fault, seen = entry
            if fault.instruction not in (None, instruction) or not any(map(fault.touches, servos)):
                continue
            entry[1] = seen = seen + 1
            if seen > fault.after:
                met.append(fault)
                self.struck[fault.name] = self.struck.get(fault.name, 0) + 1
            if fault.count is not None and seen >= fault.after + fault.count:
                self._waiting.remove(entry)
        return met


When = float | Literal["connect", "end"]


@dataclass(frozen=True, kw_only=True)
class BusFault:
    """A fault of a bus of servos, and when it is planted: seconds of the loop, before connecting, at the loop's end.

    ``arm`` is the one whose bus it is.
    """

    fault: Fault
    when: When = 1.0
    arm: str = "robot"


@dataclass(frozen=True, kw_only=True)
class CameraFault:
    """A fault of one camera, or of all."""

    flags: ClassVar[Mapping[str, str]]  # of the replaying camera, by field
    camera: str | None = None

    def fields(self) -> dict[str, float]:
        """Return flags of the replaying camera."""
        return {flag: getattr(self, name) for name, flag in self.flags.items()}


@dataclass(frozen=True, kw_only=True)
class Freeze(CameraFault):
    """New frames arrive, and all show the same picture."""

    flags: ClassVar[Mapping[str, str]] = {"when": "freeze_at_s", "seconds": "freeze_s"}
    when: float = 2.0
    seconds: float = 0.3


@dataclass(frozen=True, kw_only=True)
class Gap(CameraFault):
    """No frames arrive."""

    flags: ClassVar[Mapping[str, str]] = {"when": "gap_at_s", "seconds": "gap_s"}
    when: float = 2.0
    seconds: float = 0.3


@dataclass(frozen=True, kw_only=True)
class Rate(CameraFault):
    """The camera always gives fewer frames per second than requested."""

    flags: ClassVar[Mapping[str, str]] = {"fps": "fps"}
    fps: int = 10


@dataclass(frozen=True, kw_only=True)
class LateFrames(CameraFault):
    """All frames arrive later than they were captured."""

    flags: ClassVar[Mapping[str, str]] = {"ms": "latency_ms"}
    ms: float = 150.0


@dataclass(frozen=True, kw_only=True)
class SlowInference:
    """Calls of the policy that take longer: by ``ms``, and up to ``spread_ms`` more at random.

    ``call`` is the only call that it strikes (0 is the first); without it, all. ``like`` is a run: each call takes as
    long as one of that run's calls, where it does not take longer by itself.
    """

    ms: float = 100.0
    spread_ms: float = 0.0
    call: int | None = None
    like: str | None = None


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Other work: processes that keep CPUs busy, and threads of this process that keep its interpreter."""

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


def plan_fault(text: str, arms: Mapping[str, Mapping[str, int]], cameras: Collection[str]) -> Planned:
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
    if name in FAULTS:
        return _bus_fault(text, name, given, arms)
    if name not in KINDS:
        raise UserError(f"--fault={text}: no fault is called '{name}'; {nearest(name, [*FAULTS, *KINDS], many=20)}")
    kind = KINDS[name]
    if wrong := _wrong(name, kind, given):
        raise UserError(f"--fault={text}: {wrong}")
    for key, value in given.items():
        if isinstance(value, int | float) and value < 0:
            raise UserError(f"--fault={text}: '{key}' must be 0 or above")
    if (camera := given.get("camera")) is not None and camera not in cameras:
        raise UserError(f"--fault={text}: the robot has no camera '{camera}'; {nearest(str(camera), cameras)}")
    made = kind(**given)
    if made == Busy():
        raise UserError(f"--fault={text}: add processes=2 or threads=1")
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
        raise UserError(f"--fault={text}: when={when}: must be seconds of the loop, 'connect' or 'end'")
    servo = given.get("servo")
    if isinstance(servo, str):
        given["servo"] = joints.get(servo, servo)
    if servo is not None and given["servo"] not in joints.values():
        raise UserError(f"--fault={text}: the arm has no servo '{servo}'; {nearest(str(servo), joints)}")
    try:
        return BusFault(fault=from_content({"fault": name} | given), when=when, arm=arm)
    except ValueError as error:
        raise UserError(f"--fault={text}: {error}") from None


def fault_kinds_help() -> str:
    """Return every kind with its own keys, for ``--help``."""
    shared = {field.name for field in fields(Fault)}
    lines = []
    for name, kind in [*FAULTS.items(), *KINDS.items()]:
        keys = [item.name for item in fields(kind) if name in KINDS or item.name not in shared]
        about = " ".join((kind.__doc__ or "").split("\n\n")[0].split()).replace("``", "")
        takes = f" ({', '.join(keys)})" if keys else ""
        lines.append(f"  {name:<14} {about}{takes}")
    return "\n".join(lines)
