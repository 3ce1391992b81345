"""The seconds that a phase of work may take: first all that was planned, then what a judgement needs, then nothing.

A command's ``--seconds`` bound its timed rounds. Work after them gets a limit of its own that follows from these.
"""

from __future__ import annotations

import math
import time

from strobe.measure.sampling import PATIENCE
from strobe.results.agreement import Agreement, Yardstick


class TimeUpError(Exception):
    """A call was given up, since its time limit was `TimeLimit.spent` before it ended."""


class LookInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a look, and what it had seen by then says something.

    Args:
        found: an agreement, or a yardstick.
    """

    def __init__(self, found: Agreement | Yardstick) -> None:
        super().__init__()
        self.found = found


class TimeLimit:
    """How long a phase of work may take, from now on.

    Args:
        seconds: that it may take; infinity for as long as it needs.
        patience: times ``seconds`` that what a judgement needs may take, on a machine that became busy.
    """

    def __init__(self, seconds: float = math.inf, *, patience: float = PATIENCE) -> None:
        self.seconds = seconds
        self._patience = patience
        self._began = time.perf_counter()
        self._until = seconds  # after the beginning: the end of the share that is at work

    @property
    def took(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    @property
    def over(self) -> bool:
        """Whether only what a judgement needs is still to be done: the work at hand has had its share."""
        return self.took >= self._until

    @property
    def spent(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.took >= self._patience * self.seconds

    def begin(self, share: float) -> None:
        """Give the work that begins now ``share`` (0 to 1) of the seconds that are left."""
        took = self.took
        self._until = took + share * max(self.seconds - took, 0.0)
