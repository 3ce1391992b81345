"""Faults of a servo bus, planted on purpose.

Each strikes requests of one instruction (or of any), after the first ``after`` of them, ``count`` times or for ever,
and touches the answers of one servo or of all. The requests are counted from the moment the fault is planted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar

from strobe.core.errors import nearest
from strobe.core.json_text import JsonObject
from strobe.rehearse.emulator.wire import KINDS

INSTRUCTIONS = KINDS


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The fields that all faults share. ``instruction`` is None for any, ``servo`` for all, ``count`` for ever."""

    name: ClassVar[str]
    instruction: str | None = "sync_read"
    servo: int | None = None
    after: int = 0
    count: int | None = 1

    def __post_init__(self) -> None:
        name = self.instruction
        if name is not None and name not in INSTRUCTIONS:
            raise ValueError(f"no instruction is called '{name}'; {nearest(name, INSTRUCTIONS)}")
        if self.after < 0:
            raise ValueError(f"a fault cannot strike after {self.after} requests")
        if self.count is not None and self.count < 1:
            raise ValueError(f"a fault cannot strike {self.count} times")

    def touches(self, servo: int) -> bool:
        return self.servo is None or self.servo == servo


@dataclass(frozen=True, kw_only=True)
class Lost(Fault):
    """The answer never comes, though the servo executed the request."""

    name: ClassVar[str] = "lost"


@dataclass(frozen=True, kw_only=True)
class Corrupt(Fault):
    """The answer's checksum is wrong."""

    name: ClassVar[str] = "corrupt"


@dataclass(frozen=True, kw_only=True)
class Short(Fault):
    """The answer's last byte is missing."""

    name: ClassVar[str] = "short"


@dataclass(frozen=True, kw_only=True)
class Late(Fault):
    """All answers to the request reach the host ``seconds`` later: a hiccup of the adapter or of the host."""

    name: ClassVar[str] = "late"
    seconds: float = 0.06


@dataclass(frozen=True, kw_only=True)
class Slow(Fault):
    """The servo takes ``seconds`` longer to answer, and those behind it in a sync read wait."""

    name: ClassVar[str] = "slow"
    seconds: float = 0.01
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class ErrorBits(Fault):
    """The answer's error byte has ``bits``; 0 for those of an overload. The servo goes on as before."""

    name: ClassVar[str] = "error-bits"
    bits: int = 0
    instruction: str | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Dead(Fault):
    """The servo neither hears nor answers."""

    name: ClassVar[str] = "dead"
    instruction: str | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Restart(Fault):
    """The servo loses power for a moment before it answers: torque off, unsaved registers forgotten."""

    name: ClassVar[str] = "restart"


@dataclass(frozen=True, kw_only=True)
class Unplugged(Fault):
    """The adapter leaves the host: the terminal hangs up."""

    name: ClassVar[str] = "unplugged"


FAULTS: dict[str, type[Fault]] = {
    each.name: each for each in (Lost, Corrupt, Short, Late, Slow, ErrorBits, Dead, Restart, Unplugged)
}


def content_of(fault: Fault) -> JsonObject:
    """Return a fault as plain data, for `from_content`."""
    return {"fault": fault.name} | asdict(fault)


def from_content(content: Mapping[str, Any]) -> Fault:
    """Return the fault of ``content``: its name under "fault", and its fields. Raises ValueError for invalid ones."""
    name = content.get("fault")
    kind = FAULTS.get(str(name))
    if kind is None:
        raise ValueError(f"no fault is called '{name}'; {nearest(str(name), FAULTS)}")
    values = {key: value for key, value in content.items() if key != "fault"}
    known = {field.name: field for field in fields(kind)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"the fault '{name}' has no '{key}'; {nearest(key, known)}")
        default = known[key].default
        types = _types_of(key, default)
        if isinstance(value, bool) or not isinstance(value, types):
            raise ValueError(f"the fault '{name}' cannot take {value!r} as '{key}'")
    return kind(**values)


def _types_of(key: str, default: object) -> tuple[type, ...]:
    assert default is not MISSING
    if key == "instruction":
        return (str, type(None))
    if key in ("servo", "count"):
        return (int, type(None))
    return (int, float) if isinstance(default, float) else (int,)


class Planted:
    """Faults that wait for their requests. ``struck`` counts the requests that each kind has struck."""

    def __init__(self) -> None:
        self._waiting: list[list[Any]] = []  # fault, requests seen
        self.struck: dict[str, int] = {}

    def plant(self, fault: Fault) -> None:
        self._waiting.append([fault, 0])

    def clear(self) -> None:
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
