"""What a sweep's rows say together."""

from __future__ import annotations

from support.examples import sweeps
from support.examples.findings_results import approve_findings

from strobe.sweep.results import Axis, Cell, Sweep

BATCH = Axis(name="batch_size", values=["8", "16", "32"], numbers=[8, 16, 32], unit="samples")
CAMERAS = Axis(name="cameras", values=["1", "2"], numbers=[1, 2])


def cell(batch: int, ms: float | None, *repeats: float, **more: str) -> Cell:
    """A forward of this time; without one, a cell that failed."""
    settings = {"batch_size": str(batch), **more}
    if ms is None:
        return sweeps.cell(settings, [], "out of memory", "stopped at 9 GiB")
    made = sweeps.row(ms, batch, "training forward")
    return sweeps.cell(settings, [made.model_copy(update={"repeats": list(repeats) or made.repeats})])


def make_sweep(*cells: Cell, axes: tuple[Axis, ...] = (BATCH,)) -> Sweep:
    return sweeps.line().model_copy(update={"axes": list(axes), "cells": list(cells)})


def test_what_is_found() -> None:
    times = {"1": (100, 199), "2": (100, 120)}  # at a batch of 8 and of 16, by the number of cameras
    lines = [cell(batch, times[n][place], cameras=n) for n in times for place, batch in enumerate((8, 16))]
    apart, alike = (cell(8, 100, 100, 112), cell(16, 200, 200, 201)), (cell(8, 100, 100, 101),)
    approve_findings("sweep", {
        "throughput-flat": {
            "a throughput that grows": ("", make_sweep(cell(8, 100), cell(16, 110), cell(32, 120))),
            "the smallest batch that gives nearly all": (
                "throughput-flat", make_sweep(cell(8, 100), cell(16, 130), cell(32, 255))),
            "each line of the grid by itself": ("throughput-flat", make_sweep(*lines, axes=(BATCH, CAMERAS))),
        },
        "cells-failed": {"two of three": ("cells-failed", make_sweep(cell(8, 100), cell(16, None), cell(32, None)))},
        "repeats-differ": {
            "12 % apart": ("repeats-differ", make_sweep(*apart)),
            "1 % apart": ("", make_sweep(*alike))
        },
        ".*": {"one cell": ("", make_sweep(cell(8, 100)))},
    })  # fmt: skip
