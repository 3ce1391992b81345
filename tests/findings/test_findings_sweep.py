"""What a sweep's rows say together."""

from __future__ import annotations

from support import example_sweeps as sweeps

from strobe.kinds import advise
from strobe.results.finding import Finding
from strobe.results.sweep import Axis, Cell, PartFigure, Row, Sweep

BATCH = Axis(name="batch_size", values=["8", "16", "32"], numbers=[8, 16, 32], unit="samples")


def forward(ms: float, batch: int, backbone: float = 0.6, repeats: tuple[float, ...] = ()) -> Row:
    made = sweeps.row(ms, batch, "training forward")
    parts = [PartFigure(path=["forward"], ms=ms, share=0.9)]
    parts += [PartFigure(path=["forward", "backbone"], ms=backbone * ms, share=0.9 * backbone)]
    update = {"phase": "training forward", "parts": parts, "repeats": list(repeats) or made.repeats}
    return made.model_copy(update=update)


def swept(*cells: Cell, axes: tuple[Axis, ...] = (BATCH,)) -> Sweep:
    return sweeps.line().model_copy(update={"axes": list(axes), "cells": list(cells)})


def told(sweep: Sweep) -> dict[str, Finding]:
    return {finding.rule: finding for finding in advise(sweep)}


def cell(batch: int, row: Row | None, **more: str) -> Cell:
    settings = {"batch_size": str(batch), **more}
    return sweeps.cell(settings, [row]) if row else sweeps.cell(settings, [], "out of memory", "stopped at 9 GiB")


def test_a_throughput_that_grows_says_nothing():
    sweep = swept(cell(8, forward(100, 8)), cell(16, forward(110, 16)), cell(32, forward(120, 32)))
    assert "throughput-flat" not in told(sweep)


def test_the_smallest_batch_that_gives_nearly_all_is_named():
    sweep = swept(cell(8, forward(100, 8)), cell(16, forward(130, 16)), cell(32, forward(255, 32)))
    found = told(sweep)["throughput-flat"]
    assert "From batch size 16 on" in found.title
    assert found.evidence["batch"] == 16


def test_each_line_of_the_grid_is_judged_by_itself():
    cells = [cell(b, forward(ms, b), cameras="1") for b, ms in ((8, 100), (16, 199))]
    cells += [cell(b, forward(ms, b), cameras="2") for b, ms in ((8, 100), (16, 120))]
    cameras = Axis(name="cameras", values=["1", "2"], numbers=[1, 2])
    found = [f for f in advise(swept(*cells, axes=(BATCH, cameras))) if f.rule == "throughput-flat"]
    assert [f.title.endswith("(cameras=1)") for f in found] == [True]


def test_the_backbone_s_share_over_all_variations():
    sweep = swept(
        cell(8, forward(100, 8, backbone=0.45)), cell(16, forward(200, 16, backbone=0.6)),
        cell(32, forward(400, 32, backbone=0.72)))  # fmt: skip
    found = told(sweep)["backbone-share"]
    assert "45 % to 72 %" in found.title
    assert found.evidence["viable"] == 1
    assert found.evidence["small"] == 1
    assert "Least at batch_size=8" in found.seen


def test_failed_cells_are_counted_with_a_reason():
    found = told(swept(cell(8, forward(100, 8)), cell(16, None), cell(32, None)))["cells-failed"]
    assert "2 of 3 cells" in found.title
    assert "2 out of memory" in found.title
    assert "stopped at 9 GiB" in found.seen


def test_repeats_that_differ_warn_and_those_that_agree_do_not():
    apart = swept(cell(8, forward(100, 8, repeats=(100, 112))), cell(16, forward(200, 16, repeats=(200, 201))))
    assert "12 %" in told(apart)["repeats-differ"].title
    assert "repeats-differ" not in told(swept(cell(8, forward(100, 8, repeats=(100, 101)))))


def test_a_healthy_sweep_of_one_cell_says_nothing():
    assert told(swept(cell(8, forward(100, 8)))) == {}
