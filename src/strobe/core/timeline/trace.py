"""The timeline as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.json_text import JsonObject
from strobe.core.timeline.sections import section
from strobe.core.timeline.timeline import Section

if TYPE_CHECKING:
    from torch.profiler import profile

MARK = "strobe: start"  # a section and a profiler annotation of this name tie the two clocks together
_ALLOCATION = "[memory]"  # an allocation, or the end of one, among the profiler's events
_FAR_US = 86_400e6  # an event a day from the mark has no time


def chrome_trace(
    sections: Sequence[Section],
    *,
    profiled: Sequence[JsonObject] | None = None,
    metadata: JsonObject | None = None,
) -> JsonObject:
    """The sections as a trace-event document; times in microseconds from the first section.

    Args:
        sections: what ``Timeline.sections`` gave. Device time, where there is any, gets a track of its own.
        profiled: the events of a ``torch.profiler.profile`` (see ``exported``), which are merged in. It must have run
            over ``mark_clocks()``, which ties its clock to ours.
        metadata: goes to ``otherData``.

    Raises:
        ValueError: events without the mark.
    """
    base = min((section.start_ns for section in sections), default=0)
    events = _Tracks(base).section_events(sections)
    if profiled is not None:
        events += _align_clock(profiled, sections, base)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": metadata or {}}


class _Tracks:
    """The tracks of a trace, one for each thread and one for its device; times from ``base`` (nanoseconds)."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._process = os.getpid()
        self._ids: dict[str, int] = {}
        self._events: list[JsonObject] = []

    def section_events(self, sections: Sequence[Section]) -> list[JsonObject]:
        """Return an event for each section's host time and one for its device time, with their tracks' names."""
        for each in sections:
            path = " / ".join(each.path)
            self._add(each.thread, each.name, path, each.start_ns, each.end_ns)
            if each.device_start_ns is not None and each.device_end_ns is not None:
                device = f"{each.thread}, on the device"
                self._add(device, each.name, path, each.device_start_ns, each.device_end_ns)
        return self._events

    def _add(self, track: str, name: str, path: str, start: int, end: int) -> None:
        self._events.append(
            {
                "ph": "X",
                "cat": "strobe",
                "name": name,
                "pid": self._process,
                "tid": self._id(track),
                "ts": (start - self._base) / 1e3,
                "dur": (end - start) / 1e3,
                "args": {"path": path},
            }
        )

    def _id(self, track: str) -> int:
        if track not in self._ids:
            number = self._ids[track] = len(self._ids) + 1
            # A low sort index puts our tracks above the profiler's.
            for name, args in (
                ("thread_name", {"name": f"strobe: {track}"}),
                ("thread_sort_index", {"sort_index": -100 + number}),
            ):
                self._events.append({"ph": "M", "name": name, "pid": self._process, "tid": number, "args": args})
        return self._ids[track]


def mark_clocks() -> None:
    """Mark a few moments in both the timeline in force and the running torch.profiler."""
    from torch.profiler import record_function

    for _ in range(3):
        with section(MARK), record_function(MARK):
            pass


def export_trace(profiler: profile) -> bytes:
    """A finished profiler's own Chrome trace, as its file would hold it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        return file.read_bytes()


def _align_clock(events: Sequence[JsonObject], sections: Sequence[Section], base: int) -> list[JsonObject]:
    theirs = [event["ts"] for event in events if event.get("name") == MARK and event.get("cat") == "user_annotation"]
    ours = [section.start_ns for section in sections if section.name == MARK]
    if not theirs or len(theirs) != len(ours):
        raise ValueError(f"no '{MARK}' in both the profiler's trace and the timeline: their clocks cannot be tied")
    # The annotation opens after the section, the first time by seconds: the least gap is the difference of the clocks.
    shift = max((our - base) / 1e3 - their for our, their in zip(sorted(ours), sorted(theirs), strict=True))
    # A profiler that cannot read the device's clock gives its events the time 0: a viewer would show days of nothing.
    near = [e for e in events if e.get("ph") == "M" or abs(e.get("ts", theirs[0]) - theirs[0]) < _FAR_US]
    return [{**event, "ts": event["ts"] + shift} if "ts" in event else event for event in _memory_over_time(near)]


def _memory_over_time(events: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the events with each allocation as a point of its device's counter, which viewers draw over time.

    The CPU's memory counts from the first allocation, since torch does not know what was in use before.
    """
    allocations = [event for event in events if event.get("name") == _ALLOCATION]
    begun: dict[str, int] = {}
    points = []
    for event in sorted(allocations, key=itemgetter("ts")):
        seen = event["args"]
        on_host, total = seen["Device Type"] == 0, seen["Total Allocated"]
        name = "memory: CPU" if on_host else f"memory: device {seen['Device Id']}"
        first = begun.setdefault(name, total - seen["Bytes"] if on_host else 0)
        points.append({**event, "ph": "C", "name": name, "args": {"MiB": (total - first) / 2**20}})
    return [*(event for event in events if event.get("name") != _ALLOCATION), *points]
