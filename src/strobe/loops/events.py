"""The events of a watched run, one record for each kind, and how they are written down.

A probe appends a bare tuple, the event's kind and its fields, since anything more would cost the robot's loop time; a
file holds the same as a JSON list. `decode` makes records of them. Times are nanoseconds of `host_ns`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from strobe.loops.measure.robot import BusRead

Row = tuple[Any, ...]  # an event as written: its kind, then its fields
UNKNOWN = -1  # value of a field that could not be measured


# Any loop.


class SectionEnded(NamedTuple):
    """A section of a thread, such as a call that is probed."""

    name: str
    start: int
    end: int
    thread: int


class LoopBegan(NamedTuple):
    """The loop's first tick begins."""

    at: int


class LoopEnded(NamedTuple):
    """The loop has ended."""

    at: int


class TickBegan(NamedTuple):
    """The loop asks the robot for an observation; of a robot client, whether there is an action."""

    start: int


class JointPositions(NamedTuple):
    """The joints' positions in the tick's observation, in the robot's unit."""

    values: list[float]


class ActionReady(NamedTuple):
    """Whether the tick has an action to send, 1 or 0."""

    at: int
    ready: int


class CommandSent(NamedTuple):
    """The command that the robot took, after its own limits."""

    values: list[float]


class CameraRead(NamedTuple):
    """A camera was read; see `CameraProbe`."""

    end: int
    camera: str
    fresh: int
    age: int = UNKNOWN


class CpuUse(NamedTuple):
    """Nanoseconds so far; see `device_probes.cpu_use`. ``waited`` is -1 where it is unknown."""

    at: int
    waited: int
    own: int
    everyone: int


class FrameRecorded(NamedTuple):
    """A frame was added to the dataset."""

    at: int


class EngineReset(NamedTuple):
    """The engine was reset, or a loop without one began another episode."""

    at: int


class Scheduled(NamedTuple):
    """The scheduling policy of the control thread."""

    at: int
    policy: str
    priority: int


class Cadence(NamedTuple):
    """A line that LeRobot's own timer reported."""

    text: str


# A policy in the loop or next to it.


class ObservationOffered(NamedTuple):
    """An engine with a thread is given an observation, or a client begins to send one; ``key`` names it."""

    at: int
    key: int


class ObservationTaken(NamedTuple):
    """The inference thread begins with that observation; of a client, a chunk for it came."""

    at: int
    key: int


class ActionRequested(NamedTuple):
    """The loop asked for an action.

    ``returned`` is 1 where it got one, ``depth`` the actions left (-1 unknown), ``chunk`` the number of the chunk that
    the action is from, ``position`` its place there.
    """

    start: int
    end: int
    returned: int
    depth: int
    chunk: int
    position: int


class ActionValues(NamedTuple):
    """The action that the loop got, a number for each joint."""

    at: int
    values: list[float]


class ChunkPredicted(NamedTuple):
    """The policy predicted a chunk of ``length`` actions.

    ``assumed`` is the inference_delay that it was given, ``left_over`` the actions left of the chunk before; None
    without Real-Time Chunking.
    """

    start: int
    end: int
    assumed: int | None
    left_over: int | None
    length: int


class CallThreadUse(NamedTuple):
    """A call on its thread: nanoseconds on a CPU, and waiting for one (-1 unknown)."""

    start: int
    end: int
    cpu: int
    waited: int


class CallRaised(NamedTuple):
    """The inference thread logs an error: its call has ended without a chunk."""

    at: int


class ChunkMerged(NamedTuple):
    """The queue took a chunk of ``length`` actions.

    ``delay`` is the actions at its start that were dropped, ``executed`` those that the robot took meanwhile,
    ``before`` and ``after`` the actions in the queue.
    """

    at: int
    delay: int
    before: int
    executed: int
    length: int
    after: int


# A robot client; ``stamps`` are times of a watched server's clock (see `remote_server`).


class ObservationUploaded(NamedTuple):
    """An observation of ``size`` bytes was sent from ``start`` to ``end``; pickling it began at ``pickled``."""

    key: int
    pickled: int
    start: int
    end: int
    size: int
    must_go: int
    stamps: list[int] | None


class ChunkReceived(NamedTuple):
    """A chunk of ``size`` bytes came for the observation ``key``; the wait for it began at ``start``."""

    key: int
    start: int
    end: int
    size: int
    stamps: list[int] | None
    unpickled: int
    merged: int


