"""The events of torch.profiler's Chrome trace, read into typed rows: of a live run, or of a file from anywhere.

What a file holds nobody has checked: each value is looked at here, and what cannot be used is counted and left out.
Times become whole nanoseconds, so that they add up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, Literal, NamedTuple, TypeGuard

LONGEST_US = 1e12  # an event of eleven days was not measured but made up
LATEST_US = 1e17
FAR_NS = 86_400 * 10**9  # an event a day from the one in the middle belongs to another trace, or to none
LONGEST_NAME = 4000  # characters
_COLLECTIVE = re.compile(r"(nccl|rccl|msccl|oneccl)", re.IGNORECASE)
ON_ITS_DEVICE = ", on the device"  # how Strobe's own trace ends the name of a track of device time

DeviceKind = Literal["kernel", "copy", "set"]
Kind = Literal["operator", "runtime", "annotation", "kernel", "copy", "set"]

# Kineto's categories, those of its first versions among them; Strobe's sections count as annotations.
_KINDS: dict[str, Kind] = {
    "cpu_op": "operator",
    "Operator": "operator",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "hip_runtime": "runtime",
    "xpu_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "privateuse1_driver": "runtime",
    "Runtime": "runtime",
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "copy",
    "Memcpy": "copy",
    "gpu_memset": "set",
    "Memset": "set",
    "user_annotation": "annotation",
    "strobe": "annotation",
}


class HostCall(NamedTuple):
    """An operator of torch, a call of the device's runtime, or an annotation; in nanoseconds, on its thread."""

    name: str
    start: int
    end: int
    thread: str
    correlation: str | None = None
    shapes: str = ""


class DeviceWork(NamedTuple):
    """A kernel, a copy or a memset on a device, in nanoseconds; ``size`` is in bytes, None if it is not known.

    ``graph`` is the number of its node in a replayed graph, 0 for none.
    """

    name: str
    start: int
    end: int
    kind: DeviceKind
    device: str
    stream: str
    correlation: str | None
    size: int | None
    graph: int = 0


def is_collective(work: DeviceWork) -> bool:
    """Return whether a kernel is one of collective communication."""
    return work.kind == "kernel" and _COLLECTIVE.match(work.name) is not None


@dataclass
class Rows:
    """The events of one trace. ``left_out`` counts those that could not be used, by the reason."""

    operators: list[HostCall] = field(default_factory=list)
    runtime: list[HostCall] = field(default_factory=list)
    device: list[DeviceWork] = field(default_factory=list)
    annotations: list[HostCall] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def callers(self) -> dict[str | None, HostCall]:
        """Return a correlation → the call of the device's runtime that has it."""
        return {call.correlation: call for call in self.runtime if call.correlation is not None}

    def inside(self, begin: int, end: int) -> Rows:
        """Return the events that start in [begin, end), nanoseconds."""
        return self._those(lambda event: begin <= event.start < end)

    def _those(self, wanted: Any) -> Rows:
        chosen = ([event for event in events if wanted(event)] for events in self._lists())
        return Rows(*chosen, left_out=self.left_out)  # type: ignore[arg-type]

    def _lists(self) -> tuple[list[Any], ...]:
        return self.operators, self.runtime, self.device, self.annotations

    def drop_distant_events(self) -> Rows:
        """Return the events without those a day and more from the one in the middle, which are counted."""
        starts = [event.start for events in self._lists() for event in events]
        if not starts:
            return self
        middle = median_low(starts)
        near = self._those(lambda event: abs(event.start - middle) < FAR_NS)
        if far := len(starts) - sum(map(len, near._lists())):
            self.left_out["a day and more from the other events"] += far
        return near


def parse_rows(events: Iterable[object]) -> Rows:
    """Return the rows of a trace's events (``traceEvents``), in their order.

    Only events of known categories that have an end are read ("ph": "X", or "B" with its "E").
    """
    rows, texts, own_device, begun = Rows(), {}, set(), {}
    for event in events:
        if not isinstance(event, Mapping):
            continue
        phase, track = event.get("ph"), _track(event)
        if phase == "M" and _is_own_device(event):
            own_device.add(track)
        elif phase == "B":
            begun.setdefault(track, []).append(event)
        elif phase == "E" and begun.get(track):
            start, stop = begun[track][-1].get("ts"), event.get("ts")
            took = stop - start if _is_number(start) and _is_number(stop) else stop
            event = {**begun[track].pop(), "dur": took}
        if phase in ("X", "E"):
            _add(rows, event, texts)
    for without_end in begun.values():
        for event in without_end:
            _add(rows, {**event, "dur": None}, texts)
    rows.annotations = [each for each in rows.annotations if each.thread not in own_device]
    rows.device = list(_serialise_streams(rows.device))
    return rows


