"""Trends over runs: what changed, in which run, and as a gate."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support import example_runs as runs

from strobe import kinds
from strobe.cli.main import main
from strobe.errors import UserError
from strobe.results import store
from strobe.results.answer import Result
from strobe.studies.history import Run, history, regressed

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def at(day: int, ms: float, **more: object) -> Result:
    """A run of ACT on a day, with noise of its own."""
    measured = runs.measurement("inference", runs.ACT, ms, seed=day)
    return runs.act(measurements=[measured], started=DAY + timedelta(days=day), **more)


def named(*results: Result) -> list[Run]:
    return [Run(f"run-{index}", result) for index, result in enumerate(results)]


def kept(folder: Path, *results: Result) -> Path:
    for index, result in enumerate(results):
        (folder / f"run-{index}").mkdir(parents=True)
        store.save(result, folder / f"run-{index}")
    return folder


def test_a_change_is_found_where_it_is_and_runs_after_it_are_judged_against_it():
    # Out of order, as a folder may hold them.
    (trend,) = history(named(at(5, 120), at(1, 148), at(3, 148.3), at(4, 121), at(2, 147.8)), "runs").trends
    assert [point.run for point in trend.points] == ["run-1", "run-4", "run-2", "run-3", "run-0"]
    assert [point.changes for point in trend.points] == [False, False, False, True, False]
    change = trend.points[3].verdict
    assert change is not None
    assert change.kind == "faster"
    assert change.ratio == pytest.approx(121 / 148, rel=0.02)
    said = kinds.document(history(named(at(1, 148), at(2, 121)), "runs")).answers
    assert said == ["act, breakdown: inference: 149 → 122 ms over 2 runs; the last change, in run-1: faster by 18.2 %."]


def test_the_same_thing_again_and_again_shows_no_change():
    found = history(named(*(at(day, 148) for day in range(12))), "runs")
    assert not any(point.changes for point in found.trends[0].points)
    assert not regressed(found)


def test_another_machine_or_other_inputs_are_another_trend():
    first = at(1, 148)
    other = at(2, 300, machine=first.machine.model_copy(update={"device_name": "another CPU"}))
    also = at(3, 300, subject=first.subject.model_copy(update={"inputs": "other frames"}))
    with pytest.raises(UserError, match=r"no two runs measured the same thing on the same machine \(3 measured runs"):
        history(named(first, other, also), "runs")


def test_a_slow_last_run_closes_the_gate_and_one_that_was_mended_does_not(tmp_path, capsys):
    slow = kept(tmp_path / "slow", at(1, 148), at(2, 148), at(3, 165))
    assert main(["history", str(slow)]) == 0
    assert main(["history", str(slow), "--fail-on-regression"]) == 1
    assert "regression: act, breakdown: inference, in run-2" in capsys.readouterr().out
    assert main(["history", "--fail-on-regression=20", str(slow)]) == 0
    mended = kept(tmp_path / "mended", at(1, 148), at(2, 165), at(3, 148))
    assert main(["history", "--fail-on-regression", str(mended)]) == 0


def test_what_cannot_be_read_is_told_and_left_out(tmp_path, capsys):
    folder = kept(tmp_path, at(1, 148), at(2, 148))
    (folder / "broken").mkdir()
    (folder / "broken" / "result.json").write_text("{")
    assert main(["history", str(folder), "--full"]) == 0
    assert "left out broken:" in capsys.readouterr().out
    assert main(["history", str(folder), "--only=smolvla"]) == 2
    assert main(["history", str(tmp_path / "none")]) == 2
    assert "no folder at" in capsys.readouterr().err


def test_commits_of_one_run_are_its_history(tmp_path, capsys):
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    git("init", "-q")
    for day, ms in ((1, 148.0), (2, 121.0)):
        store.save(at(day, ms), tmp_path)
        git("add", "result.json")
        git("commit", "-qm", f"day {day}")
    assert main(["history", str(tmp_path), "--git"]) == 0
    assert "149 → 122 ms over 2 runs" in capsys.readouterr().out
    assert main(["history", str(tmp_path / "none"), "--git"]) == 2


def test_the_page_draws_each_trend_in_a_browser(browse):
    dom = browse(kinds.page(history(named(at(1, 148), at(2, 148), at(3, 121)), "runs")))
    assert 'data-settled="true"' in dom
    assert "data-errors" not in dom
    assert "From run to run" in dom
