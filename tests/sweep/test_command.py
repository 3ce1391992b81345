"""strobe sweep as a user runs it: real cells of a tiny policy, interrupted and gone on with; wrong input in a line."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.examples import runs
from support.suite import warm

from strobe.commands import breakdown
from strobe.core.cli.main import main
from strobe.core.cli.runner import Studied
from strobe.core.errors import UserError
from strobe.core.measure import other_work
from strobe.core.runs import store
from strobe.policy_cli.subject import build_study_answer
from strobe.sweep import cell_command as cell
from strobe.sweep import command
from strobe.sweep import run as sweep_run
from strobe.sweep.execute import NOT_KEPT, Job, Outcome, _bring_home, read_outcome, write_outcome
from strobe.sweep.results import Sweep
from strobe.train import batch_command as batch

NOW = datetime.now(UTC)
TINY = ["--policy.type=act", "--policy.size=tiny", "--iterations=2", "--skip_counting", "--threads=1"]


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_interrupted_it_keeps_what_has_ended_and_the_same_command_ends_with_one_whole_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "sweep"
    asked = ["breakdown", *TINY, "--phases=[training forward]", "--grid=batch_size=1,2", f"--sweep_dir={root}"]
    with warm.start("-m", "strobe.core.cli.main", "sweep", *asked) as driver:
        deadline = time.monotonic() + 600
        while not list(root.glob("cells/*/outcome.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        driver.send_signal(signal.SIGINT)
        ended = driver.wait_for_end()
    assert ended.returncode == 130, ended
    assert "continue with the same command" in ended.stdout + ended.stderr
    answer = store.load_answer(root)
    assert isinstance(answer, Sweep)
    assert answer.status == "interrupted"
    assert sorted(cell.status for cell in answer.cells) == ["done", "not run"]

    kept = {path: path.stat().st_mtime_ns for path in root.glob("cells/*/outcome.json")}
    # In this process, which has LeRobot imported: a driver of its own would take ten seconds for that alone.
    code = main(["sweep", *asked, "--best=throughput where batch_size=2"])
    said = capsys.readouterr().out
    assert code == 0, said
    answer = store.load_answer(root)
    assert isinstance(answer, Sweep)
    assert [cell.status for cell in answer.cells] == ["done"] * 2
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "a cell that had ended was run again"
    assert [row.phase for cell in answer.cells for row in cell.rows] == ["training forward"] * 2
    assert answer.best[0].settings["batch_size"] == "2"
    assert (root / store.REPORT).stat().st_size > 10_000
    assert "All 2 configurations are done." in said
    # A grown grid runs what is new, and says of the rest that it is there.
    assert command.run([*(a.replace("batch_size=1,2", "batch_size=1,2,4") for a in asked), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "3 configurations × 1: 1 runs to go" in told
    assert told.count("ended before: done") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["breakdwn", *TINY], "did you mean 'breakdown'"),
        ([*TINY, "--grid=batch_size=1,2"], "name the study:"),
        (["breakdown", *TINY], "nothing to sweep over"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--repeats=0"], "at least 1"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--timeout=-1"], "above 0"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--timeout=long"], "timeout"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--launcher=slurm"], "known: local, ray"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--ray.address=auto"], "needs --launcher=ray"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--grid=batch_size=3"], "given twice"),
        (["breakdown", *TINY, "--grid=threads=1,2"], "both a flag and an axis"),
        (["breakdown", *TINY, "--grid=batch_size=1", "--output_dir=x"], "--sweep_dir"),
        (["breakdown", *TINY, "--grid=batch_size=1", "--best=speed"], "no metric 'speed'"),
        (["breakdown", *TINY, *(f"--grid={axis}=1,2,3,4" for axis in "abcdefgh")], "65,536 combinations"),
        (["--file=none.yaml"], "no such file"),
    ],
)
def test_wrong_input_is_told_in_one_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says) as told:
        command.run([*arguments, f"--sweep_dir={tmp_path / 'sweep'}"])
    assert "\n" not in str(told.value)
    assert not (tmp_path / "sweep").exists()


def test_cells_that_cannot_run_are_told_before_any_does(tmp_path: Path) -> None:
    asked = ["breakdown", *TINY, "--grid=batch_size=0,1,two", f"--sweep_dir={tmp_path}/s"]
    with pytest.raises(UserError) as told:
        command.run(asked)
    lines = str(told.value).splitlines()
    assert "2 of 3 cells are refused" in lines[0]
    assert "batch_size=0" in lines[1]
    assert "must be at least 1" in lines[1]
    assert "batch_size=two" in lines[2]
    assert not (tmp_path / "s").exists()
    asked = ["breakdown", *TINY, "--grid=policy.vision_backbone=resnet18,vgg", f"--sweep_dir={tmp_path}/s"]
    with pytest.raises(UserError, match=r"1 of 2 cells are refused[\s\S]*vgg"):
        command.run(asked)


def test_a_file_s_own_settings_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("study: breakdown\nflags: {policy.type: act}\ngrid: {batch_size: [1]}\nsweep: {repeat: 2}\n")
    with pytest.raises(UserError, match="'sweep' has no 'repeat': did you mean 'repeats'"):
        command.run([f"--file={file}"])


def test_runs_that_cannot_be_kept_are_rows_with_their_reason_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []

    def launcher(_: object, jobs: list[Job], live: object) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            started.append(job.label)
            lost = Outcome(status="crashed", reason="not kept: no space left on device", started=NOW, duration_s=1)
            yield job, lost

    monkeypatch.setattr(sweep_run, "_launcher", launcher)
    root = tmp_path / "sweep"
    asked = ["sweep", "breakdown", *TINY, "--grid=batch_size=1,2", f"--sweep_dir={root}"]
    assert main(asked) == 2
    out, err = capsys.readouterr()
    assert out.count("not kept: no space left on device") >= 2
    assert err.splitlines()[-1] == (
        f"strobe: 2 of 2 runs are not in {root} (not kept: no space left on device): make room, then give the same "
        "command again"
    )
    answer = store.load_answer(root)
    assert isinstance(answer, Sweep)
    assert [(cell.status, cell.reason) for cell in answer.cells] == [
        ("crashed", "not kept: no space left on device")
    ] * 2
    assert main(asked) == 2
    assert sorted(started) == ["batch_size=1"] * 2 + ["batch_size=2"] * 2


def test_a_sweep_whose_cells_all_crash_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def launcher(_: object, jobs: list[Job], live: object) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            outcome = Outcome(status="crashed", reason="killed by SIGSEGV", started=NOW, duration_s=1)
            job.folder.mkdir(parents=True)
            write_outcome(job.folder, outcome)
            yield job, outcome

    monkeypatch.setattr(sweep_run, "_launcher", launcher)
    assert main(["sweep", "breakdown", *TINY, "--grid=batch_size=1,2", f"--sweep_dir={tmp_path / 'sweep'}"]) == 1


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot use .*file/sweep: not a directory; name another folder"):
        command.run(["breakdown", *TINY, "--grid=batch_size=1,2", f"--sweep_dir={tmp_path}/file/sweep"])


def test_a_cell_says_by_its_exit_code_that_it_could_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def study(*_arguments: object) -> Studied:
        return build_study_answer(runs.act(), breakdown.read(TINY))

    def ends(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(breakdown, "study", study)
    monkeypatch.setattr(cell, "bind_to_parent", lambda _: None)
    monkeypatch.setattr(cell, "end_first", lambda: None)
    monkeypatch.setattr(cell.os, "_exit", ends)
    monkeypatch.setattr(sys, "argv", ["cell", str(tmp_path), "breakdown", *TINY])
    with pytest.raises(SystemExit, match="0"):
        cell.main()
    assert read_outcome(tmp_path) is not None
    assert store.load(tmp_path).command[:2] == ["strobe", "breakdown"]

    write, lacking = store.replace, [store.RESULT]

    def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
        if path.name in lacking:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content, durable=durable)

    monkeypatch.setattr(store, "replace", replace)
    with pytest.raises(SystemExit, match=str(NOT_KEPT)):
        cell.main()
    assert capsys.readouterr().err.splitlines()[-1] == "no space left on device"
    lacking[:] = ["outcome.json"]
    with pytest.raises(SystemExit, match=str(NOT_KEPT)):
        cell.main()


def test_files_from_another_node_that_have_no_room_here_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Outcome(status="done", started=NOW, duration_s=1, node="there")
    files = {"result.json": b"{}", "outcome.json": b"{}"}
    assert _bring_home(tmp_path / "cell", done, files) == done
    assert read_outcome(tmp_path / "cell") == done
    assert _bring_home(tmp_path / "other", done, {}) == done, "what could not be kept there has no files"
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr(store, "replace", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "")))
    lost = _bring_home(tmp_path / "cell", done, files)
    assert (lost.status, lost.reason, lost.node) == ("crashed", "not kept: no space left on device", "there")
    assert not (tmp_path / "cell").exists()


@pytest.mark.parametrize(("study", "more"), [("sweep", ["--grid=batch_size=1,2"]), ("batch", ["--largest=2"])])
def test_a_busy_machine_is_named_once_by_the_parent(
    study: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(other_work, "look", lambda: other_work.OtherWork(2, 2.0, 2.0))

    def raise_interrupt(*_: object, **__: object) -> Iterator[tuple[Job, Outcome]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_run, "_launcher", raise_interrupt)
    monkeypatch.setattr(batch, "execute", raise_interrupt)
    root = tmp_path / "sweep"
    flags = [flag for flag in TINY if study == "sweep" or "counting" not in flag]
    asked = [study, *(["breakdown"] if study == "sweep" else []), *flags, *more, f"--sweep_dir={root}"]
    assert main([*asked, "--dry_run"] if study == "sweep" else [*asked, "--help"]) == 0
    assert "busy" not in capsys.readouterr().err, "nothing runs"
    assert main(asked) == 130
    assert capsys.readouterr().err.count("2 of 2 cores are busy with other work: expect wide confidence intervals") == 1
    if study == "sweep":
        assert any("2 of 2 cores are busy" in note for note in store.load_answer(root).notes)
