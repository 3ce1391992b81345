"""The seconds that work may take: first all that was planned, then what a judgement needs, then nothing.

A command's ``--seconds`` bound its timed rounds. Its whole work has a `WorkLimit` that follows from these, and the
looks at the actions have a limit of their own within it.
"""

from __future__ import annotations

import math
import time

from strobe.core.measure.sampling import PATIENCE
from strobe.core.results.agreement import Agreement, Yardstick

OTHER_S = 30.0  # time for the ceiling, gradients and profilers of a phase
WORK_PATIENCE = 2.0  # times a command's planned seconds that its whole work may take


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
        within: the limit of the work that this phase is part of; None for a phase that is all there is.
    """

    def __init__(
        self, seconds: float = math.inf, *, patience: float = PATIENCE, within: TimeLimit | None = None
    ) -> None:
        self.seconds = seconds
        self._patience = patience
        self._within = within
        self._began = time.perf_counter()
        self._until = seconds  # after the beginning: the end of the share that is at work

    @property
    def took(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    @property
    def is_work_over(self) -> bool:
        """Whether only what a judgement needs is still to be done: the work at hand has had its share."""
        return self.took >= self._until

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is to be begun."""
        return not self.fits(0.0)

    def fits(self, seconds: float) -> bool:
        """Return whether work that takes ``seconds`` would end in time."""
        if self._within is not None and not self._within.fits(seconds):
            return False
        return self.took + seconds < self._patience * self.seconds

    def begin(self, share: float) -> None:
        """Give the work that begins now ``share`` (0 to 1) of the seconds that are left."""
        took = self.took
        self._until = took + share * max(self.seconds - took, 0.0)


class WorkLimit(TimeLimit):
    """The clock of a command: how long all that it measures may take, and what did not fit.

    At rest a phase takes ``seconds`` for its rounds, at most as long again for looks and counting, and `OTHER_S` for
    the rest. A machine with other load has `WORK_PATIENCE` times that, and then nothing more is begun. So the whole
    takes at most 4 × ``seconds`` + 60 for each phase, and the call that is running by then.

    Args:
        seconds: of each phase's rounds; infinity for no limit.
        phases: that are measured one after the other.
    """

    def __init__(self, seconds: float = math.inf, phases: int = 1) -> None:
        super().__init__(phases * (2 * seconds + OTHER_S), patience=WORK_PATIENCE)
        self.left_out: list[str] = []
        self._rounds_s, self._phases = seconds, phases

    def extend(self, seconds: float) -> None:
        """Allow ``seconds`` more, for calls so slow that the fewest of them take longer than was planned."""
        self.seconds += max(seconds, 0.0)

    def exclude(self, seconds: float) -> None:
        """Leave ``seconds`` that have just passed out of the count, such as those of compiling."""
        self._began += seconds

    def leave_out(self, what: str, seconds: float = 0.0) -> str:
        """Note that ``what`` was left out, which takes ``seconds`` by estimate. Return the note."""
        lacking = max(self.took + seconds - self._patience * self.seconds, 0.0)
        enough = math.ceil(self._rounds_s + lacking / (self._phases * (2 * self._patience - 1))) + 1
        note = f"{what}: the time was used up; give --seconds={enough}"  # rounds that may take longer do take longer
        self.left_out.append(note)
        return note
