"""A probe on a camera: whether each read gives another frame, whether that shows another picture, and how old it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from strobe.loops.event_log import Event
from strobe.timeline.clock import host_ns

SAME, FRESH, FROZEN = 0, 1, 2  # the frame that was read before; another one; another one with the same picture
UNKNOWN = -1
_ACROSS = 32  # samples of a picture's height, which are compared
_LONGEST_S = 3600.0  # a frame that seems older has its time from another clock

_Call = Callable[..., Any]


class CameraProbe:
    """Reports each read of a camera to ``append``: its section, and the event camera, end, name, fresh, age.

    fresh: see SAME. age: nanoseconds from the frame's own time (`captured_s`) to the end of the read, else from the
    camera's ``latest_timestamp``, at which LeRobot's cameras got it; -1 where neither is known. A frozen picture is
    told by a grid of its pixels: two pictures of one real scene differ there by the sensor's noise.
    """

    def __init__(self, name: str, section: str, camera: Any, append: Callable[[Any], None]) -> None:
        self._name, self._section, self._camera, self._append = name, section, camera, append
        self._last: Any = None  # held, so that no other frame gets its place in memory
        self._seen = b""

    def reading(self, inner: _Call) -> _Call:
        """Around a method of the camera that returns a frame."""
        append, ident, name, section = self._append, threading.get_ident, self._name, self._section

        def call(*args: Any, **kwargs: Any) -> Any:
            start = host_ns()
            try:
                frame = inner(*args, **kwargs)
            except BaseException:
                append(("s", section, start, host_ns(), ident()))
                raise
            end = host_ns()
            append((_read, name, section, start, end, ident(), self._fresh(frame), self._age(frame, end)))
            return frame

        return call

    def _fresh(self, frame: Any) -> int:
        if frame is self._last:
            return SAME
        self._last, before = frame, self._seen
        self._seen = _sampled(frame)
        return FROZEN if before and self._seen == before else FRESH

    def _age(self, frame: Any, now: int) -> int:
        try:
            stamp = getattr(frame, "captured_s", None) or self._camera.latest_timestamp
            age = now - round(stamp * 1e9)
        except Exception:  # a camera that keeps no time
            return UNKNOWN
        return age if 0 <= age < _LONGEST_S * 1e9 else UNKNOWN


def _read(name: str, section: str, start: int, end: int, thread: int, fresh: int, age: int) -> list[Event]:
    return [("s", section, start, end, thread), ("camera", end, name, fresh, age)]


def _sampled(frame: Any) -> bytes:
    """Some pixels of a frame, of one of its colours; nothing of what is no picture."""
    try:
        step = max(1, frame.shape[0] // _ACROSS)
        grid = frame[::step, ::step, 1] if frame.ndim > 2 else frame[::step, ::step]
        return grid.tobytes()
    except Exception:
        return b""
