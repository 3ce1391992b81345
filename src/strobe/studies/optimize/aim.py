"""The request of a climb, and where the climb reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from strobe.measure.guard import Guards
from strobe.measure.in_time import ASKED
from strobe.studies.measuring import Reporter, Silent
from strobe.studies.optimize.candidates import Choice
from strobe.treatments.treatment import Spec


@dataclass(frozen=True)
class Aim:
    """Where to climb to and by what.

    Args:
        target_hz: control loops per second: a chunk must be ready within one.
        in_time: share of chunks that must be ready within it, 0 to 1.
        guards: how far the policy may move from the untouched one, by what its treatments do.
        everything: go on through all candidates once the target is reached.
        time_limit: seconds for climb and closing run; None for what suits the subject. Episodes come after it.
        start: treatments that are on from the first rung, whatever they buy; the guard holds for them too.
        env: LeRobot's ``EnvConfig`` for paired episodes, and how many of them per task; 0 for none.
    """

    target_hz: float = 20.0
    in_time: float = ASKED
    guards: Guards = field(default_factory=Guards)
    choice: Choice = field(default_factory=Choice)
    start: tuple[Spec, ...] = ()
    everything: bool = False
    time_limit: float | None = None
    env: Any = None
    episodes: int = 0

    @property
    def target_ms(self) -> float:
        """Milliseconds that a chunk may take."""
        return 1e3 / self.target_hz


class Climbing(Reporter, Protocol):
    """Where the climb reports its progress, and the outcome of each try."""

    def doing(self, what: str) -> None:
        """Show ``what`` for as long as it lasts."""

    def said(self, line: str) -> None:
        """Print a line that stays."""


class SilentClimb(Silent):
    """Says nothing."""

    def doing(self, what: str) -> None: ...

    def said(self, line: str) -> None: ...
