"""From torch.profiler's events to top operators, kernels and gaps: on CPU from a run, for CUDA from such events."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import torch
from torch.profiler import profile, record_function

from strobe.core.timeline.trace import export_trace
from strobe.traces.operator_table import MARK, operator_profile

ORIGIN = 5_241_338_716_021.337  # µs: torch's times are since boot or since 1970


def event(cat, name, start, took, tid: Any = 1, **args: Any):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ORIGIN + start, "dur": took, "args": args}


def launched_kernel(correlation, launch, start, took, name="gemm", stream=7):
    """A kernel with the call that launched it, as CUPTI reports them."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", launch, 4, correlation=correlation),
        event("kernel", name, start, took, tid=stream, correlation=correlation, device=0, stream=stream),
    ]


# 1 ms: two streams at first; launched late; queued behind another stream; a copy that the host waits for.
CUDA = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    event("user_annotation", MARK, 0, 1000),
    event("gpu_user_annotation", MARK, 100, 900, tid=7),
    event("cpu_op", "aten::linear", 80, 20, **{"Input Dims": [[8, 64], [64, 64], []]}),
    event("cpu_op", "aten::addmm", 85, 10, **{"Input Dims": [[64], [8, 64], [64, 64]]}),
    *launched_kernel(1, 90, 100, 150),
    *launched_kernel(2, 95, 200, 100, name="elementwise", stream=8),
    *launched_kernel(3, 380, 400, 100),
    *launched_kernel(4, 300, 520, 80),
    event("cuda_runtime", "cudaStreamSynchronize", 500, 105),
    *launched_kernel(5, 640, 650, 50),
    event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 700.005, 100, tid=7, correlation=6),
    event("kernel", "before the iteration", -50, 10, tid=7, correlation=99),
]


def test_kernels_and_gaps_of_a_device():
    seen = operator_profile(CUDA, "inference")
    assert seen.iteration_ms == pytest.approx(1)
    assert (seen.kernel_calls, seen.kernel_median_us) == (6, pytest.approx(100))
    top = seen.kernels[0]
    assert (top.name, top.calls, top.total_ms) == ("gemm", 4, None)
    assert top.own_ms == pytest.approx(0.38)
    assert top.share == pytest.approx(0.38)
    assert seen.device is not None
    assert seen.device.busy_ms == pytest.approx(0.2 + 0.1 + 0.08 + 0.05 + 0.1)
    assert seen.device.idle_ms + seen.device.busy_ms == pytest.approx(seen.device.span_ms)
    causes = {cause.cause: (cause.gaps, pytest.approx(cause.ms, abs=1e-5)) for cause in seen.device.causes}
    assert causes == {
        "after the last kernel": (1, 0.2),
        "before the first kernel": (1, 0.1),
        "nothing was launched yet": (1, 0.1),
        "the host synchronised": (1, 0.05),
        "launched, but not begun": (1, 0.02),
    }
    assert seen.device.gaps == 5  # the 5 ns before the copy are no gap


def test_kernels_without_a_time_are_not_judged():
    """As on a virtual machine with an H100, whose profiler gave all kernels the time 0."""
    events = [{**e, "ts": 0.0} if e.get("cat") in ("kernel", "gpu_memcpy", "cuda_runtime") else e for e in CUDA]
    seen = operator_profile(events, "inference")
    assert (seen.kernel_calls, seen.device) == (0, None)
    assert "7 kernels and copies ran" in (seen.device_not_judged or "")
    assert not operator_profile(CUDA, "inference").device_not_judged


def test_a_long_gap_is_named_by_what_is_around_it():
    late = [
        *launched_kernel(1, 90, 100, 150),
        *launched_kernel(2, 3700, 3750, 50, name="late"),
        *launched_kernel(3, 3810, 3900, 20),
    ]
    seen = operator_profile([event("user_annotation", MARK, 0, 6000), *late], "inference")
    assert seen.device is not None
    named = [(gap.after, gap.before, pytest.approx(gap.ms, abs=1e-5)) for gap in seen.device.longest]
    assert named == [("gemm", "late", 3.5), ("gemm", "", 2.08)]
    assert seen.device.long_ms == pytest.approx(3.5 + 2.08)


def test_own_time_leaves_out_what_was_called():
    seen = operator_profile(CUDA, "inference")
    rows = {row.name: row for row in seen.operators}
    assert rows["aten::linear"].total_ms == pytest.approx(0.02)
    assert rows["aten::linear"].own_ms == pytest.approx(0.01)
    assert rows["aten::addmm"].shapes == "64, 8×64, 64×64"
    assert seen.operator_calls == 2
    assert seen.host.exposed == 0.5  # the cost of watching addmm lies inside linear


def test_operators_of_a_run_and_the_python_between_them():
    a = torch.randn(200, 200)
    with profile(record_shapes=True, acc_events=True) as profiler:
        a @ a  # outside
        with record_function(MARK):
            for _ in range(5):
                a @ a
            time.sleep(0.05)
            torch.cat([a, a])
    seen = operator_profile(json.loads(export_trace(profiler))["traceEvents"], "x")
    rows = {row.name: row for row in seen.operators}
    assert rows["aten::mm"].calls == 5
    assert rows["aten::mm"].shapes == "200×200, 200×200"
    assert rows["aten::cat"].shapes == "[200×200, 200×200]"
    assert sum(row.own_ms for row in seen.operators) == pytest.approx(seen.host.busy_ms, rel=1e-3)
    assert 50 <= seen.host.idle_ms <= seen.iteration_ms
    assert seen.host.causes[0].cause == "between operators"
    assert (seen.host.longest[0].after, seen.host.longest[0].before) == ("aten::matmul", "aten::cat")
    assert seen.host.long_ms >= 50
    assert seen.device is None
    assert seen.kernels == []


def test_events_without_the_mark_are_refused():
    with pytest.raises(ValueError, match="one iteration"):
        operator_profile(CUDA[3:], "inference")
