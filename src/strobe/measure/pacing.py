"""Calls at a pace: each begins at a deadline, and whoever is early sleeps until then."""

from __future__ import annotations

import time


class Pacer:
    """Holds calls back until their deadlines, which are absolute: what one sleep adds is not handed on to the next."""

    def __init__(self) -> None:
        self._begun: float | None = None  # the deadline of the call before, or its beginning where it came late

    def wait(self, period_s: float) -> bool:
        """Sleep until ``period_s`` after the call before began. Return whether the deadline was still ahead.

        The first call has no deadline. After one that is missed, the next counts from now: calls never pile up.
        """
        now = time.perf_counter()
        due = now if self._begun is None else self._begun + period_s
        in_time = now <= due
        self._begun = due if in_time else now
        while (left := due - now) > 0:
            time.sleep(left)
            now = time.perf_counter()
        return in_time

    def began(self) -> None:
        """A call begins now, without a deadline."""
        self._begun = time.perf_counter()
