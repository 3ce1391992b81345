"""The distance to the machine's limit as people read it: in a ladder, a breakdown, a comparison; and without it."""

from __future__ import annotations

import json
import math

import plotly.graph_objects as go
import pytest
from support import example_runs as runs

from strobe import kinds
from strobe.results.answer import CompareResult, OptimizeResult
from strobe.results.ladder import Ladder, Rung

TREE = {"policy": (0.96, {"vision tower": 0.35, "denoise step": 0.6}), "preprocessing": 0.02}


def climbed(took: tuple[float, float, float] = (400, 300, 250), known: bool = True) -> OptimizeResult:
    measured = [
        runs.measurement(name, TREE, ms) for name, ms in zip(("as it is", "rung 1", "rung 2"), took, strict=True)
    ]
    if known:
        runs.limited(measured, ["float32", "float32", "bfloat16"])
    rungs = [Rung(name=m.name, treatment=f"treatment={i}" if i else "") for i, m in enumerate(measured)]
    ladder = Ladder(
        target_hz=20, target_ms=50, guard="", met=False, ended="no treatment remained", chosen="rung 2", rungs=rungs
    )
    return OptimizeResult(
        strobe_version="0.1.0", title="pi05: a ladder", subject=runs.SUBJECT, machine=runs.MACHINE,
        measurements=measured, ladder=ladder,
    )  # fmt: skip


def test_a_ladder_says_what_is_left_in_a_line_and_rung_by_rung():
    document = kinds.document(climbed())
    [line] = [said for said in document.answers if "take at least" in said]
    # 31.5 GFLOP a chunk: 30.5 of them at 231 GFLOP/s.
    assert line.startswith("act: 25")
    assert "mostly bfloat16, take at least 13" in line
    assert "at most 1.8" in line
    sections = {section.key: section for section in document.sections}
    rungs = sections["limit"].table
    assert [column.title for column in rungs.columns][2:] == [
        "Computes in", "GFLOP", "Moves", "% of ceiling", "At least (ms)", "× left", "× left in bfloat16",
    ]  # fmt: skip
    assert [row.cells[2] for row in rungs.rows] == ["float32", "float32", "bfloat16"]
    assert rungs.rows[0].cells[-1] is not None
    assert rungs.rows[2].cells[-1] is None
    parts = sections["roofline"].table
    assert [row.cells[0] for row in parts.rows] == ["vision tower", "denoise step", "preprocessing", "other"]
    assert "rung 2" not in sections["roofline"].title  # its label, as in the ladder
    ladder = sections["ladder"].table
    assert [column.title for column in ladder.columns][-2:] == ["At least (ms)", "% of ceiling"]
    assert json.loads(climbed().model_dump_json())["measurements"][2]["limit"]["dtype"] == "bfloat16"


def test_rungs_are_arrows_beneath_the_ceilings():
    [plot] = kinds.figures(climbed())["roofline"]
    go.Figure(data=plot.data, layout=plot.layout)  # refuses what Plotly would not draw
    roofs = [trace for trace in plot.data if trace["mode"] == "lines"]
    points = {trace["name"]: trace for trace in plot.data if trace["mode"] == "lines+markers"}
    assert [trace["name"].split(":")[0] for trace in roofs] == ["float32", "bfloat16"]
    tower = points["vision tower"]
    assert tower["marker"]["symbol"] == "arrow"
    assert tower["y"][0] < tower["y"][1] < tower["y"][2] < 231
    assert tower["x"][2] == pytest.approx(2 * tower["x"][1])  # half the bytes
    bandwidth = runs.MACHINE.ceiling.memory_gbps
    for roof in roofs:
        assert all(y <= x * bandwidth * 1.0001 for x, y in zip(roof["x"], roof["y"], strict=True))
    low, high = plot.layout["xaxis"]["range"]
    assert low < math.log10(min(tower["x"])) < high


def test_a_breakdown_and_a_comparison_have_it_too():
    result = runs.act()
    runs.limited(result.measurements[:1], ["float32"])
    assert "take at least" in " ".join(kinds.document(result).answers)
    assert {section.key for section in kinds.document(result).sections} >= {"roofline"}
    assert len(kinds.figures(result)["roofline"]) == 1
    both = climbed()
    compared = CompareResult(
        strobe_version="0.1.0", title="act", subject=both.subject, machine=both.machine, measurements=both.measurements
    )
    assert {"limit", "roofline"} <= {section.key for section in kinds.document(compared).sections}
    assert len(kinds.figures(compared)["roofline"]) == 1


def test_a_result_of_an_earlier_version_is_shown_without_it():
    result = climbed(known=False)
    old = result.model_dump(mode="json")
    for m in old["measurements"]:
        del m["limit"]
        for part in m["components"]:
            del part["gflop_by_dtype"], part["moved_bytes"]
    del old["machine"]["ceiling"]["vector_gflops"]
    document = kinds.document(OptimizeResult.model_validate(old))
    assert not {"limit", "roofline"} & {section.key for section in document.sections}
    assert "take at least" not in " ".join(document.answers)
    assert "roofline" not in kinds.figures(result)
    ladder = next(section.table for section in document.sections if section.key == "ladder")
    assert ladder.columns[-1].title == "Interval of it"


def advised(result: OptimizeResult) -> list[tuple[str, str, str]]:
    found = kinds.advise(result)
    return [(one.rule, one.level, one.title) for one in found if "limit" in one.rule]


def test_a_ladder_at_the_limit_is_told_so_and_one_far_from_it_where_the_time_goes():
    [(rule, level, title)] = advised(climbed((400, 300, 150)))
    assert (rule, level) == ("at-the-limit", "good")
    assert "rung 2" in title
    [(rule, level, title)] = advised(climbed((4000, 3000, 2500)))
    assert (rule, level) == ("far-from-the-limit", "info")
    assert title.endswith("most is lost in denoise step")
    assert advised(climbed()) == []
    assert advised(climbed(known=False)) == []
