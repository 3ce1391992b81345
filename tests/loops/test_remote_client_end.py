"""The end of LeRobot's robot client: a signal ends it at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strobe.loops import remote_client
from strobe.loops.event_log import Log
from strobe.loops.remote_client import ClientWatch

pytest.importorskip("grpc", reason="Strobe's extra 'remote' is missing")


def test_a_receiver_that_never_ends_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits for a lock of gRPC, which an interrupt kept from being released."""
    monkeypatch.chdir(tmp_path)
    from lerobot.async_inference import robot_client

    monkeypatch.setattr(remote_client, "JOIN_S", 0.2)
    lock = threading.Lock()
    with ClientWatch(Log(tmp_path / "events")) as watch:
        ends, hangs = (robot_client.threading.Thread(target=target, daemon=True) for target in (int, lock.acquire))
        with lock:
            for thread in (ends, hangs):
                thread.start()
                thread.join()
            assert (ends.is_alive(), hangs.is_alive()) == (False, True)
    assert watch.notes == ["the client's receiving thread did not end within 0.2 s"]
    assert robot_client.threading is threading


def test_sigterm_before_the_receiver_has_started_leaves_no_thread_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both threads of the client wait for each other, and a busy machine may be slow to start the second."""
    monkeypatch.chdir(tmp_path)  # LeRobot's client makes a folder of logs when it is imported
    from lerobot.async_inference.robot_client import RobotClient

    client: Any = SimpleNamespace(start_barrier=threading.Barrier(2), logger=SimpleNamespace(info=lambda _: None))

    def receive() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            RobotClient.receive_actions(client)

    signalling = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    receiver = threading.Thread(target=receive, daemon=True)
    with ClientWatch(Log(tmp_path / "events")) as watch:
        signalling.start()
        with pytest.raises(KeyboardInterrupt):
            RobotClient.control_loop(client, task="push")
        receiver.start()
        receiver.join(10)  # as LeRobot does, without a limit
    assert watch.signals == 1
    assert not receiver.is_alive()
