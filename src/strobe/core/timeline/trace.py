"""The timeline as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.timeline.sections import section
from strobe.core.timeline.timeline import Section
from strobe.core.untrusted import JsonObject

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
    events = _section_events(sections, base)
    if profiled is not None:
        events += _align_clock(profiled, sections, base)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": metadata or {}}


def _section_events(sections: Sequence[Section], base: int) -> list[JsonObject]:
    """Return an event for each section's host time and one for its device time, each on a track that is named."""
    process, tracks = os.getpid(), dict[str, int]()
    events: list[JsonObject] = []
    for each in sections:
        spans = [(each.thread, each.start_ns, each.end_ns)]
        if each.device_start_ns is not None and each.device_end_ns is not None:
            spans.append((f"{each.thread}, on the device", each.device_start_ns, each.device_end_ns))
        for track, start, end in spans:
            if track not in tracks:
                number = tracks[track] = len(tracks) + 1
                # A low sort index puts our tracks above the profiler's.
                about = {
                    "thread_name": {"name": f"strobe: {track}"},
                    "thread_sort_index": {"sort_index": -100 + number},
                }
                events += [{"ph": "M", "name": n, "pid": process, "tid": number, "args": a} for n, a in about.items()]
            event = {"ph": "X", "cat": "strobe", "name": each.name, "pid": process, "tid": tracks[track]}
            times = {"ts": (start - base) / 1e3, "dur": (end - start) / 1e3}
            events.append({**event, **times, "args": {"path": " / ".join(each.path)}})
    return events


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
