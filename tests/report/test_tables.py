"""What the reports say, whichever shape they take."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from rich.console import Console
from support import example_runs as runs
from support.any_result import results
from support.examples import scaled
from support.health import EVERY_CHECK
from support.shown import printed

from strobe import kinds
from strobe.report import console, markdown, memory, tables
from strobe.report.breakdown import biggest
from strobe.report.document import Column, Row, Table
from strobe.results import units
from strobe.results.answer import Result
from strobe.results.finding import Finding
from strobe.results.measurement import Component
from strobe.results.traits import BackboneTraits, Traits


@settings(max_examples=scaled(40), deadline=None, suppress_health_check=EVERY_CHECK)
@given(answer=results)
def test_any_result_can_be_shown(answer: Result):
    assert printed(answer)
    assert markdown.render(kinds.document(answer))
    assert "</html>" in kinds.page(answer)


def test_numbers_come_with_as_many_digits_as_they_deserve():
    assert units.ms(1234.56, units.digits(1234.56)) == "1,234.6"
    assert units.ms(0.04321, units.digits(0.04321)) == "0.0432"
    assert units.signed(-0.001) == "+0.00"
    assert units.change(1.031) == "+3.1 %"
    assert units.change(0.9) == "−10.0 %"
    assert units.change(0.9999) == "+0.0 %"
    assert (units.change(250.0), units.change(1e130)) == ("250 ×", "over 1,000,000 ×")
    assert [units.size(n) for n in (512, 1536, 912 * 2**20, 3 * 2**30, -2048)] == [
        "512 B", "1.5 KiB", "912 MiB", "3.0 GiB", "−2.0 KiB"]  # fmt: skip
    assert units.plain("a\x1b[31m\nb\u202e") == "a\ufffd[31m b\ufffd"


def test_a_breakdown_shows_every_column_and_every_other():
    table = tables.breakdown(runs.act().measurements[0])
    assert [c.title for c in table.columns] == [
        "Component", "Calls", "ms (median)", "95 % interval", "% of whole", "GFLOP", "% of ceiling"]  # fmt: skip
    others = [row for row in table.rows if row.kind == "other"]
    assert [row.depth for row in others] == [3, 3, 2, 1]
    assert table.rows[0].kind == "whole"


@pytest.mark.parametrize("nothing", ["", "\u200b", "\U0001f3fb"])  # the last is half an emoji, of no width by itself
def test_a_table_whose_texts_have_no_width_can_be_printed(nothing: str) -> None:
    out = io.StringIO()
    console.print_table(
        Table([Column(nothing), Column(nothing, numeric=False)], [Row([nothing, nothing])]), Console(file=out)
    )
    assert out.getvalue()


def test_columns_without_figures_are_left_out():
    result = runs.act()
    for part in result.measurements[0].components:
        part.gflop = part.ceiling_share = part.peak_bytes = None
    titles = [c.title for c in tables.breakdown(result.measurements[0]).columns]
    assert titles == ["Component", "Calls", "ms (median)", "95 % interval", "% of whole"]


def test_depth_limits_the_tree_and_keeps_other():
    table = tables.breakdown(runs.act().measurements[0], depth=1)
    assert [row.cells[0] for row in table.rows] == ["inference", "preprocess", "policy", "other"]
    assert "image backbone" not in printed(runs.act(findings=[]), depth=1).split("INFERENCE")[1]


def test_the_comparison_has_the_seed_toolkit_s_rows():
    table = tables.metrics(runs.rtc())
    assert [c.title for c in table.columns] == ["Metric", "Without RTC", "With RTC", "Difference"]
    assert [row.cells[0] for row in table.rows] == [
        "Mean (ms)", "Median (ms)", "Std (ms)", "Min (ms)", "Max (ms)", "p95 (ms)", "Throughput (chunks/s)",
        "Samples", "Warm-up cut"]  # fmt: skip
    mean = [float((cell or "").replace(",", "").replace("−", "-")) for cell in table.rows[0].cells[1:]]
    assert mean[2] == pytest.approx(mean[1] - mean[0], abs=0.2)


def test_parts_of_variants_are_aligned_by_path():
    rows = tables.parts(runs.rtc().measurements).rows
    names = [(row.depth, row.cells[0]) for row in rows]
    assert names[-5:] == [(1, "RTC guidance"), (2, "guidance weights"), (2, "autograd correction"), (2, "other"),
                          (1, "other")]  # fmt: skip
    guidance = rows[-5].cells
    assert guidance[1:3] == [None, None]
    assert guidance[5] == f"+{guidance[3]}"


def test_three_variants_have_differences_of_their_own():
    result = runs.rtc()
    third = result.measurements[1].model_copy(update={"name": "compiled"})
    pair = result.comparisons[0].model_copy(update={"candidate": "compiled"})
    result.measurements.append(third)
    result.comparisons.append(pair)
    titles = [c.title for c in tables.metrics(result).columns]
    assert titles[-2:] == ["With RTC − Without RTC", "compiled − Without RTC"]
    assert len(kinds.document(result).answers) == 2


def part(path: str, share: float, other: bool = False) -> Component:
    names = path.split("/")
    return Component(path=names, other=other, calls=1, values=[], summary=runs.summary([1.0]), share=share)


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
    found = biggest([part(path, share, path.endswith("other")) for path, share in parts])
    assert found is not None
    assert found.name == named


def test_the_answer_comes_first_and_findings_before_detail():
    text = printed(runs.act())
    places = [text.index(s) for s in ("Image backbone takes 68.", "69 % of the training", "Preprocessing is small",
                                      "INFERENCE", "SAMPLES", "Machine:", "Ceiling:")]  # fmt: skip
    assert places == sorted(places)
    text = markdown.render(kinds.document(runs.rtc()))
    places = [text.index(s) for s in ("**With RTC is slower", "## Findings", "## Comparison", "## Verdict",
                                      "## Parts side by side", "## Notes")]  # fmt: skip
    assert places == sorted(places)


def test_notes_unseen_probes_stand_ins_and_warm_up_are_told():
    text = printed(runs.act()) + printed(runs.rtc())
    for said in ("not seen: compiled decoder (runs inside a torch.compile region)", "3 warm-up samples cut, 40 used",
                 "Stand-in: a local tokenizer", "drift: 1.2 %", "118 GFLOP/s float32", "torch 2.11.0"):  # fmt: skip
        assert said in text


def test_the_longest_state_that_the_samples_would_show_is_told_once():
    run = runs.rtc()
    for measurement in run.measurements:
        measurement.samples.longest_state_s = 3.31
    assert printed(run).count("a state of the machine that lasts longer than 3.31 s") == 1


def test_a_verdict_that_contradicts_the_medians_says_which_to_believe():
    run = runs.rtc()
    assert "Believe the pairs" not in markdown.render(kinds.document(run))
    one = run.comparisons[0]
    one.verdict.interval.low, one.verdict.ratio, one.verdict.interval.high = 2.9, 3.0, 3.1
    text = markdown.render(kinds.document(run))
    assert "typical pair" in text
    assert "their pairs by +200.0 %" in text


def test_an_interrupted_run_says_so_at_the_top():
    run = runs.act(status="interrupted")
    for text in (printed(run), markdown.render(kinds.document(run)), kinds.page(run)):
        assert "Interrupted: this run was stopped before it was done" in text
        assert text.index("Interrupted:") < text.index("mage backbone takes")
    empty = runs.act(status="interrupted", measurements=[], findings=[])
    assert "Nothing was measured." in printed(empty)
    assert "nothing measured" in markdown.render(kinds.document(empty))


def test_a_narrow_terminal_keeps_numbers_whole_and_says_what_it_left_out():
    text = printed(runs.act(), width=70, force_terminal=True, color_system=None)
    assert "148.83 to 149.88" in text
    assert "(no room here for: GFLOP, % of ceiling)" in text
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())) <= 70


def test_outside_text_is_not_markup_anywhere():
    nasty = "[red]x[/red] | <b>*y*</b>\x1b[31m `z` &amp;\n# h"
    finding = Finding(rule="r", level="info", title=nasty, seen=nasty, why="w")
    run = runs.act(title=nasty, findings=[finding], notes=[nasty])
    text = printed(run)
    assert "[red]x[/red] | <b>*y*</b>" in text
    assert "\x1b" not in text
    text = markdown.render(kinds.document(run))
    assert r"\[red\]x\[/red\] \| \<b\>\*y\*\</b\>" in text
    assert "\n# h" not in text
    assert r"\&amp;" in text


def test_markdown_tables_have_equal_columns():
    for run in (runs.act(), runs.rtc()):
        for block in re.findall(r"(?:^\|.*\n)+", markdown.render(kinds.document(run)), flags=re.M):
            counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(counts) == 1


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (16, "End to end that is 80 frames/s (5 clips/s); by itself decode 320 frames/s, preprocessing 640 frames/s, "
             "model 128 frames/s: the model limits it."),
        (1, "End to end that is 5 images/s; by itself decode 20 images/s, preprocessing 40 images/s, model "
            "8 images/s: the model limits it."),
    ],
)  # fmt: skip
def test_a_backbone_s_rate_is_told_end_to_end_and_part_by_part(frames: int, said: str):
    result = runs.act()
    (m,) = result.measurements = result.measurements[:1]
    m.traits = Traits(batch_size=1, backbone=BackboneTraits(frames_per_clip=frames))
    m.samples.summary = runs.summary([200.0])
    m.components = [part(path, 0.2) for path in ("decode", "preprocessing", "model", "model/encoder")]
    for one, took in zip(m.components, (50.0, 25.0, 125.0, 124.0), strict=True):
        one.summary = runs.summary([took])
    assert kinds.document(result).answers[1] == said
    rates = [row.cells[0] for row in tables.metrics(result).rows if "Throughput" in (row.cells[0] or "")]
    assert len(rates) == (2 if frames > 1 else 1)
    m.components = m.components[2:]
    assert kinds.document(result).answers[1].endswith("/s)." if frames > 1 else "images/s.")


def test_memory_per_part_says_like_blocks_once():
    result = runs.act()
    (m,) = result.measurements = result.measurements[:1]
    shapes = {"model": None, "model/block 0": 5, "model/block 0/attention": 2, "model/block 1": 5,
              "model/block 1/attention": 2, "model/block 2": 6, "model/other": None}  # fmt: skip
    m.components = [part(path, 0.1, path.endswith("other")) for path in shapes]
    for one, mib in zip(m.components, shapes.values(), strict=True):
        one.weight_bytes = mib and mib * 2**20
        one.kept_bytes, one.peak_bytes = (-(2**20), 3 * 2**20) if not one.other else (None, None)
    m.memory.source = "CUDA allocator"
    table = memory.parts(m)
    assert table is not None
    assert [c.title for c in table.columns] == ["Component", "Weights", "Kept", "Peak"]
    assert [(row.depth, *row.cells) for row in table.rows[1:]] == [
        (1, "model", None, "−1.0 MiB", "3.0 MiB"),
        (2, "block 0 to 1, each", "5.0 MiB", "−1.0 MiB", "3.0 MiB"),
        (3, "attention", "2.0 MiB", "−1.0 MiB", "3.0 MiB"),
        (2, "block 2", "6.0 MiB", "−1.0 MiB", "3.0 MiB"),
    ]
    assert "MEMORY PER PART" in printed(result)
    assert "in CUDA's allocator" in " ".join(printed(result).split())
    assert "Memory per part" in markdown.render(kinds.document(result))
    for one in m.components:
        one.weight_bytes = one.kept_bytes = one.peak_bytes = None
    assert memory.parts(m) is None
    assert "MEMORY PER PART" not in printed(result)
