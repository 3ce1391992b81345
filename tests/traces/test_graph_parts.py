"""Parts of a replayed graph are those of the same kernels launched one by one; another sequence has none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.examples.made_trace import ORIGIN, annotation, document, event, write

from strobe.core.kinds import document as page_of
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.report import markdown
from strobe.core.studies.shared.measuring import Options
from strobe.core.timeline.trace import export_trace
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.traces import operators
from strobe.traces.graph_parts import graph_times
from strobe.traces.operator_table import MARK
from strobe.traces.profiler_events import parse_rows
from strobe.traces.results import GraphTime
from strobe.traces.run import trace

# A call: its parts with the kernels of each, and the microseconds that a kernel takes by itself.
VISION, STEP = ["conv", "norm", "gemm"], ["gemm", "norm", "gemm", "add"]
CALL = [("vision", VISION), ("step", STEP), ("step", STEP)]
KERNELS = [name for _, names in CALL for name in names]
Event = dict[str, Any]


def eager(at: float = 0, parts: list[tuple[str, list[str]]] | None = None, first: int = 1000) -> list[Event]:
    """Each kernel launched by itself, 20 µs apart and 8 µs long."""
    events, now, number = [], at, first
    for name, kernels in CALL if parts is None else parts:
        events.append(annotation(name, now, 20 * len(kernels)))
        for kernel in kernels:
            events.append(event("cuda_runtime", "cudaLaunchKernel", now + 1, 4, correlation=number))
            on_device = event("kernel", kernel, now + 8, 8, tid=7, correlation=number, device=0, stream=7)
            events.append({**on_device, "pid": 0})
            now, number = now + 20, number + 1
    return [annotation("call", at, now - at), *events]


def graph_replay_events(
    at: float = 0, names: list[str] | None = None, number: int = 1, launch: str = "cudaGraphLaunch"
) -> list[Event]:
    """The kernels one after the other in a graph, 5 µs long each."""
    launched = event("cuda_runtime", launch, at + 1, 5, correlation=number)
    events, now = [annotation("chunk", at, 90), launched], at + 10
    for node, name in enumerate(KERNELS if names is None else names, 1):
        more = {"correlation": number, "graph node id": node, "device": 0, "stream": 7}
        events.append({**event("kernel", name, now, 5, tid=7, **more), "pid": 0})
        now += 5
    return events


def compare_graph(graph: list[Event], alone: list[Event]) -> GraphTime:
    (seen,) = graph_times(parse_rows(graph), parse_rows(alone))
    return seen


def test_a_graph_s_parts_have_the_time_of_their_kernels_in_the_graph():
    seen = compare_graph(graph_replay_events(), eager())
    assert (seen.name, seen.replays, seen.work, seen.matched, seen.not_judged) == ("chunk", 1, 11, 11, None)
    assert (seen.device_ms, seen.busy_ms, seen.median_us) == pytest.approx((0.055, 0.055, 5))
    parts = {tuple(part.path): part for part in seen.parts}
    assert list(parts) == [("call",), ("call", "step"), ("call", "vision")], "the longest first"
    vision, step = parts["call", "vision"], parts["call", "step"]
    assert (vision.work, vision.device_ms, vision.alone_ms) == (3, pytest.approx(0.015), pytest.approx(0.024))
    assert (step.work, step.device_ms, step.busy_ms) == (8, pytest.approx(0.04), pytest.approx(0.04))


@pytest.mark.parametrize(
    ("names", "matched"),
    [
        (["conv", "norm", "fused", *KERNELS[4:]], 2),  # two kernels are one
        ([KERNELS[1], KERNELS[0], *KERNELS[2:]], 1),  # in another order
        ([*KERNELS, "add"], 11),  # one more
    ],
    ids=["fused", "reordered", "another count"],
)
def test_another_sequence_of_kernels_is_not_judged(names, matched):
    seen = compare_graph(graph_replay_events(names=names), eager())
    assert seen.parts == []
    assert seen.matched == matched
    assert f"{matched} come" in (seen.not_judged or "")
    assert seen.work == len(names), "the whole is known all the same"
    assert seen.device_ms == pytest.approx(0.005 * len(names))


def test_what_a_graph_cannot_hold_may_stand_between():
    copy = {**event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 17, 1, tid=7, correlation=1001), "pid": 0}
    noise = {**event("kernel", "distribution_elementwise_grid_stride_kernel", 37, 1, tid=7, correlation=1002), "pid": 0}
    assert compare_graph(graph_replay_events(), [*eager(), copy, noise]).matched == 11


def test_a_graph_replayed_in_a_loop_has_the_parts_of_each_time():
    loop = [*graph_replay_events(0, STEP, 1), *graph_replay_events(200, STEP, 2)]
    seen = compare_graph(loop, eager(parts=[("first step", STEP), ("second step", STEP)]))
    assert (seen.replays, seen.work) == (2, 8)
    assert {tuple(part.path): part.work for part in seen.parts}["call", "second step"] == 4


def test_kernels_that_come_in_other_parts_more_often_than_in_the_graph_are_not_judged():
    seen = compare_graph(graph_replay_events(names=STEP), eager(parts=[("first step", STEP), ("second step", STEP)]))
    assert seen.parts == []
    assert "2 times" in (seen.not_judged or "")
    # In the same part each time it does not matter which.
    assert compare_graph(graph_replay_events(names=STEP), eager()).parts


def test_kernels_in_no_annotation_are_not_judged():
    without = [each for each in eager() if each["cat"] != "user_annotation"]
    assert "no annotation" in (compare_graph(graph_replay_events(), without).not_judged or "")


def test_a_trace_with_both_shows_the_graph_s_parts(tmp_path: Path):
    for call in ("cudaGraphLaunch", "hipGraphLaunch"):
        file = write(tmp_path / f"{call}.json", document([*eager(), *graph_replay_events(1000, launch=call)]))
        answer = trace([file])
        (graph,) = answer.ranks[0].graphs
        assert graph.matched == 11
        page = markdown.render(page_of(answer))
        assert "Inside replayed graphs" in page
        alone = write(tmp_path / "alone.json", document(graph_replay_events(1000)))
        (unknown,) = trace([alone]).ranks[0].graphs
        assert unknown.not_judged
        assert unknown.busy_ms == pytest.approx(0.055)
        assert "not judged" in markdown.render(page_of(trace([alone])))


def test_a_trace_without_graphs_has_no_such_table(tmp_path: Path):
    answer = trace([write(tmp_path / "eager.json", document(eager()))])
    assert answer.ranks[0].graphs == []
    assert "Inside replayed graphs" not in markdown.render(page_of(answer))


@dataclass
class MadeUpGraph(Treatment):
    """Stands for a graph, and notes when it is applied and reverted."""

    noted: list[str]
    builds = "captured"
    effect = "exact"

    def apply(self, subject: object) -> Any:
        self.noted.append("on")
        return lambda: self.noted.append("off")


def test_operators_of_a_variant_with_a_graph_are_held_against_the_same_variant_without(monkeypatch):
    noted, runs = [], []

    def export_made_up_trace(profiler: Any) -> bytes:
        """The trace of this CPU, with work on a device that is made up in the middle of the iteration."""
        content = json.loads(export_trace(profiler))
        mark = next(e for e in content["traceEvents"] if e["name"] == MARK and e.get("cat") == "user_annotation")
        with_graph = noted.count("on") > len(runs)
        runs.append(with_graph)
        events = [
            each for each in (graph_replay_events() if with_graph else eager()) if each["cat"] != "user_annotation"
        ]
        shift = mark["ts"] + mark["dur"] / 2 - ORIGIN
        content["traceEvents"] += [{**each, "ts": each["ts"] + shift} for each in events]
        return json.dumps(content).encode()

    monkeypatch.setattr(operators, "export_trace", export_made_up_trace)
    monkeypatch.setattr(operators, "TRIES", 1)
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    variant = Variant("a variant", (MadeUpGraph(noted),))
    seen = operators.profile_operators(subject, "inference", variant, "inference", Options(SamplingBudget())).profile
    assert runs == [True, False]
    assert [found.matched for found in seen.graphs] == [11]
    assert sum(part.work for part in seen.graphs[0].parts if len(part.path) == 1) == 11
    assert seen.graph_kernels == 11
    assert noted == ["on", "off"]
