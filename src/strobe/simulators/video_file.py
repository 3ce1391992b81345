"""Frames → a small video file that browsers play."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from strobe.lerobot.quiet import muted_stderr

QUALITY = 28  # x264's constant rate factor: a few kilobytes per second of a simulator's flat colours


def encode(frames: Sequence[np.ndarray], rate: float) -> tuple[bytes, str]:
    """Return a video of ``frames`` and the ending of its name.

    H.264 in MP4 where PyAV has an encoder of it, else an animated WebP.

    Args:
        frames: (height, width, 3) each, uint8, all of one size with even sides; one at least.
        rate: frames per second.
    """
    try:
        with muted_stderr():  # also while the encoder is freed, which tells its figures only then
            return _mp4(frames, rate), ".mp4"
    except (ImportError, ValueError, OSError):  # no PyAV, or none with x264; FFmpeg's errors are these
        return _webp(frames, rate), ".webp"


def still(frame: np.ndarray) -> bytes:
    """Return one frame as WebP."""
    from PIL import Image

    kept = io.BytesIO()
    Image.fromarray(frame).save(kept, "WEBP", quality=70)
    return kept.getvalue()


def _mp4(frames: Sequence[np.ndarray], rate: float) -> bytes:
    import av

    kept = io.BytesIO()
    with av.open(kept, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(rate).limit_denominator(1000))
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(QUALITY), "preset": "veryfast", "threads": "1"}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return kept.getvalue()


def _webp(frames: Sequence[np.ndarray], rate: float) -> bytes:
    from PIL import Image

    first, *others = (Image.fromarray(frame) for frame in frames)
    kept = io.BytesIO()
    first.save(kept, "WEBP", save_all=True, append_images=others, duration=round(1e3 / rate), loop=0, quality=50)
    return kept.getvalue()
