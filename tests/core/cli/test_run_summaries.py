"""A list of runs reads each run's summary, and never one that is of another answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.examples import runs

from strobe.core.cli.main import main
from strobe.core.cli.summaries import SUMMARY, keep_summary, summary_of_run
from strobe.core.errors import UserError
from strobe.core.results.run_summary import RunSummary
from strobe.core.runs import store


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A saved run with its summary."""
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)
    store.save(runs.act(), folder)
    keep_summary(runs.act(), folder)
    return folder


def read_summary(folder: Path) -> RunSummary:
    return RunSummary.model_validate_json((folder / SUMMARY).read_bytes())


def change_summary(folder: Path, **fields: object) -> None:
    """Change fields of the summary that is kept."""
    data = json.loads((folder / SUMMARY).read_text())
    (folder / SUMMARY).write_text(json.dumps(data | fields))


def test_a_summary_is_read_instead_of_the_answer(run):
    change_summary(run, headline="from the summary")
    assert summary_of_run(run / store.RESULT).headline == "from the summary"


def test_a_copied_run_keeps_its_summary(run, tmp_path):
    change_summary(run, headline="from the summary")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (store.RESULT, SUMMARY):
        (copy / name).write_bytes((run / name).read_bytes())  # at another time
    assert summary_of_run(copy / store.RESULT).headline == "from the summary"


def test_a_summary_of_another_answer_is_made_again(run):
    change_summary(run, headline="of before")
    answer = runs.act()
    answer.title = "another"
    store.save(answer, run)
    assert summary_of_run(run / store.RESULT).headline != "of before"
    assert read_summary(run).headline != "of before"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}'])
def test_a_summary_that_is_none_is_made_again(run, content):
    before = read_summary(run)
    (run / SUMMARY).write_text(content)
    assert summary_of_run(run / store.RESULT) == before == read_summary(run)


def test_one_of_another_format_is_made_again(run):
    before = read_summary(run)
    change_summary(run, format=before.format + 1, headline="of a later Strobe")
    assert summary_of_run(run / store.RESULT) == before


def test_a_broken_answer_is_named_although_its_summary_is_whole(run, capsys):
    (run / store.RESULT).write_text("{")
    with pytest.raises(UserError, match="truncated"):
        summary_of_run(run / store.RESULT)
    other = run.with_name("other")
    other.mkdir()
    store.save(runs.act(), other)
    (other / store.REPORT).write_text("")
    assert main(["report", str(run.parent)]) == 0
    shown = capsys.readouterr().out
    assert "left out run" in shown
    assert "1 run:" in shown


def test_a_folder_that_cannot_be_written_costs_the_summary_alone(run, monkeypatch):
    (run / SUMMARY).unlink()
    monkeypatch.setattr("strobe.core.runs.store.replace", _full)
    assert summary_of_run(run / store.RESULT).study == "breakdown"
    assert not (run / SUMMARY).exists()


def _full(path: Path, content: bytes, **_: bool) -> None:
    raise OSError(28, "No space left on device")


def test_a_list_and_a_history_are_the_same_with_and_without_summaries(tmp_path, capsys):
    root = tmp_path / "runs"
    for day in range(3):
        folder = root / f"run-{day}"
        folder.mkdir(parents=True)
        store.save(runs.act(), folder)
        (folder / store.REPORT).write_text("")
    shown = []
    for _ in range(2):  # the second time from summaries
        assert main(["report", str(root)]) == 0
        shown.append(capsys.readouterr().out + (root / "index.html").read_text())
    assert len(list(root.glob(f"*/{SUMMARY}"))) == 3
    assert shown[0] == shown[1]
