"""The distance to the machine's limit as people read it: in a ladder, a breakdown, a comparison; and without it."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import pytest
from support.checks.approval import approve_cases
from support.checks.renderings import answer_text, whole
from support.examples import runs

from strobe.core import kinds
from strobe.core.results.answer import CompareResult
from strobe.ladder.results import Ladder, OptimizeResult, Rung

TREE = {"policy": (0.96, {"vision tower": 0.35, "denoise step": 0.6}), "preprocessing": 0.02}


def make_climb(took: tuple[float, float, float] = (400, 300, 250), known: bool = True) -> OptimizeResult:
    measured = [
        runs.measurement(name, TREE, ms) for name, ms in zip(("baseline", "step 1", "step 2"), took, strict=True)
    ]
    if known:
        runs.assign_limits(measured, ["float32", "float32", "bfloat16"])
    rungs = [Rung(name=m.name, treatment=f"treatment={i}" if i else "") for i, m in enumerate(measured)]
    ladder = Ladder(
        target_hz=20, target_ms=50, guard="", met=False, ended="no treatment remained", chosen="step 2", rungs=rungs
    )
    return OptimizeResult(
        strobe_version="0.1.0", title="pi05: a ladder", subject=runs.SUBJECT, machine=runs.MACHINE,
        measurements=measured, ladder=ladder,
    )  # fmt: skip


def test_it_is_shown_as_it_was_approved():
    breakdown, both, keys = runs.act(), make_climb(), ("limit", "roofline", "ladder")
    runs.assign_limits(breakdown.measurements[:1], ["float32"])
    compared = CompareResult(
        strobe_version="0.1.0", title="act", subject=both.subject, machine=both.machine, measurements=both.measurements
    )
    approve_cases("limits", {
        # 31.5 GFLOP a chunk: 30.5 of them at 231 GFLOP/s.
        "a ladder": whole(both, *keys),
        "a ladder at the limit": answer_text(make_climb((400, 300, 150))),
        "a ladder far from the limit": answer_text(make_climb((4000, 3000, 2500))),
        "a ladder without a limit": answer_text(make_climb(known=False)),
        "a breakdown": whole(breakdown, *keys),
        "a comparison": whole(compared, *keys),
    })  # fmt: skip


def test_rungs_are_arrows_beneath_the_ceilings():
    [plot] = kinds.figures(make_climb())["roofline"]
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


def test_a_result_of_an_earlier_version_is_shown_without_it():
    result = make_climb(known=False)
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
    assert ladder.columns[-1].title == "99 % CI"
