"""The camera itself: LeRobot's interface over a thread that moves a stream on."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from lerobot.cameras.camera import Camera
from lerobot.utils.errors import DeviceAlreadyConnectedError, DeviceNotConnectedError

from lerobot_camera_strobe import frames
from lerobot_camera_strobe.config import ReplayCameraConfig
from lerobot_camera_strobe.stream import StampedFrame, Stream

_FIRST_S = 10.0  # a camera that gives no frame by then is not there
_FPS = 30


class ReplayCamera(Camera):
    """Plays a recording as a camera would: its own rate and phase, and the latest frame for whoever asks.

    The thread waits for absolute deadlines, so a late frame does not delay those behind it. One that it comes too late
    for is missed.
    """

    def __init__(self, config: ReplayCameraConfig) -> None:
        super().__init__(config)
        self.config = config
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._new = False

    def __str__(self) -> str:
        return f"ReplayCamera({self.config.path})"

    @property
    def is_connected(self) -> bool:
        return self._thread is not None

    @property
    def latest_timestamp(self) -> float | None:
        """When the latest frame came (s of `time.perf_counter`)."""
        return self._stream.came_s if self._stream and self._stream.latest is not None else None

    @staticmethod
    def find_cameras() -> list[dict[str, Any]]:
        """None: a recording has to be named."""
        return []

    def connect(self, warmup: bool = True) -> None:
        """Read the recording, start the thread, and wait for the first frame unless ``warmup`` is False.

        Raise ConnectionError where there is nothing to play, DeviceAlreadyConnectedError if it plays already.
        """
        if self.is_connected:
            raise DeviceAlreadyConnectedError(f"{self} is already connected.")
        c = self.config
        recording, fps = frames.read(Path(c.path), c.camera, c.episode, c.seconds, self.width, self.height)
        self.height, self.width = recording[0].shape[:2]
        self.fps = self.fps or round(fps) or _FPS
        self._stream = Stream(recording, fps, c.schedule(self.fps), time.perf_counter())
        self._stop.clear()
        self._new = False
        self._thread = threading.Thread(target=self._play, args=(self._stream,), name=str(self), daemon=True)
        self._thread.start()
        if warmup:
            try:
                self._wait(_FIRST_S)
            except TimeoutError as error:
                self.disconnect()
                raise ConnectionError(f"{self} gives no frames: {error}") from error

    def read(self) -> StampedFrame:
        """The next frame that comes. Raise DeviceNotConnectedError, or TimeoutError after ten seconds."""
        self._require_stream()
        with self._changed:
            self._new = False
        return self._wait(_FIRST_S)

    def async_read(self, timeout_ms: float = 200) -> StampedFrame:
        """The latest frame that was not read yet. Raise TimeoutError if none comes, DeviceNotConnectedError."""
        self._require_stream()
        return self._wait(timeout_ms / 1e3)

    def read_latest(self, max_age_ms: int = 500) -> StampedFrame:
        """The latest frame, without waiting.

        Raise TimeoutError if it came longer ago than ``max_age_ms``, RuntimeError before the first one, and
        DeviceNotConnectedError.
        """
        stream = self._require_stream()
        with self._changed:
            frame, came = stream.latest, stream.came_s
        if frame is None:
            raise RuntimeError(f"{self} has not captured any frames yet.")
        if (age_ms := (time.perf_counter() - came) * 1e3) > max_age_ms:
            raise TimeoutError(f"{self} latest frame is too old: {age_ms:.1f} ms (max allowed: {max_age_ms} ms).")
        return frame

    def disconnect(self) -> None:
        """End the thread and forget the frames. Raise DeviceNotConnectedError if nothing plays."""
        self._require_stream()
        thread, self._thread = self._thread, None
        self._stop.set()
        if thread:
            thread.join(timeout=2.0)
        self._stream = None

    def _require_stream(self) -> Stream:
        if self._thread is None or self._stream is None:
            raise DeviceNotConnectedError(f"{self} is not connected.")
        return self._stream

    def _wait(self, seconds: float) -> StampedFrame:
        stream = self._require_stream()
        with self._changed:
            if not self._changed.wait_for(lambda: self._new, seconds):
                raise TimeoutError(f"{self} gave no new frame within {seconds * 1e3:.0f} ms.")
            self._new = False
            assert stream.latest is not None
            return stream.latest

    def _play(self, stream: Stream) -> None:
        while not self._stop.wait(max(0.0, stream.next_s - time.perf_counter())):
            with self._changed:
                if stream.move(time.perf_counter()):
                    self._new = True
                    self._changed.notify_all()
