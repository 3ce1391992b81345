"""`strobe report` and `strobe diff`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.examples import runs, sweeps

from strobe.core.cli import report as report_command
from strobe.core.errors import UserError
from strobe.core.runs import store
from strobe.history import diff_command
from strobe.history.results import Difference


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = store.new_run(tmp_path, "breakdown", "act")
    store.save(runs.act(), folder)
    return folder


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    folder = store.new_run(tmp_path, "breakdown", "act-slower")
    store.save(runs.act(measurements=[runs.measurement("inference", runs.ACT, 163.0)]), folder)
    return folder


@pytest.fixture(autouse=True)
def _judge(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("strobe.core.measure.verdicts.unpaired_verdict", runs.judge)


def test_report_prints_and_rewrites_the_page(run: Path, capsys: pytest.CaptureFixture[str]):
    assert report_command.run([str(run), "--depth", "1"]) == 0
    out = capsys.readouterr().out
    assert "The image backbone takes" in out
    assert "layer1" not in out.split("INFERENCE")[1]
    assert str(run / "report.html") in out
    assert "</html>" in (run / "report.html").read_text()
    assert sorted(p.name for p in run.iterdir()) == ["report.html", "result.json"]


def test_report_in_each_format_or_that_of_the_outputs_ending(run: Path, tmp_path: Path, capsys):
    assert report_command.run([str(run / "result.json"), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Breakdown of act\n")
    assert report_command.run([str(run), "--format", "console"]) == 0
    assert not (run / "report.html").exists()
    for shape, start in (("markdown", "# Breakdown"), ("html", "<!doctype html>"), ("console", "strobe breakdown")):
        there = tmp_path / f"out.{shape}"
        assert report_command.run([str(run), "--format", shape, "--output", str(there)]) == 0
        assert there.read_text().startswith(start)
    for end, start in (("md", "# Breakdown"), ("HTML", "<!doctype html>"), ("txt", "strobe breakdown")):
        there = tmp_path / f"out.{end}"
        assert report_command.run([str(run), f"--output={there}"]) == 0
        assert there.read_text().startswith(start)
    assert report_command.run([str(run), "--format=html", f"--output={tmp_path / 'page.md'}"]) == 0
    assert (tmp_path / "page.md").read_text().startswith("<!doctype html>")


def test_a_sweep_is_shown_again_and_not_compared(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "sweep"
    store.save(sweeps.square(), folder)
    assert report_command.run([str(folder)]) == 0
    assert "7 of 9 configurations are done." in capsys.readouterr().out
    assert "</html>" in (folder / "report.html").read_text()
    for shape, start in (("markdown", "# Sweep of act"), ("html", "<!doctype html>"), ("console", "strobe sweep of")):
        there = tmp_path / f"out.{shape}"
        assert report_command.run([str(folder), "--format", shape, "--output", str(there)]) == 0
        assert there.read_text().startswith(start)
    with pytest.raises(UserError, match="is a sweep: `strobe report` shows it"):
        diff_command.run([str(run), str(folder)])


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--depth", "0"], "--depth=0: must be at least 1"),
        (["--depht", "2"], "unknown flag --depht: did you mean --depth?"),
        (["--format", "pdf"], "--format=pdf: known: console"),
        (["--output", "answer.pdf"], "--output=answer.pdf: name a file that ends in .html, .htm, .md,"),
        (["--output", "/nowhere/at/all.html"], "cannot write /nowhere/at/all.html: no such file or directory"),
    ],
)
def test_wrong_flags_of_report_are_one_line_and_the_command_that_is_meant(run: Path, extra: list[str], said: str):
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        report_command.run([str(run), *extra])
    assert len([line for line in str(caught.value).splitlines() if not line.startswith("Corrected: ")]) == 1


def test_report_without_a_run():
    with pytest.raises(UserError, match="RUN is missing"):
        report_command.run([])
    with pytest.raises(UserError, match="no run at"):
        report_command.run(["/nowhere"])


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ([], 0),
        (["--fail-on-regression"], 1),
        (["--fail-on-regression=5"], 1),
        (["--fail-on-regression=5%"], 1),
        (["--fail-on-regression=5", "--allow-not-judged"], 1),
        # The slower run lacks a measurement, which is therefore not judged.
        (["--fail-on-regression=50"], 3),
        (["--fail-on-regression=50", "--allow-not-judged"], 0),
    ],
)
def test_diff_is_a_gate(run: Path, slower: Path, flags: list[str], code: int, capsys: pytest.CaptureFixture[str]):
    assert diff_command.run([*flags, str(run), str(slower)]) == code
    said = capsys.readouterr().out
    assert ("regression: inference" in said) == (code == 1)
    assert ("passed: inference" in said) == ("--fail-on-regression=50" in flags)
    assert ("not judged: training forward" in said) == bool(flags)
    assert diff_command.run([*flags, str(slower), str(run)]) == 0


def test_a_kept_diff_is_shown_again(run: Path, slower: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert diff_command.run([str(run), str(slower), "--output-dir", str(tmp_path / "kept")]) == 0
    (folder,) = (tmp_path / "kept").iterdir()
    assert folder.name.endswith("_diff_breakdown-of-act")
    page = (folder / "report.html").read_text()
    kept = store.load_answer(folder)
    assert isinstance(kept, Difference)
    assert (kept.study, kept.of, kept.title) == ("diff", "breakdown", "Breakdown of act")
    assert kept.command[:2] == ["strobe", "diff"]
    (folder / "report.html").unlink()
    capsys.readouterr()
    assert report_command.run([str(folder)]) == 0
    assert "strobe diff of breakdown" in capsys.readouterr().out
    assert (folder / "report.html").read_text() == page
    assert "Both runs" in page
    with pytest.raises(UserError, match="is a diff: `strobe report` shows it"):
        diff_command.run([str(run), str(folder)])


def test_diff_writes_a_page(run: Path, slower: Path, tmp_path: Path):
    for name, start in (("d.html", "<!doctype html>"), ("d.md", "# Breakdown of act")):
        assert diff_command.run([str(run), str(slower), "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text().startswith(start)
    with pytest.raises(UserError, match=r"ends in \.html or \.md"):
        diff_command.run([str(run), str(slower), "--output", "d.pdf"])
    with pytest.raises(UserError, match="'lots' is not a percentage"):
        diff_command.run([str(run), str(slower), "--fail-on-regression=lots"])
