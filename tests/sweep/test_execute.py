"""One cell in its process: whatever becomes of it is a row; and a sweep that is killed goes on where it was."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from support.suite.places import TESTS

from strobe.core.processes.command import CommandLimits
from strobe.sweep import cell_command, grid
from strobe.sweep.execute import Job, execute, read_outcome
from strobe.sweep.table import execution_folder, read_cell_outcome


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *sys.path]))


def job(tmp_path: Path, act: str = "", seconds: float = 600, memory: float = 2**40, **flags: object) -> Job:
    argv = [f"--log={tmp_path / 'log'}", "--name=one", f"--act={act}", *(f"--{k}={v}" for k, v in flags.items())]
    limits = CommandLimits(seconds, int(memory))
    return Job("key", 1, "light", tuple(argv), "one", tmp_path / "cell", limits, module="support.programs.acting_cell")


def alive(tmp_path: Path) -> list[int]:
    log = tmp_path / "log"  # a slow machine may stop a cell before it says that it began
    pids = {int(line.split()[2]) for line in log.read_text().splitlines()} if log.exists() else set()
    here = set()
    for pid in pids | {child.pid for child in psutil.Process().children(recursive=True)}:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile; a zombie is one of them
            process = psutil.Process(pid)
            cell = pid in pids or "support.programs.acting_cell" in process.cmdline()
            here |= {pid} if cell and process.status() != psutil.STATUS_ZOMBIE else set()
    return sorted(here)


def test_a_cell_that_ends_is_done(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = execute(job(tmp_path, sleep=1), said.append, node="here")
    assert (outcome.status, outcome.reason, outcome.node) == ("done", "", "here")
    assert read_outcome(tmp_path / "cell") == outcome
    assert outcome.duration_s >= 1
    assert "light cell begins" in said


def test_a_cell_that_hangs_is_stopped_and_told(tmp_path: Path) -> None:
    outcome = execute(job(tmp_path, seconds=2, sleep=600))
    assert outcome.status == "timed out"
    assert "2 s" in outcome.reason
    assert not alive(tmp_path)


def test_a_cell_that_takes_too_much_memory_is_stopped_and_told(tmp_path: Path) -> None:
    outcome = execute(job(tmp_path, "hog", memory=2**30))
    assert outcome.status == "out of memory"
    assert "1.0 GiB" in outcome.reason
    assert not alive(tmp_path)


@pytest.mark.parametrize(
    ("act", "status", "says"),
    [
        ("exit", "crashed", "code 3 before it was done: it went wrong"),
        ("segfault", "crashed", "SIGSEGV"),
        ("oom-killer", "out of memory", "killed by the operating system"),
        ("unknown study", "crashed", "KeyError"),
    ],
)
def test_a_cell_that_breaks_is_a_row_with_its_reason(tmp_path: Path, act: str, status: str, says: str) -> None:
    outcome = execute(job(tmp_path, act))
    assert outcome.status == status
    assert says in outcome.reason
    assert "\n" not in outcome.reason


def test_an_interrupted_cell_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(_: str) -> None:
        if (tmp_path / "log").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(job(tmp_path, sleep=600), interrupt)
    assert not (tmp_path / "cell").exists()
    assert not alive(tmp_path)


@pytest.mark.slow("a sweep that is killed three times")
def test_killed_three_times_a_sweep_loses_no_cell_and_runs_none_twice(tmp_path: Path) -> None:
    cells, dice = 24, random.Random()
    command = [sys.executable, "-m", "support.programs.light_sweep", str(tmp_path), str(cells)]
    log = tmp_path / "log"

    def count_ended() -> int:
        return log.read_text().count("end ") if log.exists() else 0

    for _ in range(3):
        before = count_ended()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
            deadline = time.monotonic() + 600
            while count_ended() < before + 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(dice.uniform(0, 0.8))
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        assert count_ended() < cells, "the driver was to be killed in the middle"
        deadline = time.monotonic() + 600
        while alive(tmp_path) and time.monotonic() < deadline:  # the kernel ends it, in its own time
            time.sleep(0.02)
        assert not alive(tmp_path), "a cell outlived the sweep that ran it"
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "complete"
    lines = [line.split() for line in log.read_text().splitlines()]
    ends = Counter(name for event, name, *_ in lines if event == "end")
    folders = [folder for folder in (tmp_path / "cells").iterdir() if read_outcome(folder)]
    assert len(folders) == cells
    assert set(ends) == {str(i) for i in range(cells)}
    # A cell that was cut after its last line but before its outcome is as if it had never run; all others ran once.
    begun = Counter(name for event, name, *_ in lines if event == "begin")
    assert sum(begun.values()) <= cells + 3
    assert sum(ends.values()) <= cells + 3
    times = sorted((float(at), event) for event, _, _, at in lines)
    running = 0
    for _, event in times:
        running = running + 1 if event == "begin" else max(0, running - 1)
    assert running <= 3  # those that were killed and never ended


def test_a_folder_that_an_earlier_strobe_began_is_gone_on_with(tmp_path: Path) -> None:
    """What is in it are files that name no module of Strobe's."""
    done, failed, cut = grid.cells("light", [], {"name": ["done", "failed", "cut"]})
    for cell in (done, failed, cut):
        execution_folder(tmp_path, cell, 1).mkdir(parents=True)
        (execution_folder(tmp_path, cell, 1) / "log.txt").write_text("light cell begins")
    begun = '"started": "2026-11-20T10:00:00Z", "duration_s": 1.5, "node": ""'
    (execution_folder(tmp_path, done, 1) / "result.json").write_text("{}")
    (execution_folder(tmp_path, done, 1) / "outcome.json").write_text(f'{{"status": "done", "reason": "", {begun}}}')
    killed = f'{{"status": "out of memory", "reason": "killed", {begun}, "afresh": "imports started threads: hum"}}'
    (execution_folder(tmp_path, failed, 1) / "outcome.json").write_text(killed)

    assert [outcome and outcome.status for cell in (done, failed,
                                                    cut) for outcome in [read_cell_outcome(tmp_path, cell, 1)]] == [
        "done", "out of memory", None,
    ]  # fmt: skip


def test_a_cell_that_cannot_write_its_files_is_told_and_leaves_no_trace(tmp_path: Path) -> None:
    outcome = execute(job(tmp_path, "full disk"), node="here")
    assert (outcome.status, outcome.reason) == ("crashed", "not kept: no space left on device")
    assert outcome.node == "here"
    assert not (tmp_path / "cell").exists(), "a folder that is there counts as run"


def test_a_disk_that_is_full_where_the_sweep_writes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("strobe.sweep.execute.write_outcome", refuse)
        assert execute(job(tmp_path)).reason == "not kept: no space left on device"
        assert not (tmp_path / "cell").exists()
    (tmp_path / "log").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refuse)
        assert execute(job(tmp_path)).reason == "not kept: no space left on device"
    assert not (tmp_path / "log").exists(), "a cell that has no folder need not run"
    assert execute(job(tmp_path)).status == "done"


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out of memory"),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "out of memory"),
        ("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`", "out of memory"),
        ("could not create a primitive: not enough memory", "out of memory"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`", "crashed"),
        ("CUDA error: an illegal memory access was encountered", "crashed"),
    ],
)
def test_a_library_that_gets_no_memory_is_no_crash(monkeypatch, tmp_path, message, status):
    def fails(*_):
        raise RuntimeError(message)

    monkeypatch.setattr(cell_command, "keep", fails)
    assert cell_command.attempt(tmp_path, "breakdown", [])[0] == status
