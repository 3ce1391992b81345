"""The latest frame of a replayed recording, moved on by whoever has the time. Reads no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lerobot_camera_strobe.schedule import Schedule


class StampedFrame(np.ndarray):
    """(height, width, 3) uint8, RGB, with the moment of its capture (s) and its number. Views keep both."""

    captured_s: float
    index: int

    def __array_finalize__(self, of: Any) -> None:
        self.captured_s = getattr(of, "captured_s", float("nan"))
        self.index = getattr(of, "index", -1)


class Stream:
    """Frames of a recording of ``fps`` frames/s, over and over, as a camera with ``schedule`` sees them.

    All times are seconds of one clock, on which ``start_s`` is the start.
    """

    def __init__(self, frames: Sequence[NDArray[np.uint8]], fps: float, schedule: Schedule, start_s: float) -> None:
        self._frames, self._fps, self._schedule, self._start = frames, fps, schedule, start_s
        self._last = -1
        self.came_s = start_s
        self.latest: StampedFrame | None = None

    def move(self, now: float) -> bool:
        """Take the newest frame that has come by ``now``; say whether there is one. It is an array of its own."""
        k = self._schedule.newest(now - self._start, self._last)
        if k is None:
            return False
        self._last = k
        at = int(self._schedule.shows_s(k) * self._fps + 1e-6) % len(self._frames)
        frame = self._frames[at].copy().view(StampedFrame)
        frame.captured_s, frame.index = self._start + self._schedule.captured_s(k), k
        self.latest, self.came_s = frame, now
        return True

    @property
    def next_s(self) -> float:
        """When the next frame comes."""
        return self._start + self._schedule.next_s(self._last)
