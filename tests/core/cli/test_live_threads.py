"""While a profiler of Python looks, progress has no thread: cProfile would take it for the program."""

import cProfile
import threading
import time

import pytest

from strobe.core.cli import live as lives
from strobe.core.cli.live import Live
from strobe.traces.python_profile import mixed_threads


def own_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before]


def test_in_the_block_it_has_no_thread_and_after_it_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "LOOK_S", 0.001)
    before = set(threading.enumerate())
    with Live() as live:
        assert own_threads(before)
        live.stage("profiling")
        with live.suspend_threads():
            assert own_threads(before) == []
            profiler = cProfile.Profile()
            profiler.runcall(time.sleep, 0.1)
            profiler.create_stats()
        # Not of other files: threads that earlier tests have left are profiled as well.
        functions = {name for file, _, name in profiler.stats if file == lives.__file__}  # type: ignore[attr-defined]
        assert not {"_watch", "look"} & functions
        assert own_threads(before)
        live.stage("what comes next")
    assert own_threads(before) == []


def test_other_threads_are_named_beside_cprofile_alone() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="a camera's", daemon=True)
    thread.start()
    try:
        (note,) = mixed_threads("cprofile")
        assert "not judged" in note
        assert "a camera's" in note
        assert mixed_threads("pyinstrument") == []
    finally:
        ended.set()
        thread.join()
