"""The timeline as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.profiler import profile, record_function

from strobe.timeline.sections import section
from strobe.timeline.timeline import Section

MARK = "strobe: start"  # a section and a profiler annotation of this name tie the two clocks together


def chrome_trace(
    sections: Sequence[Section],
    *,
    profiled: Sequence[dict[str, Any]] | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The sections as a trace-event document; times in microseconds from the first section.

    Args:
        sections: what ``Timeline.sections`` gave. Device time, where there is any, gets a track of its own.
        profiled: the events of a ``torch.profiler.profile`` (see ``exported``), which are merged in. It must have run
            over ``mark_clocks()``, which ties its clock to ours.
        metadata: goes to ``otherData``.

    Raises:
        ValueError: events without the mark.
    """
    events: list[dict[str, Any]] = []
    base = min((section.start_ns for section in sections), default=0)
    process = os.getpid()
    threads: dict[str, int] = {}

    def track(thread: str) -> int:
        if thread not in threads:
            threads[thread] = len(threads) + 1
            # A low sort index puts our tracks above the profiler's.
            for name, args in (
                ("thread_name", {"name": f"strobe: {thread}"}),
                ("thread_sort_index", {"sort_index": -100 + threads[thread]}),
            ):
                events.append({"ph": "M", "name": name, "pid": process, "tid": threads[thread], "args": args})
        return threads[thread]

    def interval(name: str, path: str, start: int, end: int, tid: int) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": "strobe",
            "name": name,
            "pid": process,
            "tid": tid,
            "ts": (start - base) / 1e3,
            "dur": (end - start) / 1e3,
            "args": {"path": path},
        }

    for one in sections:
        path = " / ".join(one.path)
        events.append(interval(one.name, path, one.start_ns, one.end_ns, track(one.thread)))
        if one.device_start_ns is not None and one.device_end_ns is not None:
            events.append(
                interval(
                    one.name,
                    path,
                    one.device_start_ns,
                    one.device_end_ns,
                    track(f"{one.thread}, on the device"),
                )
            )
    if profiled is not None:
        events += _on_our_clock(profiled, sections, base)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": metadata or {}}


def mark_clocks() -> None:
    """Mark a few moments in both the timeline in force and the running torch.profiler."""
    for _ in range(3):
        with section(MARK), record_function(MARK):
            pass


def exported(profiler: profile) -> bytes:
    """A finished profiler's own Chrome trace, as its file would hold it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        return file.read_bytes()


def _on_our_clock(events: Sequence[dict[str, Any]], sections: Sequence[Section], base: int) -> list[dict[str, Any]]:
    theirs = [event["ts"] for event in events if event.get("name") == MARK and event.get("cat") == "user_annotation"]
    ours = [section.start_ns for section in sections if section.name == MARK]
    if not theirs or len(theirs) != len(ours):
        raise ValueError(f"no '{MARK}' in both the profiler's trace and the timeline: their clocks cannot be tied")
    # The annotation opens after the section, the first time by seconds: the least gap is the difference of the clocks.
    shift = max((our - base) / 1e3 - their for our, their in zip(sorted(ours), sorted(theirs), strict=True))
    return [{**event, "ts": event["ts"] + shift} if "ts" in event else event for event in events]
