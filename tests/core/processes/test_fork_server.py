"""Cells are forked from one server, which none of them harms; where that cannot be, they are processes of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.suite.places import TESTS

from strobe.core.processes.command import CommandLimits
from strobe.core.processes.fork_server import STARTS_AT_MOST, Server
from strobe.core.runs import store
from strobe.sweep.execute import LOG, Job, Outcome, execute, read_outcome
from strobe.sweep.run import CellsLive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no cell is forked")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *sys.path]))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    def make_job(act: str, memory: float = 2**40, seconds: float = 600, **more: Any) -> Job:
        argv = (f"--log={tmp_path / 'log'}", "--name=one", f"--act={act}")
        limits = CommandLimits(seconds, int(memory))
        first = Job("key", 1, "light", argv, "one", tmp_path / "cell", limits, module="support.programs.acting_cell")
        return replace(first, **more)

    return make_job


def run_telling_cell(one: Job, server: Server) -> dict[str, Any]:
    """Return what a cell that tells has said of its process."""
    outcome = execute(one, server=server)
    assert outcome.status == "done", outcome.reason
    return json.loads((one.folder / LOG).read_text().splitlines()[1])


def test_the_cells_of_a_sweep_share_one_server_and_nothing_else(
    job: Callable[..., Job], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = job("tell")
    first = run_telling_cell(one, server)
    second = run_telling_cell(replace(one, environment={"STROBE_TOLD": "late"}), server)
    assert first["parent"] == second["parent"] == server.pid
    assert first["argv"] == [str(one.folder), "light", *one.argv]
    assert (first["cwd"], first["session"], first["stdin"], first["threads"]) == (str(tmp_path), True, "", 1)
    assert (first["named"], second["named"]) == (None, "late")
    assert not {*first["drawn"]} & {*second["drawn"]}, "two cells drew the same numbers"


def test_no_cell_harms_the_server_or_the_next_cell(job: Callable[..., Job], server: Server) -> None:
    pid = run_telling_cell(job("tell"), server)["parent"]
    outcomes = [
        execute(job("segfault"), server=server),
        execute(job("exit"), server=server),
        execute(job("hog", memory=2**28), server=server),
        execute(replace(job("", seconds=0.5), argv=(*job("").argv, "--sleep=600")), server=server),
    ]
    assert [outcome.status for outcome in outcomes] == ["crashed", "crashed", "out of memory", "timed out"]
    assert "SIGSEGV" in outcomes[0].reason
    assert "code 3" in outcomes[1].reason
    assert not psutil.Process(pid).children()
    assert run_telling_cell(job("tell"), server)["parent"] == pid


def test_a_server_that_dies_is_replaced_and_its_cell_runs_again(job: Callable[..., Job], server: Server) -> None:
    first = run_telling_cell(job("tell"), server)["parent"]
    os.kill(first, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(first)], timeout=60)
    second = run_telling_cell(job("tell"), server)["parent"]
    assert second not in (first, os.getpid())
    assert execute(job("kill parent once"), server=server).status == "done"
    assert run_telling_cell(job("tell"), server)["parent"] not in (first, second, os.getpid())


def test_one_that_dies_again_and_again_is_given_up(job: Callable[..., Job], server: Server, tmp_path: Path) -> None:
    for _ in range(STARTS_AT_MOST):
        (tmp_path / "log.been").unlink(missing_ok=True)
        assert run_telling_cell(job("tell"), server)["parent"] == server.pid
        server.close()
    assert run_telling_cell(job("tell"), server)["parent"] == os.getpid()


def test_a_cell_of_another_environment_is_a_process_of_its_own(job: Callable[..., Job], server: Server) -> None:
    first = run_telling_cell(job("tell"), server)["parent"]
    assert run_telling_cell(job("tell", environment={"OMP_NUM_THREADS": "3"}), server)["parent"] == os.getpid()
    assert run_telling_cell(job("tell"), server)["parent"] == first


def test_a_server_that_has_a_thread_forks_nothing(job: Callable[..., Job], server: Server) -> None:
    one = job("tell", module="support.programs.threaded_cell")
    assert run_telling_cell(one, server)["parent"] == os.getpid()
    assert "thread" in str(server.unfit)
    assert server.pid is None
    outcome = read_outcome(one.folder)
    assert outcome is not None
    assert outcome.afresh == server.unfit


def test_that_cells_are_not_forked_is_told_once(job: Callable[..., Job], capsys: pytest.CaptureFixture[str]) -> None:
    one = job("tell")
    unfit = Outcome(status="done", started=datetime.now(UTC), duration_s=1, afresh="imports started threads: hum")
    with CellsLive(3, 0) as live:
        for outcome in (unfit.model_copy(update={"afresh": None}), unfit, unfit):
            live.report_ended(one, outcome)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("with imports of its own: imports started threads: hum") == 1


def test_an_interruption_while_the_server_imports_ends_it(job: Callable[..., Job], server: Server) -> None:
    def interrupt(_: str) -> None:
        assert server.pid is not None
        begun.append(server.pid)
        raise KeyboardInterrupt

    begun: list[int] = []
    one = job("tell", module="support.programs.slow_import_cell")
    with pytest.raises(KeyboardInterrupt):
        execute(one, interrupt, server=server)
    assert not psutil.pid_exists(begun[0])
    assert not one.folder.exists()


@pytest.mark.slow("a cell with a real policy")
def test_a_real_cell_is_forked(tmp_path: Path, server: Server) -> None:
    flags = ("--policy.type=act", "--policy.size=tiny", "--iterations=2", "--skip_counting", "--policy.device=cpu")
    real = Job("real", 1, "breakdown", flags, "real", tmp_path / "real", CommandLimits(600, 2**40))
    outcome = execute(real, server=server)
    assert outcome.status == "done", (real.folder / LOG).read_text()
    assert (server.unfit, server.pid is not None) == (None, True)
    assert store.load(real.folder).measurements
