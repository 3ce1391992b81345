"""The JPEG of an image, and how long such work takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

T = TypeVar("T")

QUALITY = 95  # JPEG's quality


def jpeg(pixels: np.ndarray) -> bytes:
    """Return the JPEG of an image of (height, width, colours), red first, in uint8."""
    import cv2

    if pixels.shape[2] == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    done, coded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return coded.tobytes() if done else pixels.tobytes()


def time_repeated(work: Callable[[], T], times: int) -> tuple[T, int]:
    """Return what ``work`` returns, and the median nanoseconds of so many calls, one or more."""
    took: list[int] = []
    while True:
        begun = time.perf_counter_ns()
        made = work()
        took.append(time.perf_counter_ns() - begun)
        if len(took) >= times:
            return made, sorted(took)[len(took) // 2]
