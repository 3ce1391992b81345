"""The timeline as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.profiler import profile

from strobe.timeline.timeline import Section

MARK = "strobe: start"  # a section and a profiler annotation of this name tie the two clocks together


def chrome_trace(
    sections: Sequence[Section], *, profiler: profile | None = None, metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The sections as a trace-event document; times in microseconds from the first section.

    Args:
        sections: what ``Timeline.sections`` gave. Device time, where there is any, gets a track of its own.
        profiler: a finished ``torch.profiler.profile`` whose operators and kernels are merged in. It must have run
            over a section and a ``record_function`` both called ``MARK``, which ties its clock to ours.
        metadata: goes to ``otherData``.

    Raises:
        ValueError: a profiler without the mark.
    """
    events: list[dict[str, Any]] = []
    base = min((section.start_ns for section in sections), default=0)
    process = os.getpid()
    threads: dict[str, int] = {}

    def track(thread: str) -> int:
        if thread not in threads:
            threads[thread] = len(threads) + 1
            events.append(
                {
                    "ph": "M",
                    "name": "thread_name",
                    "pid": process,
                    "tid": threads[thread],
                    "args": {"name": f"strobe: {thread}"},
                }
            )
            events.append(
                {
                    "ph": "M",
                    "name": "thread_sort_index",
                    "pid": process,
                    "tid": threads[thread],
                    "args": {"sort_index": -100 + threads[thread]},
                }
            )
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

    for section in sections:
        path = " / ".join(section.path)
        events.append(interval(section.name, path, section.start_ns, section.end_ns, track(section.thread)))
        if section.device_start_ns is not None and section.device_end_ns is not None:
            events.append(
                interval(
                    section.name,
                    path,
                    section.device_start_ns,
                    section.device_end_ns,
                    track(f"{section.thread}, on the device"),
                )
            )
    if profiler is not None:
        events += _profiler_events(profiler, sections, base)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": metadata or {}}


def _profiler_events(profiler: profile, sections: Sequence[Section], base: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    theirs = next((event["ts"] for event in events if event.get("name") == MARK and "ts" in event), None)
    ours = next((section.start_ns for section in sections if section.name == MARK), None)
    if theirs is None or ours is None:
        raise ValueError(f"no '{MARK}' in both the profiler's trace and the timeline: their clocks cannot be tied")
    shift = (ours - base) / 1e3 - theirs
    return [{**event, "ts": event["ts"] + shift} if "ts" in event else event for event in events]
