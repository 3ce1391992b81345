"""What the report of a sweep says, and its page in a real browser."""

from __future__ import annotations

import re

import pytest
from support.checks.approval import approve_cases
from support.checks.renderings import answer_text, console_text, count_plots, root, whole
from support.examples import sweeps as examples
from support.suite.browser import Browse

from strobe.core import kinds
from strobe.sweep import page as report
from strobe.sweep.results import PartFigure, Sweep


def crashed_sweep(*reasons: str) -> Sweep:
    """A sweep whose cells have all crashed."""
    some = examples.line()
    for cell, reason in zip(some.cells, reasons, strict=True):
        cell.status, cell.reason, cell.rows = "crashed", reason, []
    return some


def test_it_is_shown_as_it_was_approved():
    interrupted, second = examples.line(status="interrupted"), examples.line(chain=True)
    interrupted.cells[2].status, interrupted.cells[2].rows = "not run", []
    second.cells[0].status, second.cells[0].reason = "timed out", "no result within 9 s"
    said = {"all crashed alike": crashed_sweep("signal 11", "signal 11", "signal 11"), "interrupted": interrupted}
    shown = {
        "a question and failures": examples.square(),
        "without a question": examples.line(),
        "a chain, with a cell that failed in its second repeat": second,
        "a comparison": examples.comparison(),
        "unlike machines": examples.unlike(),
    }
    texts = {name: answer_text(sweep) for name, sweep in said.items()}
    approve_cases("sweep", texts | {name: whole(sweep, "") for name, sweep in shown.items()})


def test_a_line_never_joins_unlike_machines():
    names = [trace["name"] for trace in report.plots(examples.unlike())["cells"][0].data]
    assert all(("resnet50" in name) == ("machine 2" in name) for name in names)


def parts(shares: dict[str, float]) -> list[PartFigure]:
    return [
        PartFigure(path=path.split("/"), other=path.endswith("other"), ms=1, share=share)
        for path, share in shares.items()
    ]


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ({"a": 0.6, "b": 0.3, "c": 0.1}, {"a": 0.7, "b": 0.25, "c": 0.05}, ["a", "b", "c"]),
        ({"a": 0.95, "a/x": 0.5, "a/y": 0.4, "b": 0.05}, {"a": 0.5, "a/x": 0.4, "b": 0.5}, ["x", "y", "b"]),
        ({"policy": 0.5, "policy/x": 0.5, "b": 0.5}, {"policy": 0.4, "policy/x": 0.4, "b": 0.6}, ["x", "b"]),
        ({"policy": 1.0}, {"policy": 1.0}, ["policy"]),
        ({"a": 0.8, "policy": 0.2, "policy/x": 0.1, "policy/other": 0.06, "other": 0.05}, {}, ["a", "x", "other"]),
        ({f"part{i}": 0.2 - i / 100 for i in range(9)}, {}, [f"part{i}" for i in range(6)]),
    ],
)
def test_the_parts_worth_a_column(first: dict[str, float], second: dict[str, float], shown: list[str]):
    some = examples.line()
    some.cells[0].rows[0].parts, some.cells[1].rows[0].parts = parts(first), parts(second)
    assert [column.title for column in report.cells(some).columns][6:] == [f"{name} %" for name in shown]


def test_a_wide_table_is_whole_in_a_file_and_says_what_a_terminal_has_no_room_for():
    in_file = console_text(examples.square(), width=80)
    assert re.search(r"8 +240x320 +inference +123\.92 +123\.46 to 124\.70 .* 40\.6 %", in_file)
    terminal = console_text(examples.square(), width=80, force_terminal=True, color_system=None)
    assert re.search(r"64 +720x960 +out of memory", terminal)
    assert re.search(r"no room here for: .*GFLOP", terminal.replace("\n", " "))


@pytest.mark.matrix
def test_the_lines_follow_the_colour_scheme(browse: Browse):
    dom = browse(kinds.page(examples.unlike()), dark=True)
    assert "data-errors" not in root(dom)
    assert count_plots(dom) == 3
    assert "fill: rgb(27, 31, 36)" not in dom
    assert "stroke: rgb(47, 111, 176)" not in dom  # the first line and its error bars are lighter on a dark ground
    assert "stroke: rgb(130, 169, 208)" in dom
