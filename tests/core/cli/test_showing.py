"""How answers are printed: one screen by default, everything, JSON, or sentences alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.suite.places import ROOT

from strobe.core.cli.main import main
from strobe.core.report.console import truncate_rows
from strobe.core.report.document import Column, Row, Table
from strobe.core.runs import store

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of pi0.5 with and without Real-Time Chunking: ten tables, seven findings."""
    shutil.copy(EXAMPLES / "pi05-compare" / "result.json", tmp_path)
    return tmp_path


def test_an_answer_fits_on_one_screen_and_says_what_else_there_is(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert main(["report", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    answer = store.load(run)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
    assert lines[2].strip() in " ".join(answer.judged_comparisons()[0].verdict.sentence.split())
    assert [line for line in lines if line.startswith("! ")] == [
        f"! {finding.title}".ljust(len(line))
        for finding, line in zip(answer.findings, [line for line in lines if line.startswith("! ")], strict=False)
    ]
    assert "COMPARISON" in lines
    assert "VERDICT" not in lines
    assert any(line.startswith("More: ") and "--full" in line for line in lines)


def test_full_prints_every_table_finding_and_note(run, capsys):
    assert main(["report", "--full", str(run)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    answer = store.load(run)
    assert "VERDICT" in out
    assert "PARTS SIDE BY SIDE" in out
    assert all(finding.title in out and " ".join(finding.why.split()) in out for finding in answer.findings)
    assert all(" ".join(note.split()) in out for note in answer.notes)


def test_json_is_the_result_on_one_line_and_nothing_else(run, capsys):
    assert main(["report", str(run), "--json"]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    assert json.loads(said.out) == json.loads(store.load(run).model_dump_json())
    assert "report:" in said.err


def test_quiet_prints_the_sentences_alone(run, capsys):
    assert main(["report", str(run), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert store.load(run).judged_comparisons()[0].verdict.sentence in out
    assert "COMPARISON" not in out
    assert "Machine" not in out


def test_two_styles_are_refused_and_lerobots_own_flags_are_left_alone(capsys):
    assert main(["report", "x", "--json", "--full"]) == 2
    assert "--json and --full exclude each other" in capsys.readouterr().err
    assert main(["train", "--", "--json"]) == 2
    assert "exclude" not in capsys.readouterr().err


def test_help_tells_the_styles(capsys):
    main(["diff", "--help=all"])
    assert "--json   print the content of result.json" in capsys.readouterr().out


def test_of_many_parts_the_smallest_are_left_out_and_counted():
    """A policy of somebody else's, cut along its modules, may have thirty parts on one level."""
    parts = [Row([f"part_{number}"], depth=2, share=(1 + number % 7) / 200) for number in range(30)]
    rows = [Row(["whole"], "whole", share=1.0), Row(["policy"], depth=1, share=0.9), *parts]
    rows += [Row(["other"], "other", 2, 0.2), Row(["preprocessing"], depth=1, share=0.05)]
    rows += [Row(["other"], "other", 1, 0.0001)]
    shown = truncate_rows(Table([Column("part")], rows), 14).rows
    assert len(shown) == 14
    assert [row.cells[0] for row in shown if row.depth < 2] == ["whole", "policy", "preprocessing", "other"]
    inside = [row for row in shown if row.depth == 2]
    assert min(row.share or 0 for row in inside) >= max(row.share or 0 for row in rows if row not in shown)
    assert [rows.index(row) for row in shown] == sorted(rows.index(row) for row in shown)


def test_equal_blocks_are_one_part_and_hide_no_other():
    columns = [Column(title) for title in ("Component", "ms (median)", "% of whole", "GFLOP")]
    blocks = [Row([f"block {at}", f"{1 + at / 10:.1f}", "4.0 %", "0.5"], depth=1, share=0.04) for at in range(24)]
    blocks[5] = Row(["block 5", "9.0", "5.0 %", "0.5"], depth=1, share=0.05)
    ends = [Row([name, "0.1", "0.1 %", "0.1"], depth=1, share=0.001) for name in ("patch embedding", "final norm")]
    rows = [Row(["whole", "24", "100.0 %", "12"], "whole", share=1.0), ends[0], *blocks, ends[1]]
    shown = truncate_rows(Table(columns, rows), 14).rows
    assert [row.cells for row in shown[2:-1]] == [
        ["block 0 to 23, each", "1.0 to 9.0", "4.0 to 5.0 %", "0.5"],
        ["together", None, "97.0 %", None],
        ["slowest: block 5", "9.0", "5.0 %", "0.5"],
    ]
    assert [shown[0], shown[1], shown[-1]] == [rows[0], *ends]


def test_the_screen_says_how_many_parts_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copy(EXAMPLES / "pi05-breakdown" / "result.json", tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "action expert" in out
    assert "More: 2 smaller rows, " in out


def test_of_a_deep_tree_the_deepest_parts_go_first_and_then_the_last_rows():
    rows = [Row([f"{depth}"], depth=depth) for depth in (0, 1, 2, 2, 1, 2)]
    table = Table([Column("part")], rows)
    assert [row.depth for row in truncate_rows(table, 6).rows] == [0, 1, 2, 2, 1, 2]
    assert [row.depth for row in truncate_rows(table, 4).rows] == [0, 1, 1]
    flat = Table([Column("part")], [Row([str(number)]) for number in range(9)])
    assert [row.cells for row in truncate_rows(flat, 3).rows] == [["0"], ["1"], ["2"]]
