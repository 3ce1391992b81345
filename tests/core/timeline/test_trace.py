"""The Chrome trace: valid events, one time base with torch.profiler's."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import profile

from strobe.core.timeline import Timeline, section
from strobe.core.timeline.trace import chrome_trace, export_trace, mark_clocks


def trace_events(profiler):
    return json.loads(export_trace(profiler))["traceEvents"]


def test_every_section_is_a_complete_event_with_its_path():
    with Timeline() as timeline, section("a"), section("b"):
        pass
    trace = json.loads(json.dumps(chrome_trace(timeline.sections(), metadata={"command": "x"})))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in events] == ["a", "b"]
    assert events[1]["args"]["path"] == "a / b"
    assert events[0]["ts"] == 0
    assert events[0]["ts"] <= events[1]["ts"] <= events[1]["ts"] + events[1]["dur"] <= events[0]["dur"] + 1e-6
    assert trace["otherData"] == {"command": "x"}


def test_operators_fall_inside_the_section_that_ran_them():
    a = torch.randn(300, 300)
    with profile(acc_events=True) as profiler, Timeline() as timeline:
        mark_clocks()
        with section("product"):
            a @ a
    events = chrome_trace(timeline.sections(), profiled=trace_events(profiler))["traceEvents"]
    product = next(e for e in events if e.get("name") == "product")
    operator = next(e for e in events if e.get("name") == "aten::mm")
    slack = 200  # µs: the mark's own opening
    assert product["ts"] - slack <= operator["ts"]
    assert operator["ts"] + operator["dur"] <= product["ts"] + product["dur"] + slack


def test_an_event_without_a_time_is_left_out():
    with profile(acc_events=True) as profiler, Timeline() as timeline:
        mark_clocks()
    events = [*trace_events(profiler), {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0.0, "dur": 3.0}]
    names = {event.get("name") for event in chrome_trace(timeline.sections(), profiled=events)["traceEvents"]}
    assert "strobe: start" in names
    assert "gemm" not in names


def test_a_profiler_without_the_mark_is_refused():
    with profile(acc_events=True) as profiler, Timeline() as timeline, section("x"):
        torch.ones(1) + 1
    with pytest.raises(ValueError, match="clocks"):
        chrome_trace(timeline.sections(), profiled=trace_events(profiler))


def test_allocations_are_counters_over_time_from_the_first_one_on():
    made = [torch.empty(1) for _ in range(2)]
    with profile(profile_memory=True, acc_events=True) as profiler, Timeline() as timeline:
        mark_clocks()
        with section("large"):
            made += [torch.empty(2**20), torch.empty(2**20)]  # 4 MiB each
            del made[-1]
    profiled = trace_events(profiler)
    assert any(event.get("name") == "[memory]" for event in profiled)
    events = chrome_trace(timeline.sections(), profiled=profiled)["traceEvents"]
    assert not any(event.get("name") == "[memory]" for event in events)
    points = [event for event in events if event["ph"] == "C"]
    assert {event["name"] for event in points} == {"memory: CPU"}
    large = next(event for event in events if event.get("name") == "large")
    inside = [p["args"]["MiB"] for p in points if 0 <= p["ts"] - large["ts"] <= large["dur"] + 200]
    assert inside == pytest.approx([4, 8, 4], abs=0.1)


def test_memory_of_a_device_is_all_that_it_has_in_use():
    with profile(acc_events=True) as profiler, Timeline() as timeline:
        mark_clocks()
    profiled = trace_events(profiler)
    seen = {"Device Type": 1, "Device Id": 0, "Total Allocated": 3 * 2**20, "Bytes": 2**20, "Total Reserved": 2**22}
    at = next(event["ts"] for event in profiled if event.get("name") == "strobe: start")
    profiled.append({"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": seen})
    events = chrome_trace(timeline.sections(), profiled=profiled)["traceEvents"]
    (point,) = (event for event in events if event["ph"] == "C")
    assert (point["name"], point["args"]) == ("memory: device 0", {"MiB": 3.0})
