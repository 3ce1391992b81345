"""What Strobe prints, word for word: a report of every result on disk, and the help of every command.

A result is rendered once: one of `tests/golden` for the terminal, an example as the Markdown that the docs show. Pages
are approved for what only they have. Where a text differs on purpose, `make approve` writes all of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.checks.approval import APPROVED, APPROVING, approve
from support.checks.golden import ALL, EXAMPLES, GOLDEN, result_name

from strobe.core.cli.main import main
from strobe.core.kinds import advise, document
from strobe.core.runs import store
from strobe.core.slices import commands
from strobe.core.treatments import known

HELP = APPROVED / "help"
PAGES = [*GOLDEN, *(file for file in EXAMPLES if file.parent.name in ("optimize-act", "evaluate-button"))]
# Of these a terminal leaves out answers, findings, tables, parts or notes; `trials` shows all that it has.
BRIEF_NAMES = ("act-variations", "breakdown", "pi05-breakdown", "pi05-compare", "preflight-robot", "rollout", "trials")
BRIEF = [file for file in ALL if file.parent.name in BRIEF_NAMES]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print without colours, at the width of a file, and without the treatments of packages that are installed here."""
    monkeypatch.setattr(known, "has_plug_ins", lambda: False)
    if (catalogue := sys.modules.get("strobe.core.treatments.catalogue")) is not None:
        monkeypatch.setattr(catalogue, "plug_in_entries", lambda: ())
    for name in ("COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def print_command(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    return capsys.readouterr().out


def trim_lines(text: str) -> str:
    """Lines without the spaces that fill a terminal's."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def approved_path(file: Path, ending: str) -> Path:
    return APPROVED / f"{file.parent.name}.{ending}"


class Outline(HTMLParser):
    """A page's headings, what its plots draw, and its tables: rows and cells of each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.tables: list[tuple[int, int]] = []
        self._tag, self._text, self._rows, self._cells = "", "", 0, 0
        self._plots = 0
        self._data = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        if tag in ("h1", "h2", "h3", "summary"):
            self._tag, self._text = tag, ""
        elif tag == "script":
            self._tag = "data" if have.get("id") == "figures" else "script"
        elif tag == "table":
            self._rows = self._cells = 0
        elif tag == "tr":
            self._rows += 1
        elif tag in ("td", "th"):
            self._cells += 1
        elif tag == "div" and have.get("class") == "plot":
            self.lines.append(f"plot {self._plots}")
            self._plots += 1
        elif tag in ("video", "img"):
            self.lines.append(tag)

    def handle_data(self, data: str) -> None:
        if self._tag == "data":
            self._data += data
        elif self._tag in ("h1", "h2", "h3", "summary"):
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._tag and self._text.strip():
            self.lines.append(f"{tag} {self._text.strip()}")
            self._text = ""
        elif tag == "table":
            self.tables.append((self._rows, self._cells))
        if tag not in ("span", "code"):  # inside a heading
            self._tag = ""

    def outline(self) -> str:
        """Return a line for each thing, each plot followed by its traces."""
        figures = json.loads(self._data)
        assert len(figures) == self._plots, "a plot without a place, or a place without a plot"
        lines = []
        assert all(figure["title"] for figure in figures), "the page shows it, not Plotly"
        for line in self.lines:
            if not line.startswith("plot "):
                lines.append(line)
                continue
            figure = figures[int(line.removeprefix("plot "))]
            lines.append(f"plot {figure['title']}")
            traces = Counter((trace["type"], trace.get("name", ""), _points(trace)) for trace in figure["data"])
            for (kind, name, points), times in traces.items():
                lines.append(f"  {kind} {name!r} {points}{f', {times} times' if times > 1 else ''}")
        return "\n".join(lines)


def _points(trace: dict[str, Any]) -> int:
    return max((len(value) for value in trace.values() if isinstance(value, list)), default=0)


@pytest.mark.parametrize("file", GOLDEN, ids=result_name)
def test_the_terminal_shows_what_was_approved(file: Path, capsys: pytest.CaptureFixture[str]):
    full = print_command(capsys, "report", str(file), "--format=console", "--full")
    approve(trim_lines(full), approved_path(file, "txt"))


@pytest.mark.parametrize("file", BRIEF, ids=result_name)
def test_the_terminal_shows_in_brief_what_was_approved(file: Path, capsys: pytest.CaptureFixture[str]):
    brief = print_command(capsys, "report", str(file), "--format=console")
    approve(trim_lines(brief), approved_path(file, "brief.txt"))


@pytest.mark.parametrize("file", EXAMPLES, ids=result_name)
def test_markdown_is_what_was_approved(file: Path, capsys: pytest.CaptureFixture[str]):
    approve(print_command(capsys, "report", str(file), "--format=markdown"), file.parent / "report.md")


@pytest.mark.parametrize("file", PAGES, ids=result_name)
def test_a_page_has_the_tables_of_its_document_and_the_plots_that_were_approved(file: Path, tmp_path: Path):
    assert main(["report", str(file), "--format=html", "--output", str(tmp_path / "page.html")]) == 0
    page = Outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    tables = [section.table for section in document(store.load_answer(file)).sections if section.table is not None]
    sizes = [(1 + len(table.rows), len(table.columns)) for table in tables]
    assert page.tables == [(rows, rows * columns) for rows, columns in sizes]
    approve(page.outline(), approved_path(file, "page.txt"))


@pytest.mark.parametrize("file", PAGES, ids=result_name)
def test_the_rules_find_what_was_approved(file: Path):
    found = [
        f"[{finding.level}] {finding.rule}: {finding.title}\n  found: {finding.found}\n  why: {finding.why}\n"
        f"  do: {finding.do}\n  gain: {finding.gain}\n  evidence: {finding.evidence}"
        for finding in advise(store.load_answer(file))
    ]
    approve("\n\n".join(found) or "nothing", approved_path(file, "findings.txt"))


@pytest.mark.parametrize("command", ["strobe", *commands()])
def test_help_is_what_was_approved(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "110")
    argv = ["--help"] if command == "strobe" else [command, "--help"]
    approve(trim_lines(print_command(capsys, *argv)), HELP / f"{command}.txt")


def test_no_approved_file_is_left_without_its_text():
    texts = {"txt": GOLDEN, "brief.txt": BRIEF, "page.txt": PAGES, "findings.txt": PAGES}
    wanted = {approved_path(file, ending) for ending, files in texts.items() for file in files}
    wanted |= {HELP / f"{command}.txt" for command in ("strobe", *commands())}
    spare = {file for folder in (APPROVED, HELP) for file in folder.iterdir() if file.is_file()} - wanted
    if APPROVING:
        for file in spare:
            file.unlink()
    else:
        assert spare == set(), "nothing prints these any longer: `make approve` removes them"
