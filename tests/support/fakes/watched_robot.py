"""The dummy robot with a bus and cameras of its own, for tests that watch a loop in this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROBOT = Path(__file__).parents[1] / "robot"


class Bus:
    """Motors that answer at once."""

    def sync_read(self, register: str) -> dict[str, float]:
        return {}

    def sync_write(self, register: str, values: Any) -> None:
        pass


class Eye:
    """A camera with another frame at every read; ``every``: only at each so many reads."""

    every = 1

    def __init__(self) -> None:
        self.reads = 0
        self.frame = np.zeros((64, 64, 3), np.uint8)

    def read_latest(self) -> np.ndarray:
        if self.reads % self.every == 0:
            self.frame = np.full((64, 64, 3), self.reads % 255, np.uint8)
        self.reads += 1
        return self.frame


def watched_robot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the dummy robot's class; its ``before`` is called with each tick's number, its ``made`` lists robots."""
    monkeypatch.syspath_prepend(str(ROBOT))
    import lerobot_robot_dummy as plugin  # type: ignore[import-not-found]

    made: list[Any] = []
    plain, tell, begin = (getattr(plugin.DummyRobot, name) for name in ("get_observation", "send_action", "__init__"))

    def init(self, config):
        begin(self, config)
        self.bus, self.cameras = Bus(), {name: Eye() for name in plugin.CAMERAS}
        made.append(self)

    def observe(self):
        plugin.DummyRobot.before(self._tick)
        self.bus.sync_read("Present_Position")
        return plain(self) | {name: camera.read_latest() for name, camera in self.cameras.items()}

    def send(self, action):
        self.bus.sync_write("Goal_Position", action)
        return tell(self, action)

    monkeypatch.setattr(plugin.DummyRobot, "__init__", init)
    monkeypatch.setattr(plugin.DummyRobot, "get_observation", observe)
    monkeypatch.setattr(plugin.DummyRobot, "send_action", send)
    monkeypatch.setattr(plugin.DummyRobot, "before", staticmethod(lambda tick: None), raising=False)
    monkeypatch.setattr(plugin.DummyRobot, "made", made, raising=False)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield plugin.DummyRobot
    for number, answer in before.items():  # LeRobot's own rollout leaves its answers behind
        signal.signal(number, answer)