def _add(rows: Rows, event: Mapping[str, object], texts: dict[str, str]) -> None:
    """Add an event to the rows of its category, or count why it cannot be used; equal texts become one object."""
    kind, name, args = _kind(event), event.get("name"), event.get("args")
    if kind is None:
        return
    times = _times(event)
    if isinstance(times, str) or not isinstance(name, str):
        rows.left_out[times if isinstance(times, str) else "without a name"] += 1
        return
    args = args if isinstance(args, Mapping) else {}
    correlation, track = _id(args.get("correlation")), _track(event)
    name, track = texts.get(name) or texts.setdefault(name, _text(name)), texts.setdefault(track, track)
    if kind == "operator":
        shapes = _shapes(args)
        rows.operators.append(HostCall(name, *times, track, None, texts.setdefault(shapes, shapes)))
    elif kind == "runtime":
        rows.runtime.append(HostCall(name, *times, track, correlation))
    elif kind == "annotation":
        rows.annotations.append(HostCall(name, *times, track))
    else:
        device = _id(args.get("device")) or _id(event.get("pid")) or "0"
        stream = _id(args.get("stream")) or _id(event.get("tid")) or "0"
        size, graph = _size(args.get("bytes")), _size(args.get("graph node id")) or 0
        rows.device.append(DeviceWork(name, *times, kind, device, stream, correlation, size, graph))


def _serialise_streams(works: Iterable[DeviceWork]) -> Iterator[DeviceWork]:
    """Yield the work by its start, each begun where that before it on its stream has ended.

    A kernel that is launched early (programmatic dependent launch) waits for the one before: no time counts twice.
    """
    ends: dict[tuple[str, str], int] = {}
    for work in sorted(works, key=lambda work: work.start):
        stream = work.device, work.stream
        begun = min(max(work.start, ends.get(stream, work.start)), work.end)
        ends[stream] = max(work.end, ends.get(stream, work.end))
        yield work if begun == work.start else work._replace(start=begun)


def _kind(event: Mapping[str, object]) -> Kind | None:
    category = event.get("cat")
    return _KINDS.get(category) if isinstance(category, str) else None


def _is_own_device(event: Mapping[str, object]) -> bool:
    args = event.get("args")
    name = args.get("name") if event.get("name") == "thread_name" and isinstance(args, Mapping) else None
    return isinstance(name, str) and name.endswith(ON_ITS_DEVICE)


def _track(event: Mapping[str, object]) -> str:
    return f"{_id(event.get('pid'))}/{_id(event.get('tid'))}"


def _times(event: Mapping[str, object]) -> tuple[int, int] | str:
    """Return start and end in nanoseconds, or why the event has none."""
    start, took = event.get("ts"), event.get("dur")
    if took is None:
        return f"without an end ({_text(str(event.get('name')))[:60]})"
    if not _is_number(start) or not _is_number(took):
        return "with a time that is no number"
    if took < 0:
        return "with a negative duration"
    if not (-LATEST_US <= start <= LATEST_US and took <= LONGEST_US):  # NaN is in no range
        return "with a time too large to have been measured, or none"
    begin = _ns(start)
    return begin, begin + _ns(took)


def _ns(us: float) -> int:
    """Return microseconds as nanoseconds. Those since 1970 need more digits than a product of floats has."""
    whole = int(us)
    return whole * 1000 + round((us - whole) * 1e3)


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)  # True is none


def _text(name: str) -> str:
    """Return a name of bounded length that can be written as UTF-8: JSON may hold half of a surrogate pair."""
    name = name[:LONGEST_NAME]
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


def _id(value: object) -> str | None:
    """Return a thread's, a device's or a correlation's number as text; None for what cannot be one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return _text(value)[:80] if isinstance(value, str) else None


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**60 else None


def _shapes(args: Mapping[str, Any]) -> str:
    def text(dims: Any) -> str:
        if dims and all(isinstance(dim, list) for dim in dims):  # a list of tensors
            return f"[{', '.join(map(text, dims))}]"
        return "×".join(map(str, dims))

    dims = args.get("Input Dims") or args.get("Input dims") or []
    try:
        return _text(", ".join(text(one) for one in dims if one))
    except (TypeError, RecursionError):
        return ""
