"""The interface of a strategy: how candidates are tried, and what the closing run has to show for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strobe.measure.sampling import SamplingBudget
from strobe.studies.measuring import Measured
from strobe.treatments.treatment import Variant


class Strategy(Protocol):
    """A way to climb; the rungs it adds are in its `Climb`."""

    @property
    def closed(self) -> Measured | None:
        """A run of rungs that is as good as a closing run of them; None for none."""
        ...

    @property
    def closing_rounds(self) -> int:
        """Rounds of the closing run at the least, warm-up included."""
        ...

    def measure_start(self, variants: Sequence[Variant], chunk_s: float) -> Measured:
        """Measure the policy as it is, and with the treatments that were asked for from the start.

        ``chunk_s``: seconds that a chunk of the policy as it is takes, roughly.
        """
        ...

    def climb(self) -> str:
        """Try candidates until nothing is left, or the target or the time limit is reached. Return why it ended."""
        ...

    def closing_budget(self, asked: SamplingBudget, seconds: float) -> SamplingBudget:
        """Return the closing run's budget: what was ``asked`` for, within ``seconds``."""
        ...
