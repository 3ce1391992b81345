"""Calls in a process of its own: it answers, fails, dies, hangs, and ends with whoever gave the order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.programs.hanging_process import starts_another

from strobe.core.errors import UserError, install
from strobe.core.processes import isolate
from strobe.core.processes.isolate import (
    FORKED,
    FRESH,
    CallRaisedError,
    CallTimeoutError,
    IsolatedCallError,
    Pool,
    ProcessEndedError,
    Worker,
)


def refuse() -> None:
    raise UserError("no xpu device")


class Counter:
    """Counts; what is ordered first is made."""

    def __init__(self, start: int, file: str = "") -> None:
        self.count, self.file = start, file

    def add(self, number: int) -> int:
        self.count += number
        return self.count

    def __call__(self, number: int) -> tuple[int, int]:
        return os.getpid(), self.add(number)

    def close(self) -> None:
        if self.file:
            Path(self.file).write_text(str(self.count))


def has_ended(process: psutil.Process | int) -> bool:
    """Whether a process has ended, once the kernel has got round to it."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            state = psutil.Process(process).status() if isinstance(process, int) else process.status()
        except psutil.NoSuchProcess:
            return True
        if state == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_a_call_answers_fails_dies_and_hangs() -> None:
    """One after the other: each starts an interpreter, which takes a moment."""
    assert isolate.run(os.getpid) != os.getpid()
    with pytest.raises(UserError, match="no xpu device"):
        isolate.run(refuse)
    with pytest.raises(CallRaisedError, match="ValueError: invalid literal") as raised:
        isolate.run(int, "x")
    assert raised.value.kind == "ValueError"
    with pytest.raises(ProcessEndedError, match="signal SIGKILL") as ended:
        isolate.run(signal.raise_signal, signal.SIGKILL)
    assert ended.value.ending.is_killed
    with pytest.raises(CallTimeoutError, match="no answer within 1 s"):
        isolate.run(time.sleep, 60, limit_s=1)
    with pytest.raises(IsolatedCallError, match="pickle"):
        isolate.run(open, os.devnull)


@pytest.mark.slow("processes that import LeRobot by themselves")
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_where_the_server_is_unfit_processes_start_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "FORKED", "fork")  # of this process, in the server's place
    monkeypatch.setattr(isolate, "_unfit", [])
    monkeypatch.setitem(sys.modules, isolate.CHECK, SimpleNamespace(REASON=None))
    assert isolate.run(os.getppid) == os.getpid()
    assert isolate.unfit() is None
    monkeypatch.setitem(sys.modules, isolate.CHECK, SimpleNamespace(REASON="imports started threads: hum"))
    assert isolate.run(os.getpid) != os.getpid()
    assert isolate.unfit() == "imports started threads: hum"


def test_a_process_that_hangs_takes_those_that_it_started_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "number"

    def never(worker: Worker, limit_s: float) -> bool:
        """The time is over once the process has done its part, however long a busy machine takes for that."""
        while not file.exists() and not worker.connection.poll(0.1):
            pass
        return False

    monkeypatch.setattr(Worker, "_await_answer", never)
    with pytest.raises(CallTimeoutError, match="no answer within 10 s"):
        isolate.run(starts_another, str(file), limit_s=10)
    assert has_ended(int(file.read_text()))


@pytest.mark.parametrize("method", [FORKED, FRESH])
def test_a_worker_keeps_what_it_made_and_goes_on_after_an_error(method: str, tmp_path: Path) -> None:
    with Worker(method) as worker:
        worker.make(Counter, 40, str(tmp_path / "closed"))
        assert worker.ask("add", 1, limit_s=60) == 41
        with pytest.raises(CallRaisedError, match="TypeError"):
            worker.ask("add", "one", limit_s=60)
        assert worker.ask("add", 1, limit_s=60) == 42
        assert worker.ask(os.getpid, limit_s=60) == worker.pid
        worker.close(60)
        worker.close()
    assert (tmp_path / "closed").read_text() == "42"


def test_what_cannot_be_made_is_the_answer_to_the_next_order() -> None:
    with Worker(FORKED) as worker:
        worker.make(install)  # it lacks an argument
        with pytest.raises(CallRaisedError, match="TypeError"):
            worker.ask("add", 1, limit_s=60)


def test_a_pool_shares_orders_out_and_notices_who_ends() -> None:
    with Pool(2) as pool:
        pool.make(Counter, 0)
        first = {worker.pid for worker in pool.workers}
        for _ in range(2):
            pool.order(1)
        assert pool.free == 0
        answers = [pool.answer(), pool.answer()]
        assert ({pid for pid, _ in answers}, [count for _, count in answers]) == (first, [1, 1])
        assert pool.free == 2
        os.kill(pool.workers[0].pid or 0, signal.SIGKILL)
        with pytest.raises(ProcessEndedError, match="SIGKILL"):
            pool.answer()
    assert all(has_ended(pid) for pid in first if pid)


BUSY = """
import sys, time
from strobe.core.processes.isolate import Worker, start_server

if __name__ == "__main__":
    start_server(["json"])
    workers = [Worker(method) for method in ("forkserver", "spawn")]
    for worker in workers:
        worker.ask(abs, 1, limit_s=60)
        worker.order(time.sleep, 600)
    print(*(worker.pid for worker in workers), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere an idle worker ends at once, a busy one when it is done")
def test_workers_that_are_busy_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    assert all(has_ended(pid) for pid in pids)
