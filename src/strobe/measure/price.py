"""The price of recording: time that a section costs the code around it."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from statistics import median
from typing import Any

from strobe.timeline import section

BATCHES = 9


def empty_section_ms(recorded: AbstractContextManager[Any], many: int = 500) -> float:
    """Price of one section here, in milliseconds: the median over batches of empty ones.

    Args:
        recorded: a context in which sections are recorded as those are whose price is asked for.
        many: sections of a batch.
    """
    took = []
    with recorded:
        for _ in range(BATCHES):
            start = time.perf_counter()
            for _ in range(many):
                with section("price"):
                    pass
            took.append((time.perf_counter() - start) * 1e3 / many)
    return median(took)
