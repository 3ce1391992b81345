"""strobe sweep as a user runs it: real cells of a tiny policy, interrupted and gone on with; wrong input in a line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strobe.cli import sweep as command
from strobe.errors import UserError
from strobe.results import store
from strobe.results.sweep import Sweep

TINY = ["--policy.type=act", "--policy.size=tiny", "--iterations=2", "--skip_counting", "--threads=1"]


def strobe(*arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "strobe.cli.main", "sweep", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_interrupted_it_keeps_what_has_ended_and_the_same_command_ends_with_one_whole_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "sweep"
    asked = ["breakdown", *TINY, "--phases=[training forward]", "--grid=batch_size=1,2", f"--sweep_dir={root}"]
    with strobe(*asked) as driver:
        deadline = time.monotonic() + 600
        while not list(root.glob("cells/*/outcome.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        driver.send_signal(signal.SIGINT)
        said = driver.communicate(timeout=600)[0]
    assert driver.returncode == 130, said
    assert "go on with the same command" in said
    answer = store.load_answer(root)
    assert isinstance(answer, Sweep)
    assert answer.status == "interrupted"
    assert sorted(cell.status for cell in answer.cells) == ["done", "not run"]

    kept = {path: path.stat().st_mtime_ns for path in root.glob("cells/*/outcome.json")}
    with strobe(*asked, "--best=throughput where batch_size=2") as driver:
        said = driver.communicate(timeout=600)[0]
    assert driver.returncode == 0, said
    answer = store.load_answer(root)
    assert isinstance(answer, Sweep)
    assert [cell.status for cell in answer.cells] == ["done"] * 2
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "a cell that had ended was run again"
    assert [row.phase for cell in answer.cells for row in cell.rows] == ["training forward"] * 2
    assert answer.best[0].settings["batch_size"] == "2"
    assert (root / store.REPORT).stat().st_size > 10_000
    assert "All 2 cells are done." in said
    # A grown grid runs what is new, and says of the rest that it is there.
    assert command.run([*(a.replace("batch_size=1,2", "batch_size=1,2,4") for a in asked), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "3 cells × 1: 1 runs to go" in told
    assert told.count("there already: done") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["breakdwn", *TINY], "did you mean 'breakdown'"),
        ([*TINY, "--grid=batch_size=1,2"], "which study?"),
        (["breakdown", *TINY], "nothing to sweep over"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--repeats=0"], "at least 1"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--timeout=-1"], "above 0"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--timeout=long"], "timeout"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--launcher=slurm"], "known: local, ray"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--ray.address=auto"], "needs --launcher=ray"),
        (["breakdown", *TINY, "--grid=batch_size=1,2", "--grid=batch_size=3"], "there twice"),
        (["breakdown", *TINY, "--grid=threads=1,2"], "both a flag and an axis"),
        (["breakdown", *TINY, "--grid=batch_size=1", "--output_dir=x"], "--sweep_dir"),
        (["breakdown", *TINY, "--grid=batch_size=1", "--best=speed"], "no metric 'speed'"),
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


def test_values_of_the_policy_are_checked_too(tmp_path: Path) -> None:
    asked = ["breakdown", *TINY, "--grid=policy.vision_backbone=resnet18,vgg", f"--sweep_dir={tmp_path}/s"]
    with pytest.raises(UserError, match=r"1 of 2 cells are refused[\s\S]*vgg"):
        command.run(asked)


def test_a_file_s_own_settings_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("study: breakdown\nflags: {policy.type: act}\ngrid: {batch_size: [1]}\nsweep: {repeat: 2}\n")
    with pytest.raises(UserError, match="'sweep' has no 'repeat': did you mean 'repeats'"):
        command.run([f"--file={file}"])
