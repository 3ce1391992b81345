"""Iterations and parts are found where a program names them, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.examples.made_trace import annotation, document, operator, step, training, work, write

from strobe.traces.annotations import iterations, parts
from strobe.traces.occupancy import DEEPEST, Nest
from strobe.traces.profiler_events import parse_rows
from strobe.traces.results import TraceIterations, TracePart
from strobe.traces.run import trace


def find_iterations(events: list[dict[str, Any]]) -> TraceIterations | None:
    return iterations(parse_rows(events))


def cut(events: list[dict[str, Any]]) -> dict[tuple[str, ...], TracePart]:
    rows = parse_rows(events)
    return {tuple(part.path): part for part in parts(rows, Nest(rows.annotations))}


def test_the_profilers_steps_are_the_iterations():
    seen = find_iterations([*training(steps=4), step(4, 4000, 40)])
    assert seen is not None
    assert seen.name == "ProfilerStep"
    assert seen.ms == pytest.approx([0.99] * 4), "a step without an operator is none"
    assert seen.busy_ms == pytest.approx([(60 + 200 + 100 + 100 + 2) / 1e3] * 4)
    assert seen.work == [5] * 4


def test_an_annotation_that_fills_the_trace_is_the_iterations():
    loop = [annotation("train step", place * 100, 90) for place in range(5)]
    inside = [annotation("forward", place * 100 + 5, 30) for place in range(5)]
    seen = find_iterations([operator("aten::mm", 0, 490), *loop, *inside])
    assert seen is not None
    assert (seen.name, seen.ms, seen.busy_ms) == ("train step", pytest.approx([0.09] * 5), [])


@pytest.mark.parametrize(
    "events",
    [
        [annotation("warm-up", 0, 40), annotation("warm-up", 50, 40), operator("aten::mm", 0, 90)],  # twice
        [operator("aten::mm", 0, 1000), *(annotation("log", place * 100, 10) for place in range(5))],  # a tenth
        [annotation("nested", place, 100 - place) for place in range(5)],  # one in the other
        [],
    ],
)
def test_other_annotations_are_no_iterations(events: list[dict[str, Any]]):
    assert find_iterations(events) is None


def test_parts_have_the_work_that_is_launched_in_them():
    seen = cut(training(steps=2))
    assert set(seen) == {("forward",), ("optimizer",)}
    forward = seen["forward",]
    assert (forward.calls, forward.work, forward.host_ms) == (2, 6, pytest.approx(0.6))
    assert forward.device_ms == pytest.approx(2 * (60 + 200 + 100) / 1e3)
    assert list(seen) == [("forward",), ("optimizer",)], "the longest first"


def test_a_thread_without_annotations_works_for_the_main_one():
    backward = work(1, 20, 40, 10, tid=2)
    seen = cut([annotation("backward", 0, 100), annotation("layer", 15, 10), *backward])
    assert seen["backward",].work == seen["backward", "layer"].work == 1
    elsewhere = cut([annotation("backward", 0, 100), annotation("own", 10, 30, tid=2), *backward])
    assert (elsewhere["own",].work, elsewhere["backward",].work) == (1, 0)


def test_a_path_of_annotations_has_a_bound():
    found = cut([annotation(f"level {place}", place, 10_000 - 2 * place) for place in range(2_000)])
    assert (len(found), max(map(len, found))) == (2_000, DEEPEST + 1)
    assert list(found)[-1][:2] == ("level 0", "level 1")


def test_ranges_that_cross_or_have_no_end_are_no_parts(tmp_path: Path):
    crossing = [annotation("load", 100, 400), annotation("copy", 300, 400)]
    rest = [step(0, -10, 460), annotation("whole", 0, 900), annotation("inner", 20, 50), operator("aten::mm", 30, 10)]
    rounded = [annotation("before", 750, 50), annotation("after", 799, 50)]  # whole microseconds
    open_ended = [{name: value for name, value in annotation("open", 40, 9).items() if name != "dur"}]
    begun = [{**annotation("begun", 45, 0), "ph": "B"}]
    ended = [{**annotation("ended", 860, 0), "ph": "B"}, {**annotation("", 880, 0), "ph": "E"}]
    events = [*crossing, *rest, *rounded, *open_ended, *begun, *ended, *work(1, 30, 60, 10)]
    answer = trace([write(tmp_path / "made.json", document(events))])
    (rank,) = answer.ranks
    assert {" ".join(part.path) for part in rank.parts} == {
        "whole", "whole inner", "whole before", "whole before after", "whole ended"}  # fmt: skip
    assert {part.path[-1]: part.work for part in rank.parts}["inner"] == 1
    assert "parts of made.json that cross each other: copy, load" in answer.not_judged
    (note,) = answer.notes
    assert all(f"1 event without an end ({name})" in note for name in ("open", "begun"))
    nested = trace([write(tmp_path / "made.json", document(rest))])
    assert not any("cross" in line for line in [*nested.not_judged, *nested.notes])
