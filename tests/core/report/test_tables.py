"""What the reports say, whichever shape they take."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console
from support.checks.approval import approve_cases
from support.checks.renderings import answer_text, console_text, whole
from support.examples import runs
from support.examples.findings_results import make_measurement

from strobe.core import kinds
from strobe.core.report import console, markdown
from strobe.core.report.breakdown import biggest
from strobe.core.report.document import (
    Column,
    Columns,
    Row,
    Table,
    figure,
    heads,
    lift_columns,
    listing,
    scaled_column,
    words,
)
from strobe.core.results.answer import Result
from strobe.core.results.measurement import Component
from strobe.core.results.traits import BackboneTraits, Traits


@pytest.mark.parametrize("nothing", ["", "\u200b", "\U0001f3fb"])  # the last is half an emoji, of no width by itself
def test_a_table_whose_texts_have_no_width_can_be_printed(nothing: str) -> None:
    out = io.StringIO()
    console.print_table(
        Table([Column(nothing), Column(nothing, numeric=False)], [Row([nothing, nothing])]), Console(file=out)
    )
    assert out.getvalue()


def test_a_label_breaks_on_a_narrow_terminal_and_never_in_a_file() -> None:
    label = ", ".join(3 * ["a part with a long name"])
    table = Table(heads("<Part"), [Row([label])])
    for terminal in (True, False):
        out = io.StringIO()
        console.print_table(table, Console(file=out, width=40, force_terminal=terminal))
        assert (label in out.getvalue()) == (not terminal)


PAIRS: Columns[tuple[str, float | None]] = [
    words("Name", lambda pair: pair[0]),
    *lift_columns(
        lambda pair: pair[1], [scaled_column("ms", lambda ms: ms), figure("Share", lambda ms: ms, "{:.0%}".format)]
    ),
    figure("Never", lambda pair: None, str),
]


def test_a_listing_has_a_row_for_each_record_and_no_empty_column() -> None:
    (section,) = listing("pairs", "Pairs", [("a", 0.5), ("b", None)], PAIRS, "About.", decimals=1)
    assert section.table == Table(heads("<Name | ms | Share"), [Row(["a", "0.5", "50%"]), Row(["b", None, None])])
    assert section.text == ["About."]
    (section,) = listing("pairs", "Pairs", [("a", 0.5)], PAIRS, whole=True)
    assert [column.title for column in section.table.columns] == ["Name", "ms", "Share", "Never"]
    assert listing("pairs", "Pairs", [], PAIRS) == []


def test_of_a_long_list_a_terminal_shows_the_first_rows() -> None:
    rows = [Row([str(index)]) for index in range(20)]
    assert console.truncate_rows(Table(heads("<Name"), rows), limit=14).rows == rows[:14]


def make_figureless_result() -> Result:
    result = runs.act()
    for one in result.measurements[0].components:
        one.gflop = one.ceiling_share = one.peak_bytes = None
    return result


def three_variants() -> Result:
    result = runs.rtc()
    result.measurements.append(result.measurements[1].model_copy(update={"name": "compiled"}))
    result.comparisons.append(result.comparisons[0].model_copy(update={"candidate": "compiled"}))
    return result


def long_states() -> Result:
    result = runs.rtc()
    for measurement in result.measurements:
        measurement.samples.longest_state_s = 3.31
    return result


def make_contradicted_result() -> Result:
    """A verdict that contradicts the medians."""
    result = runs.rtc()
    verdict = result.comparisons[0].verdict
    verdict.interval.low, verdict.ratio, verdict.interval.high = 2.9, 3.0, 3.1
    return result


def backbone(frames: int, parts: Sequence[str] = ("decode", "preprocessing", "model", "model/encoder")) -> Result:
    """A clip of so many frames in 200 ms."""
    result = runs.act()
    (m,) = result.measurements = result.measurements[:1]
    m.traits = Traits(batch_size=1, backbone=BackboneTraits(frames_per_clip=frames))
    m.samples.summary = runs.summary([200.0])
    took = {"decode": 50.0, "preprocessing": 25.0, "model": 125.0, "model/encoder": 124.0}
    m.components = [part(path, 0.2, ms=took[path]) for path in parts]
    return result


def make_memory_result(known: bool = True) -> Result:
    """Memory of each part: two blocks that are alike, and one that is not."""
    result = runs.act()
    (m,) = result.measurements = result.measurements[:1]
    shapes = {"model": None, "model/block 0": 5, "model/block 0/attention": 2, "model/block 1": 5,
              "model/block 1/attention": 2, "model/block 2": 6, "model/other": None}  # fmt: skip
    m.components = [part(path, 0.1, path.endswith("other")) for path in shapes]
    for one, mib in zip(m.components, shapes.values() if known else (), strict=False):
        one.weight_bytes = mib and mib * 2**20
        one.kept_bytes, one.peak_bytes = (-(2**20), 3 * 2**20) if not one.other else (None, None)
    m.memory.source = "CUDA allocator"
    return result


def test_they_are_shown_as_they_were_approved():
    sides, parts, model = ("samples", "verdict", "parts"), "measurement-0", ["model", "model/encoder"]
    empty = {"measurements": [], "findings": []}
    approve_cases("tables", {
        "a breakdown": whole(runs.act(), parts),
        "a breakdown to depth 1": whole(runs.act(), parts, depth=1),
        "without figures": whole(make_figureless_result(), parts),
        "a comparison": whole(runs.rtc(), *sides),
        "three variants": whole(three_variants(), *sides),
        "a state of the machine": answer_text(long_states()),
        "a verdict that contradicts the medians": answer_text(make_contradicted_result()),
        "interrupted": answer_text(runs.act(status="interrupted")),
        "interrupted at once": answer_text(runs.act(status="interrupted", **empty)),
        "a backbone on a clip": whole(backbone(16), "samples"),
        "a backbone on an image": whole(backbone(1), "samples"),
        "a backbone on a clip without its surroundings": answer_text(backbone(16, model)),
        "a backbone on an image without its surroundings": answer_text(backbone(1, model)),
        "memory per part": whole(make_memory_result(), "part-memory", "memory"),
        "no memory per part": whole(make_memory_result(known=False), "part-memory"),
    })  # fmt: skip


def part(path: str, share: float, other: bool = False, ms: float = 1.0) -> Component:
    names = path.split("/")
    return Component(path=names, other=other, calls=1, values=[], summary=runs.summary([ms]), share=share)


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ([("policy", 0.96), ("policy/backbone", 0.7), ("policy/backbone/layer1", 0.2)], "backbone"),
        ([("policy", 0.96), ("policy/encoder", 0.4), ("policy/decoder", 0.45)], "decoder"),
        ([("preprocess", 0.3), ("policy", 0.65), ("policy/encoder", 0.3)], "policy"),
        ([("denoise", 0.8), ("denoise/step", 0.79), ("denoise/step/attention", 0.4)], "step"),
        ([("a", 0.3), ("b", 0.4), ("b/c", 0.4)], "b"),
        ([("a", 0.2), ("other", 0.8)], "other"),
        # A numbered module of a sequence, and the rest of a named part, have a name: that part's.
        ([("vision", 0.95), ("vision/0", 0.2), ("vision/2", 0.75)], "vision"),
        ([("policy", 0.99), ("policy/adapt", 0.98), ("policy/adapt/other", 0.7), ("policy/adapt/loss", 0.28)], "adapt"),
    ],
)
def test_the_headline_names_the_most_specific_big_part(parts: list[tuple[str, float]], named: str):
    found = biggest(make_measurement({path: 100 * share for path, share in parts}))
    assert found is not None
    assert found.name == named


def test_an_interrupted_run_says_so_at_the_top():
    run = runs.act(status="interrupted")
    for text in (console_text(run), markdown.render(kinds.document(run)), kinds.page(run)):
        assert "Interrupted: this run was stopped before it was done" in text
        assert text.index("Interrupted:") < text.index("mage backbone takes")
    empty = runs.act(status="interrupted", measurements=[], findings=[])
    assert "Nothing was measured." in console_text(empty)
    assert "nothing measured" in markdown.render(kinds.document(empty))


def test_a_narrow_terminal_keeps_numbers_whole_and_says_what_it_left_out():
    text = console_text(runs.act(), width=70, force_terminal=True, color_system=None)
    assert "148.83 to 149.88" in text
    assert "(no room here for: GFLOP, % of peak)" in text
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())) <= 70
