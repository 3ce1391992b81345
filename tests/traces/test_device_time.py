"""Busy time by kind, launch-bound stretches, copies and synchronisations, against sums by hand."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples.made_trace import ORIGIN, annotation, chain, document, event, operator, training, work, write

from strobe.core.kinds import advise
from strobe.core.kinds import document as page_of
from strobe.core.report import markdown
from strobe.traces import device_time as module
from strobe.traces.annotations import parts
from strobe.traces.occupancy import Nest
from strobe.traces.operator_table import kernel_classes
from strobe.traces.profiler_events import parse_rows
from strobe.traces.results import DeviceTime
from strobe.traces.run import trace

COPY: dict[str, Any] = {"cat": "gpu_memcpy", "call": "cudaMemcpyAsync"}
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"


def time_device(events: list[dict[str, Any]]) -> DeviceTime:
    rows = parse_rows(events)
    return module.device_time(rows, "card", Nest(rows.annotations))


def union(pieces: list[tuple[float, float]]) -> float:
    """Length of a union, by how many pieces cover each stretch between two edges."""
    edges = np.unique([edge for piece in pieces for edge in piece])
    middles = (edges[1:] + edges[:-1]) / 2
    covered = [any(start < middle < end for start, end in pieces) for middle in middles]
    return float(np.sum(np.diff(edges) * covered)) if len(edges) > 1 else 0.0


KINDS = [("kernel", "gemm"), ("kernel", "ncclDevKernel_AllReduce"), ("gpu_memcpy", "Memcpy"), ("gpu_memset", "Memset")]
pieces = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 300), st.integers(1, 80)), min_size=1, max_size=14)


@given(pieces)
def test_times_are_those_of_unions_by_hand(made):
    events = [
        each
        for number, ((cat, name), start, took) in enumerate(made)
        for each in work(number, 0, start, took, name, cat=cat, stream=number)
    ]

    def total_time(*names: str) -> float:
        return union([(start, start + took) for (_, name), start, took in made if name in names]) / 1e3

    seen = time_device(events)
    everything = total_time("gemm", "ncclDevKernel_AllReduce", "Memcpy", "Memset")
    span = (max(start + took for _, start, took in made) - min(start for _, start, _ in made)) / 1e3
    assert seen.gaps.span_ms == pytest.approx(span)
    assert seen.gaps.busy_ms == pytest.approx(everything)
    assert seen.compute_ms == pytest.approx(total_time("gemm"))
    assert seen.communication_ms == pytest.approx(total_time("ncclDevKernel_AllReduce"))
    assert seen.copies_ms == pytest.approx(total_time("Memcpy", "Memset"))
    # What runs alone and what is computed add up to all busy time.
    assert seen.compute_ms + seen.exposed_communication_ms + seen.exposed_copies_ms == pytest.approx(everything)
    slices = np.array(seen.busy_shares)
    assert np.mean(slices) * span == pytest.approx(everything, abs=0.02)


def test_a_stretch_is_launch_bound_where_each_kernel_begins_at_once():
    busy = [each for number in range(100) for each in work(number, number * 5, 500 + number * 50, 49)]
    seen = time_device([annotation("head", 6000, 900), *busy, *chain(40, begin=6000)])
    bound = seen.launch_bound
    assert bound is not None
    assert (bound.stretches, bound.kernels, bound.within) == (1, 40, "head")
    assert bound.ms == pytest.approx((39 * 20 + 5) / 1e3)
    assert bound.idle_ms == pytest.approx(39 * 15 / 1e3)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (chain(19), "too few"),
        ([each for n in range(40) for each in work(1, 0, n * 3, 1, call="cudaGraphLaunch")], "one launch of a graph"),
        ([*chain(15), *work(1, 250, 300, 5), *chain(15, begin=320)], "a kernel that stood in a queue is between them"),
        (chain(40, period=20, took=19), "the host keeps up"),
        ([each for n in range(40) for each in work(n, n * 5, 500 + n * 50, 10)], "they stand in a queue"),
        ([each for n in range(40) for each in work(n, n * 2000, n * 2000 + 6, 10)], "pauses of milliseconds"),
        ([event("kernel", "gemm", n * 20, 5, 7, device=0) for n in range(40)], "no launch is known"),
    ],
)
def test_other_stretches_are_not(events: list[dict[str, Any]], why: str):
    assert time_device(events).launch_bound is None, why


def test_another_stream_that_works_is_no_idle_time():
    beside = work(1, 0, 6, 39 * 20, "other", stream=9)
    assert time_device([*chain(40), *beside]).launch_bound is None


def test_copies_are_summed_by_kind_with_what_held_the_host():
    rows = parse_rows(
        [
            operator("aten::to", 0, 300),
            operator("aten::copy_", 5, 290),
            *work(1, 10, 20, 30, PAGEABLE, bytes=1000, **COPY),
            *work(2, 100, 120, 50, PAGEABLE, call_took=80, bytes=3000, **COPY),
            *work(3, 200, 220, 5, "Memset (Device)", cat="gpu_memset"),
        ]
    )
    pageable, memset = module.copies(rows)
    assert (pageable.calls, pageable.size, pageable.waited, pageable.callers) == (2, 4000, 1, ["aten::to"])
    assert (pageable.ms, pageable.waited_ms) == (pytest.approx(0.08), pytest.approx(0.08))
    assert (memset.size, memset.waited) == (None, 0)


def test_the_profilers_own_wait_at_its_end_is_no_synchronisation_of_the_program():
    end = [event("cuda_runtime", "cudaDeviceSynchronize", 5000, 100)]
    assert module.syncs(parse_rows([*training(), *end])) == []
    sync = event("cuda_runtime", "cudaStreamSynchronize", 830, 50)
    (seen,) = module.syncs(parse_rows([*training(), sync, *end]))
    assert (seen.name, seen.calls, seen.callers) == ("cudaStreamSynchronize", 1, ["aten::item"])


def test_a_long_gap_says_what_the_host_was_in():
    host = [operator("aten::empty", 30, 4000), event("cuda_runtime", "cudaMalloc", 40, 3900)]
    seen = time_device([*host, *work(1, 0, 5, 10), *work(2, 4000, 4020, 10)])
    assert [(gap.after, gap.before, gap.host) for gap in seen.gaps.longest] == [("gemm", "gemm", "cudaMalloc")]


def test_calls_around_a_moment_are_found_on_each_thread():
    nest = Nest(
        parse_rows(
            [annotation("a", 0, 100), annotation("b", 10, 20), annotation("c", 12, 3), annotation("d", 50, 9, 2)]
        ).annotations
    )

    def open_call_names(thread: str, at: float) -> list[str]:
        return [call.name for call in nest.calls_at_moment(thread, int((ORIGIN + at) * 1000))]

    assert open_call_names("1/1", 13) == ["c", "b", "a"]
    assert open_call_names("1/1", 20) == ["b", "a"]
    assert open_call_names("1/1", 30) == ["a"]
    assert open_call_names("1/1", 100) == open_call_names("1/1", -1) == open_call_names("1/9", 13) == []
    assert nest.busiest == "1/1"


def test_kernels_that_overlap_on_one_stream_count_once():
    """Programmatic dependent launch: each begins before the one in front of it has ended, and waits for that."""
    early = [e for n in range(5) for e in work(n, n * 2, 50 + n * 8, 10)]
    rows = parse_rows([annotation("part", 0, 90), *early])
    (part,), (kernels,) = parts(rows, Nest(rows.annotations)), kernel_classes(rows.device)
    assert part.device_ms == part.busy_ms == kernels.ms == pytest.approx(0.042)
    for number, each in enumerate(early):
        each["args"]["stream"] = number
    rows = parse_rows([annotation("part", 0, 90), *early])
    assert parts(rows, Nest(rows.annotations))[0].device_ms == pytest.approx(0.05)


ON_HOST = {"aten::mm": "cpu_op", "range": "user_annotation"} | dict.fromkeys(
    ("cudaStreamSynchronize", "cudaGraphLaunch"), "cuda_runtime")  # fmt: skip
NAMES = st.sampled_from([*ON_HOST, "gemm", "ncclDevKernel_AllReduce", "Memcpy DtoH"])
anything = st.lists(
    st.tuples(NAMES, st.integers(0, 40), st.integers(1, 40), st.integers(0, 2)), min_size=1, max_size=25
)


@given(anything)
def test_no_share_is_over_100_percent(made):
    events = []
    for number, (name, at, took, place) in enumerate(made):
        if name in ON_HOST:
            events.append(event(ON_HOST[name], name, at * 1000, took * 900, place, correlation=number + place))
        else:
            more = {**COPY, "stream": place} if "Memcpy" in name else {"stream": place}
            events += work(number, at * 1000 - 7, at * 1000, took * 900, name, tid=place, device=place % 2, **more)
    with tempfile.TemporaryDirectory() as folder:
        answer = trace([write(Path(folder) / "made.json", document(events))])
    answer.findings = advise(answer)
    shares = re.findall(r"([\d.,]+) %", markdown.render(page_of(answer)))
    assert all(float(share.replace(",", "")) <= 100 for share in shares)
