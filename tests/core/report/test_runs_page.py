"""The index of a folder of runs, in a real browser: search, side by side, keyboard, a phone's width."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.suite.browser import SETTLED, Browser
from support.suite.places import ROOT

from strobe.core.cli.main import main

EXAMPLES = ROOT / "docs" / "examples"
RUNS = ("optimize-act", "pi05-breakdown", "pi05-compare", "vjepa2-precision", "vjepa2-video")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs and one that cannot be read, with their index."""
    runs = tmp_path_factory.mktemp("index") / "runs"
    for name in RUNS:
        (runs / name).mkdir(parents=True)
        shutil.copy(EXAMPLES / name / "result.json", runs / name)
    (runs / "broken").mkdir()
    (runs / "broken" / "result.json").write_text("{")
    assert main(["report", str(runs)]) == 0
    return runs


def ask_page(browser: Browser, folder: Path, *scripts: str, width: int | None = None) -> list[Any]:
    """Return the answer of each script about the page, one after the other."""
    said = "".join(f"out.push((() => {{ {script} }})());" for script in scripts)
    # The answers are left in the document, which is all that the browser gives back.
    until = (
        f"({SETTLED}) && (document.body.dataset.said || (() => {{ const out = []; {said}"
        "document.body.dataset.said = JSON.stringify(out); })(), true)"
    )
    text = browser.document((folder / "index.html").as_uri(), until, width=width)
    assert "data-errors" not in text
    found = re.search(r'data-said="([^"]*)"', text)
    assert found
    return json.loads(html.unescape(found[1]))


SHOWN = "return [...document.querySelectorAll('.runs tbody tr')].filter(r => r.checkVisibility()).length;"


def test_every_word_of_a_search_must_be_there_and_escape_clears_it(folder, browser):
    typed = (
        "const box = document.getElementById('search'); box.value = 'pi05 COMPARE';"
        "box.dispatchEvent(new Event('input'));"
    )
    slash = "dispatchEvent(new KeyboardEvent('keydown', {key: '/'})); return document.activeElement.id;"
    escape = "dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}));"
    assert ask_page(browser, folder, SHOWN, slash, typed + SHOWN, escape + SHOWN) == [5, "search", 1, 5]


def test_two_runs_lie_beside_each_other_with_the_command_that_judges_them(folder, browser):
    choose = (
        "for (const row of document.querySelectorAll('.runs tbody tr'))"
        "if (/vjepa2-(precision|video)/.test(row.innerHTML)) row.querySelector('input').click();"
        "return [document.getElementById('sideBySide').hidden, document.getElementById('command').textContent,"
        "document.querySelectorAll('#figures tbody tr').length > 4, document.querySelector('#figures td').textContent];"
    )
    ((hidden, command, many, first),) = ask_page(browser, folder, choose)
    assert (hidden, many) == (False, True)
    assert command == "strobe diff runs/vjepa2-precision runs/vjepa2-video"
    assert first == "10,400"


def test_each_run_has_its_report_and_nothing_is_wider_than_a_phone(folder, browser):
    wide = "return document.documentElement.scrollWidth <= innerWidth;"
    links = "return [...document.querySelectorAll('.runs a')].map(a => decodeURIComponent(a.getAttribute('href')));"
    fits, reports = ask_page(browser, folder, wide, links, width=400)
    assert fits
    assert sorted(reports) == [f"./{name}/report.html" for name in sorted(RUNS)]
    assert all((folder / report).is_file() for report in reports)


def test_a_sweeps_cells_are_part_of_it_and_not_runs_of_the_list(tmp_path, capsys):
    for name in ("sweep", "sweep/cells/one", "breakdown"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(
            EXAMPLES / ("act-variations" if name == "sweep" else "pi05-breakdown") / "result.json", tmp_path / name
        )
    assert main(["report", str(tmp_path)]) == 0
    assert "2 runs: " in capsys.readouterr().out
    assert not (tmp_path / "sweep" / "cells" / "one" / "report.html").exists()


def test_what_cannot_be_read_is_told_and_one_shape_is_of_one_run(folder, capsys):
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "left out broken:" in out
    assert "5 runs: " in out
    assert main(["report", str(folder), "--format=markdown"]) == 2
    assert "contains several runs" in capsys.readouterr().err
