"""The events of any trace become rows; what cannot be used is counted, and costs nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples.made_trace import ORIGIN, annotation, event, operator, work

from strobe.traces.operator_table import blocking_calls, launches
from strobe.traces.profiler_events import parse_rows


def test_each_category_has_its_rows():
    own = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 9, "args": {"name": "strobe: main, on the device"}}
    rows = parse_rows(
        [
            own,
            operator("aten::mm", 0, 10, **{"Input Dims": [[2, 3], [3, 4]]}),
            annotation("forward", 0, 20),
            event("strobe", "vision", 0, 5),
            event("strobe", "vision", 0, 4, tid=9),  # device time of Strobe's own trace
            event("gpu_user_annotation", "forward", 0, 20),
            *work(1, 2, 5, 10, bytes=8),
            *work(2, 2, 5, 10, "Memset (Device)", cat="Memset"),
            event("python_function", "main", 0, 20),
        ]
    )
    assert [(each.name, each.shapes) for each in rows.operators] == [("aten::mm", "2×3, 3×4")]
    assert [each.name for each in rows.annotations] == ["forward", "vision"]
    assert [(each.kind, each.device, each.stream, each.size) for each in rows.device] == [
        ("kernel", "0", "7", 8),
        ("set", "0", "7", None),
    ]
    assert [call.name for call in rows.runtime] == ["cudaLaunchKernel"] * 2
    assert not rows.left_out


def test_times_since_1970_keep_their_nanoseconds():
    (whole,) = parse_rows([{**operator("a", 0, 3), "ts": ORIGIN + 1}]).operators
    assert (whole.start, whole.end) == ((ORIGIN + 1) * 1000, (ORIGIN + 4) * 1000)
    (fraction,) = parse_rows([{**operator("a", 0, 0.125), "ts": 4203669604595.407}]).operators
    assert fraction.start == 4203669604595407
    assert fraction.end - fraction.start == 125


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"ts": math.nan}, "with a time too large to have been measured, or none"),
        ({"dur": math.inf}, "with a time too large to have been measured, or none"),
        ({"ts": 10**400}, "with a time too large to have been measured, or none"),
        ({"dur": 1e300}, "with a time too large to have been measured, or none"),
        ({"dur": -1}, "with a negative duration"),
        ({"ts": "12"}, "with a time that is no number"),
        ({"ts": True}, "with a time that is no number"),
        ({"ts": None}, "with a time that is no number"),
        ({"name": ["a"]}, "without a name"),
    ],
)
def test_an_event_that_cannot_be_used_is_counted(changed: dict[str, Any], why: str):
    rows = parse_rows([operator("good", 0, 1), {**operator("bad", 0, 1), **changed}])
    assert [call.name for call in rows.operators] == ["good"]
    assert dict(rows.left_out) == {why: 1}


def test_an_event_of_another_day_is_left_out():
    rows = parse_rows([*(operator("a", place, 1) for place in range(3)), {**operator("stray", 0, 1), "ts": 0}])
    near = rows.drop_distant_events()
    assert [call.name for call in near.operators] == ["a"] * 3
    assert dict(near.left_out) == {"a day and more from the other events": 1}


def test_names_that_cannot_be_written_are_made_so():
    (call,) = parse_rows(json.loads(json.dumps([operator("a\ud800b" + "x" * 9999, 0, 1)]))).operators
    assert call.name.startswith("a?b")
    assert len(call.name.encode()) == 4000


def test_a_copy_holds_the_host_only_where_its_call_outlasts_it():
    copy: dict[str, Any] = {"cat": "gpu_memcpy", "call": "cudaMemcpyAsync"}
    rows = parse_rows(
        [
            *work(1, 0, 50, 10, "Memcpy DtoH", **copy),  # the call returns at once
            *work(2, 100, 150, 10, "Memcpy DtoH", call_took=61, **copy),
            event("cuda_runtime", "hipMemcpyWithStream", 300, 10),
            event("cuda_runtime", "cudaMemcpyAsync", 400, 10),
            event("cuda_runtime", "hipDeviceSynchronize", 500, 10),
            event("cuda_runtime", "cudaEventQuery", 600, 10),
        ]
    )
    held = [(call.name, kind, call.start // 1000 - ORIGIN) for call, kind in blocking_calls(rows)]
    assert held == [
        ("cudaMemcpyAsync", "copy", 100),
        ("hipMemcpyWithStream", "copy", 300),
        ("hipDeviceSynchronize", "wait", 500),
    ]
    assert [at is not None for _, at in launches(rows)] == [True, True]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=6,
)
fields = dict.fromkeys(("name", "ts", "dur", "pid", "tid", "args"), junk)
anything = junk | st.fixed_dictionaries(
    {"ph": st.just("X"), "cat": st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "user_annotation"])},
    optional={
        **fields,
        "ts": st.floats() | st.integers(),
        "dur": st.floats(),
        "args": st.dictionaries(st.sampled_from(["Input Dims", "correlation", "device", "bytes"]), junk),
    },
)


@given(st.lists(anything, max_size=8))
def test_no_event_breaks_the_reading(events: list[Any]):
    rows = parse_rows(events).drop_distant_events()
    for call in (*rows.operators, *rows.runtime, *rows.device, *rows.annotations):
        assert call.end >= call.start
        call.name.encode()