class EmptyAnswer(NamedTuple):
    """The server answered a request for a chunk with nothing; the wait for it began at ``start``."""

    start: int
    end: int


class ClockShared(NamedTuple):
    """Server and client are on one machine, and share its clock."""

    shared: int


class ImagesEncoded(NamedTuple):
    """The run's last images: bytes and nanoseconds pickled, and as JPEG of quality 95."""

    images: int
    raw: int
    raw_ns: int
    jpeg: int
    jpeg_ns: int


# A policy server, whose threads do now this, now that.


class RequestFailed(NamedTuple):
    """A request of LeRobot's remote inference failed, in a server or as its client was told.

    ``request`` is its name in LeRobot's protocol, ``error`` the exception in a line or gRPC's status, ``place`` the
    function that raised it, and ``source`` its line there; the last two are '' of a status.
    """

    at: int
    request: str
    error: str
    place: str
    source: str


class ThreadRole(NamedTuple):
    """From here on, ``thread`` does what is called ``role``."""

    thread: int
    role: str


class ObservationReceived(NamedTuple):
    """An observation of ``size`` bytes came; ``decision`` is a number of `remote_stamps`."""

    start: int
    end: int
    size: int
    decision: int
    must_go: int


class ChunkServed(NamedTuple):
    """A chunk of ``size`` bytes was made of the observation ``key``, which was taken at ``taken``, and sent."""

    taken: int
    end: int
    size: int
    key: int


RECORDS: dict[str, type[object]] = {
    "s": SectionEnded,
    "run": LoopBegan,
    "end": LoopEnded,
    "tick": TickBegan,
    "at": JointPositions,
    "pick": ActionReady,
    "sent": CommandSent,
    "camera": CameraRead,
    "bus": BusRead,
    "turns": CpuUse,
    "frame": FrameRecorded,
    "reset": EngineReset,
    "scheduled": Scheduled,
    "cadence": Cadence,
    "seen": ObservationOffered,
    "taken": ObservationTaken,
    "get": ActionRequested,
    "values": ActionValues,
    "call": ChunkPredicted,
    "used": CallThreadUse,
    "raised": CallRaised,
    "merge": ChunkMerged,
    "upload": ObservationUploaded,
    "trip": ChunkReceived,
    "shared": ClockShared,
    "empty": EmptyAnswer,
    "encoding": ImagesEncoded,
    "failed": RequestFailed,
    "role": ThreadRole,
    "observed": ObservationReceived,
    "served": ChunkServed,
}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, float) or _whole(each) for each in value)


_TYPES: dict[object, Callable[[Any], bool]] = {
    int: _whole,
    str: lambda value: isinstance(value, str),
    list[float]: _numbers,
    int | None: lambda value: value is None or _whole(value),
    list[int] | None: lambda value: value is None or (isinstance(value, list) and all(map(_whole, value))),
}
_FIELDS = {
    kind: [_TYPES[field] for field in get_type_hints(record).values()] for kind, record in RECORDS.items()
}  # fmt: skip
_HINTS = {kind: [name.removesuffix("_ns") for name in get_type_hints(record)] for kind, record in RECORDS.items()}
_SPANS = {kind: names.index("start") + 1 for kind, names in _HINTS.items() if {"start", "end"} <= set(names)}
_STAMPS = {"upload": (5, 7), "trip": (8, 5)}  # how many, and their place in the row: see `remote_server`


def decode(row: Any) -> object:
    """Return the record of an event, one of `RECORDS`; None of a kind that another Strobe writes.

    Raises:
        TypeError: it is no event, or has other fields.
    """
    if not isinstance(row, tuple) or not row or not isinstance(row[0], str):
        raise TypeError("no event")
    record = RECORDS.get(row[0])
    if record is None:
        return None
    event = record(*row[1:])
    if not all(fits(value) for fits, value in zip(_FIELDS[row[0]], row[1:], strict=False)):
        raise TypeError(f"{record.__name__} has fields of other types")
    if (stamps := _STAMPS.get(row[0])) and row[stamps[1]] is not None and len(row[stamps[1]]) != stamps[0]:
        raise TypeError(f"{record.__name__} has another number of stamps")
    if (start := _SPANS.get(row[0])) and row[start + 1] < row[start]:  # the end stands behind it
        raise TypeError(f"{record.__name__} ends before it begins")
    return event
