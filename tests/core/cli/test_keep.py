"""Keeping a run: the screen first, then the folder, whole or not at all; one line where a disk is full."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.examples import loader as example_loader
from support.examples import runs, sweeps

from strobe.commands import breakdown
from strobe.core import slices
from strobe.core.cli import keep as keeping
from strobe.core.cli.main import main
from strobe.core.cli.runner import Studied
from strobe.core.cli.summaries import SUMMARY
from strobe.core.errors import NotKeptError
from strobe.core.findings import Thresholds
from strobe.core.results.answer import Result
from strobe.core.runs import store
from strobe.dataloader import command as dataloader
from strobe.policy_cli.subject import build_study_answer
from strobe.train import command as train

TRACE = {"traceEvents": []}


def full(monkeypatch: pytest.MonkeyPatch, *names: str, code: int = errno.ENOSPC) -> None:
    """Let writing files of these names fail, as the system does where there is no room."""
    write = store.replace

    def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
        if path.name in names:
            raise OSError(code, os.strerror(code), str(path))
        write(path, content, durable=durable)

    monkeypatch.setattr(store, "replace", replace)


def test_a_run_is_shown_and_kept_with_its_page_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = {"act_profile.json": b"{}", "profile.txt": b"lines", "recipe.yaml": b"version: 1"}
    folder = keeping.keep(runs.act(), tmp_path, TRACE, files)
    assert folder.parent == tmp_path
    assert {path.name for path in folder.iterdir()} == {store.RESULT, store.TRACE, store.REPORT, SUMMARY, *files}
    out = capsys.readouterr().out
    shown, closing = out.split("\nreport   ")
    assert "The image backbone takes" in shown
    assert closing.splitlines() == [
        str(folder / "report.html"),
        f"trace    {folder / 'trace.json.gz'}  (open in ui.perfetto.dev)",
        f"profile  {folder / 'act_profile.json'}  (open in chrome://tracing, ui.perfetto.dev)",
        f"profile  {folder / 'profile.txt'}",
        f"recipe   {folder / 'recipe.yaml'}",
    ]


@pytest.mark.parametrize("make", [runs.act, example_loader.starving_loader])
def test_an_answer_is_completed_whatever_its_kind(make: Callable[[], Result], tmp_path: Path):
    answer = make()
    answer.findings = []
    keeping.complete(answer, ["study", "--flag=1"], time.monotonic() - 2, {"asked": 1}, Thresholds())
    assert answer.command == ["strobe", "study", "--flag=1"]
    assert answer.config == {"asked": 1}
    assert 2 <= answer.duration_s < 60
    assert answer.findings, "the rules for this kind of answer were not asked"
    folder = keeping.keep(answer, tmp_path)
    assert folder is not None
    assert store.load_answer(folder).findings == answer.findings


def test_findings_that_the_study_has_drawn_stay():
    sweep = sweeps.square()
    drawn = list(sweep.findings)
    keeping.complete(sweep, ["sweep"], time.monotonic(), {})
    assert sweep.findings == drawn


def test_a_reader_that_has_gone_away_does_not_cost_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def raise_broken_pipe(_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(keeping, "show", raise_broken_pipe)
    with pytest.raises(BrokenPipeError):
        keeping.keep(runs.act(), tmp_path)
    (folder,) = tmp_path.iterdir()
    assert store.load(folder).subject.name == "act"
    assert (folder / store.REPORT).exists()


@pytest.mark.parametrize("lacking", [store.TRACE, "act_profile.json", store.RESULT])
def test_what_is_not_written_whole_leaves_nothing_but_the_answer_on_the_screen(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    full(monkeypatch, lacking)
    with pytest.raises(NotKeptError, match="no space left on device; free some or name another folder") as told:
        keeping.keep(runs.act(), tmp_path, TRACE, {"act_profile.json": b"{}"})
    assert str(told.value).startswith(f"cannot save the run in {tmp_path}")
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []
    assert "The image backbone takes" in capsys.readouterr().out


def test_where_only_the_page_has_no_room_the_numbers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        full(patched, store.REPORT)
        with pytest.raises(NotKeptError, match=r"cannot write .*report\.html: no space left on device") as told:
            keeping.keep(runs.act(), tmp_path, TRACE)
    (folder,) = tmp_path.iterdir()
    assert f"`strobe report {folder}` writes the page" in str(told.value)
    assert main(["report", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [store.REPORT, store.RESULT, SUMMARY, store.TRACE]


def test_a_folder_that_refuses_is_told_without_advice_to_free_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    full(monkeypatch, store.RESULT, code=errno.EACCES)
    with pytest.raises(NotKeptError, match="permission denied; name another folder with --output_dir"):
        keeping.keep(runs.act(), tmp_path)
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(NotKeptError, match=f"cannot save the run in {taken}: "):
        keeping.keep(runs.act(), taken)


def test_a_sweep_s_earlier_answer_outlives_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    keeping.save_answer(sweeps.square(), tmp_path)
    assert capsys.readouterr().out.endswith(f"\nreport   {tmp_path / store.REPORT}\ncells    {tmp_path / 'cells'}\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    full(monkeypatch, store.RESULT)
    with pytest.raises(NotKeptError, match=r"cannot save the sweep in .*; free some or .* --sweep_dir"):
        keeping.save_answer(sweeps.line(), tmp_path)
    assert "strobe sweep of" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_command_on_a_full_disk_ends_with_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(breakdown.run, "study", lambda config, live: build_study_answer(runs.act(), config))
    argv = ["breakdown", "--policy.type=act", f"--output_dir={tmp_path}"]
    assert main(argv) == 0
    (kept,) = tmp_path.iterdir()
    result = store.load(kept)
    assert result.command == ["strobe", *argv]
    policy: Any = result.config["policy"]
    assert policy["type"] == "act"
    capsys.readouterr()
    full(monkeypatch, store.RESULT)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert "The image backbone takes" in out
    (line,) = err.splitlines()
    assert line.startswith(f"strobe: cannot save the run in {tmp_path}")
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(("name", "flag"), [("breakdown", "--output_dir"), ("export", "--to")])
def test_a_folder_that_cannot_be_written_is_found_before_the_work(
    name: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    command = slices.load(slices.commands()[name].module).run
    monkeypatch.setattr(command, "study", lambda *_: pytest.fail("measured, and lost"))
    (taken := tmp_path / "taken").write_text("")
    (link := tmp_path / "link").symlink_to(taken / "runs")
    for place in (taken / "runs", link, link / "more"):
        assert main([name, "--policy.type=act", f"{flag}={place}"]) == 2
        assert f" in {place}: not a directory; name another folder with {flag}" in capsys.readouterr().err
    monkeypatch.setattr(command, "study", lambda *_: 0)
    assert main([name, "--policy.type=act", f"{flag}={tmp_path / 'new' / 'runs'}"]) == 0
    assert sorted(tmp_path.iterdir()) == [link, taken], "nothing is left by the try"


def test_a_full_disk_anywhere_else_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def study(*_: object) -> Studied:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/frames")

    monkeypatch.setattr(breakdown.run, "study", study)
    assert main(["breakdown", "--policy.type=act"]) == 2
    assert capsys.readouterr().err == "strobe: no space left on device: /tmp/frames\n"


def test_the_search_for_a_loader_ends_like_the_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(dataloader, "search", lambda *_: example_loader.starving_loader(findings=[]))
    argv = ["dataloader", f"--output_dir={tmp_path}", "--", "--dataset.repo_id=me/data", "--policy.type=act"]
    assert main(argv) == 0
    (folder,) = tmp_path.iterdir()
    kept = store.load_answer(folder)
    assert kept.command == ["strobe", *argv]
    assert kept.config["lerobot-train"] == ["--dataset.repo_id=me/data", "--policy.type=act"]
    assert kept.findings
    assert capsys.readouterr().out.endswith(f"\nreport   {folder / store.REPORT}\n")
    full(monkeypatch, store.RESULT)
    assert main(argv) == 2
    assert list(tmp_path.iterdir()) == [folder]


def test_a_training_ends_like_the_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    trained = SimpleNamespace(result=runs.act(status="failed"), sections=[], mistake=False)
    monkeypatch.setattr("strobe.train.run.train", lambda *_, **__: trained)
    config = train.TrainConfig(output_dir=tmp_path)
    config.theirs = ["--steps=2"]
    monkeypatch.setattr(train.run, "read", lambda _: config)
    assert train.run(["--", "--steps=2"]) == 1
    (folder,) = tmp_path.iterdir()
    kept = store.load(folder)
    assert kept.command == ["strobe", "train", "--", "--steps=2"]
    assert kept.config["lerobot-train"] == ["--steps=2"]
    flags: Any = kept.config["train"]
    assert flags["record_steps"] == 1000
    write = store.replace
    monkeypatch.setattr(store, "replace", lambda *a, **b: (signal.raise_signal(signal.SIGINT), write(*a, **b)))
    assert train.run(["--", "--steps=2"]) == 1, "Ctrl-C while it is saved"
    first, second = (sorted(file.name for file in each.iterdir()) for each in tmp_path.iterdir())
    assert first == second
    assert f"trace    {folder / store.TRACE}" in capsys.readouterr().out
    full(monkeypatch, store.RESULT)
    with pytest.raises(NotKeptError):
        train.run(["--", "--steps=2"])
    assert "The image backbone takes" in capsys.readouterr().out
