"""Copies of a trace from which a profiler has lost something, and whether `strobe report` answers them rightly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strobe.core.kinds import advise
from strobe.traces.results import TracedRank
from strobe.traces.run import trace

Event = Mapping[str, Any]
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
HEAD, WITHIN = 0.15, 0.01  # share of the kernels that is removed; the bar on times
IDLE = {"trace-device-idle", "trace-launch-bound", "trace-host-waits"}


def first_kernels(events: list[Event]) -> list[Event]:
    """Return the kernels that begin first, `HEAD` of them all."""
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])
    return kernels[: round(HEAD * len(kernels))]


def answers(document: dict[str, Any], file: Path) -> dict[str, str]:
    """Return for each copy what is wrong with its answer, '' for nothing; ``file`` is written over."""
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    removed = first_kernels(events)
    head = set(map(id, removed))

    def trace_events(kept: list[Event]) -> tuple[TracedRank, set[str], str]:
        file.write_text(json.dumps({**document, "traceEvents": kept}))
        answer = trace([file])
        return answer.ranks[0], {finding.rule for finding in advise(answer)}, " ".join(answer.not_judged)

    whole, *_ = trace_events(events)
    without = {
        "the first 15 % of kernels": [event for event in events if id(event) not in head],
        "all kernels": [event for event in events if event.get("cat") != "kernel"],
        "all work on the device": [event for event in events if event.get("cat") not in ON_DEVICE],
        "correlations": [_strip_correlation(event) for event in events],
    }
    wrong = {}
    for name, kept in without.items():
        rank, ids, not_judged = trace_events(kept)
        if name.startswith("all"):
            right = not rank.devices and not ids & IDLE and "trace-lost-kernels" in ids and "no access" in not_judged
            right &= rank.lost_launches == rank.launches == whole.launches
            wrong[name] = "" if right else f"{len(rank.devices)} devices, {sorted(ids)}: {not_judged}"
        elif name == "correlations":
            wrong[name] = _describe_unmatched(rank, whole, not_judged)
        else:
            wrong[name] = _headless(rank, events, removed, ids)
    return wrong


def _strip_correlation(event: Event) -> Event:
    if event.get("cat") not in ON_DEVICE:
        return event
    return {**event, "args": {name: value for name, value in event["args"].items() if name != "correlation"}}


def _describe_unmatched(rank: TracedRank, whole: TracedRank, not_judged: str) -> str:
    """Without correlations: the same times, and not a word on launches."""
    (device,), (of_whole,) = rank.devices, whole.devices
    if (device.gaps.busy_ms, device.gaps.idle_ms) != (of_whole.gaps.busy_ms, of_whole.gaps.idle_ms):
        return "busy or idle time changed"
    kinds = {cause.kind for cause in device.gaps.causes} & {"idle", "queued"}
    if kinds or device.launch_bound or rank.lost_launches or any(part.work for part in rank.parts):
        return f"something is said of launches: {kinds}, {device.launch_bound}, {rank.lost_launches}"
    return "" if "correlation" in not_judged else "nothing says that launches are not judged"


def _headless(rank: TracedRank, events: list[Event], removed: list[Event], ids: set[str]) -> str:
    """Without the first kernels: all are counted, and the other time is as in the whole trace, by its own events."""
    if rank.lost_launches != len(removed) or not rank.lost_first or "trace-lost-kernels" not in ids:
        return f"{rank.lost_launches} of {len(removed)} are counted; {sorted(ids)}"
    numbers = {event["args"]["correlation"] for event in removed}
    launched = min(e["ts"] for e in events if "runtime" in e["cat"] and e["args"].get("correlation") in numbers)
    lost = set(map(id, removed))
    rest = [event for event in events if event.get("cat") in ON_DEVICE and id(event) not in lost]
    begin, end = launched, min(event["ts"] for event in rest if event["cat"] == "kernel")
    pieces = [(event["ts"], event["ts"] + event["dur"]) for event in rest]
    outside = [(max(start, end), stop) for start, stop in pieces if stop > end]
    outside += [(start, min(stop, begin)) for start, stop in pieces if start < begin]
    busy, reached = 0.0, float("-inf")
    for start, stop in sorted(outside):
        busy, reached = busy + max(stop - max(start, reached), 0.0), max(reached, stop)
    gaps = rank.devices[0].gaps
    if abs(gaps.busy_ms * 1e3 - busy) > WITHIN * busy:
        return f"busy for {gaps.busy_ms} ms outside of what is lost, where the events say {busy / 1e3}"
    first, last = min(start for start, _ in pieces), max(stop for _, stop in pieces)
    unjudged, whole = max(end - max(begin, first), 0.0), last - first
    if abs(gaps.unjudged_ms * 1e3 - unjudged) > WITHIN * whole or abs(gaps.span_ms * 1e3 + unjudged - whole) > 1:
        return f"not judged for {gaps.unjudged_ms} ms, where the events say {unjudged / 1e3}"
    its = rank.iterations
    return "an iteration that lacks kernels has a busy time" if its and its.busy_ms[0] is not None else ""
