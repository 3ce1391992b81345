"""A forked worker never destroys what its parent marked on a device: CUDA events in a fork may end the process."""

from __future__ import annotations

import multiprocessing
import os

from strobe.core.timeline import Timeline, section
from strobe.core.timeline.sections import MAIN


def test_a_fork_keeps_its_parent_s_events_and_records_its_own(tmp_path):
    log = tmp_path / "destroyed"

    class Event:
        def __del__(self) -> None:
            with log.open("a") as out:
                out.write(f"{os.getpid()}\n")

    def work() -> None:
        with section("in the worker"):
            pass

    timeline = Timeline().start()
    timeline._records += [("before", i, i + 1, MAIN, (2 * i, Event()), (2 * i + 1, Event())) for i in range(3)]
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    timeline.stop()
    assert not log.exists()
    found = [(one.name, one.thread) for one in timeline.sections()]
    assert found.count(("in the worker", f"worker {worker.pid}")) == 1
    assert [name for name, thread in found if thread == "main"] == ["before"] * 3
    timeline.clear()  # this process may destroy them
    assert log.read_text().splitlines() == [str(os.getpid())] * 6
