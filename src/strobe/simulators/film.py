"""Take frames of an episode while lerobot-eval's rollout plays it, and encode a small video that browsers play."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from strobe.core.errors import in_a_line
from strobe.lerobot.quiet import muted_stderr

RATE, WIDTH = 10.0, 320  # frames per second of simulated time, and pixels: enough to see what happens
MOST = 600  # frames in memory; a longer episode gets fewer per second


class Film:
    """A `render_callback` of lerobot-eval's rollout: called after the reset and after each control tick.

    It draws by the environment's own `render`, at most `RATE` frames per second of simulated time. A simulator that
    cannot draw ends the film, not the episode.

    Args:
        fps: control ticks per second of simulated time.

    Attributes:
        frames: (height, width, 3) each, uint8, both even, at most `WIDTH` wide.
        trouble: why there are no frames from some tick on; '' if there are.
    """

    def __init__(self, fps: float) -> None:
        self.fps = fps
        self.frames: list[np.ndarray] = []
        self.trouble = ""
        self._stride, self._ticks = max(1, math.ceil(fps / RATE - 1e-9)), 0
        self._last = 0  # tick of the last frame

    @property
    def rate(self) -> float:
        """Frames per second of simulated time."""
        return self.fps / self._stride

    def __call__(self, vector: object) -> None:
        """Take a frame of the vector's first environment, if one is due."""
        tick, self._ticks = self._ticks, self._ticks + 1
        if self.trouble or tick % self._stride:
            return
        try:
            self.frames.append(shrunk(_render(vector)))
        except Exception as error:  # whatever a simulator raises
            self.trouble = f"{type(error).__name__}: {in_a_line(error, 200)}"
            return
        self._last = tick
        if len(self.frames) >= MOST:
            self.frames, self._stride = self.frames[::2], 2 * self._stride

    def cut(self, ticks: int) -> None:
        """Drop the frame after the last of ``ticks``: some simulators have begun the next episode by then."""
        if self._last >= ticks and len(self.frames) > 1:
            self.frames.pop()


def shrunk(image: object) -> np.ndarray:
    """Return ``image`` as RGB of at most `WIDTH` pixels in width, with even sides as H.264 wants them.

    Raises:
        ValueError: ``image`` is not an image, such as None.
    """
    from PIL import Image

    frame = np.ascontiguousarray(image)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or min(frame.shape) < 2:
        raise ValueError(f"no image of 8-bit RGB: {frame.dtype} {frame.shape}")
    height, width = frame.shape[:2]
    scale = min(1.0, WIDTH / width)
    size = [max(2, 2 * round(side * scale / 2)) for side in (width, height)]
    return np.asarray(Image.fromarray(frame).resize((size[0], size[1]), Image.Resampling.BOX))


def _render(vector: Any) -> Any:
    envs = getattr(vector, "envs", None)
    return envs[0].render() if envs else vector.call("render")[0]


QUALITY = 28  # x264's constant rate factor: a few kilobytes per second of a simulator's flat colours


def encode(frames: Sequence[np.ndarray], rate: float) -> tuple[bytes, str]:
    """Return a video of ``frames`` and the suffix of its file name.

    The video is H.264 in MP4 if PyAV can encode that, else an animated WebP.

    Args:
        frames: (height, width, 3) each, uint8, all of one size with even sides; at least one.
        rate: frames per second.
    """
    try:
        with muted_stderr():  # also while the encoder is freed, which prints its figures only then
            return _mp4(frames, rate), ".mp4"
    except (ImportError, ValueError, OSError):  # no PyAV, or none with x264; FFmpeg's errors are these
        return _webp(frames, rate), ".webp"


def still(frame: np.ndarray) -> bytes:
    """Return one frame as WebP."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "WEBP", quality=70)
    return buffer.getvalue()


def _mp4(frames: Sequence[np.ndarray], rate: float) -> bytes:
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(rate).limit_denominator(1000))
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(QUALITY), "preset": "veryfast", "threads": "1"}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def _webp(frames: Sequence[np.ndarray], rate: float) -> bytes:
    from PIL import Image

    first, *others = (Image.fromarray(frame) for frame in frames)
    buffer = io.BytesIO()
    first.save(buffer, "WEBP", save_all=True, append_images=others, duration=round(1e3 / rate), loop=0, quality=50)
    return buffer.getvalue()
