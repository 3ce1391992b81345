"""The request of a climb, and the numbers that say how much it measures and when it gives up.

Read as ``settings.TRY_S`` where they are used, so that a test can shorten them all in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from strobe.core.measure.guard import Guards
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.core.treatments.treatment import Spec
from strobe.ladder.candidates import Choice
from strobe.ladder.in_time import REQUIRED

# A try

SCREENING_CHUNKS = 2  # run before timing; a broken candidate stops here
SCREENED_OBSERVATIONS = 2  # observations of different prompt and state, seen before timing; the first of them twice
GUARDED_OBSERVATIONS = 16  # most observations, with noise of their own, that a try's actions are compared on
NEAR_LIMIT = 0.7  # share of a limit: nearer to it, on both sides, actions are compared on more observations
TRY_ROUNDS = 10  # the fewest; a clear verdict comes in these
TRY_S = (2.0, 10.0)  # least and most seconds of sampling, unless the rounds take longer; clear verdicts end it sooner
GLANCE_FROM_S = 3.0  # a try that takes longer begins with a glance at few pairs
SLOWER_AT_SIGHT = 1.05  # × the time before, at first sight: too slow to wait for the closing run

# Which candidates are tried

ONE_BY_ONE_TRIES = 9  # tries that must fit into the time limit at the policy's first speed; else by effect
FAR = 2.0  # × target: slower policies are measured coarsely, and candidates that save little come last
SMALL_SAVING = 0.15  # share of a chunk's time: what can save less comes last while the target is far
MIN_SAVING = 0.02  # share of a chunk's time: what can save less is not tried
PREDICTED_MARGIN = 1.05  # rungs of an earlier ladder suffice if their predicted time × this meets the target
# Chunks of the baseline that a climb by effect takes at least, and ten tries one by one; × the usual limit at most.
LEAST_CHUNKS, ONE_BY_ONE_CHUNKS, LONGEST = 75.0, 250.0, 3.0

# The closing run

CLOSING_MIN_PAIRS = 8  # smallest count at which a 99 % verdict is possible
PAIRS_IN_NOISE = 20  # with fewer, one disturbed pair can hide any gain
CLOSING_MIN_ROUNDS = CLOSING_MIN_PAIRS + 1  # the first is warm-up
CLOSING_SHARE = 0.15  # share of the time limit reserved for it
FINEST_INTERVAL = 0.025  # half-width of its intervals, unless a finer one is requested: less takes too long
CLOSE_LOOK_S = 12.0  # approximate time to check the actions of the final rung
# A rung by itself, to see whether its chunks are in time: the seconds that it usually takes at most, and those that it
# may take where the fewest chunks that can show it take longer. It is not run where these take longer still.
IN_TIME_S = (10.0, 25.0)


def default_time_limit(device: str) -> float:
    """Return the seconds for a climb: 80 on a CPU, 300 elsewhere, where compiling pays."""
    return 80.0 if device == "cpu" else 300.0


def shortest_try_s(chunk_s: float) -> float:
    """Return the seconds that a try takes at the least, where a chunk takes ``chunk_s``."""
    return (2 * (TRY_ROUNDS + 1) + SCREENING_CHUNKS + 1) * chunk_s


@dataclass(frozen=True)
class Aim:
    """Where to climb to and by what.

    Args:
        target_hz: control loops per second: a chunk must be ready within one.
        in_time: share of chunks that must be ready within it, 0 to 1.
        guards: how far the policy may move from the baseline, by what its treatments do.
        everything: go on through all candidates once the target is reached.
        time_limit: seconds for climb and closing run; None for what suits the subject. Episodes come after it.
        start: treatments that are on from the first rung, whatever they gain; the guard holds for them too.
        env: LeRobot's ``EnvConfig`` for paired episodes, and how many of them per task; 0 for none.
    """

    target_hz: float = 20.0
    in_time: float = REQUIRED
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
    """Shows the progress of a climb, and the outcome of each try."""

    def doing(self, what: str) -> None:
        """Show ``what`` for as long as it lasts."""

    def say(self, line: str) -> None:
        """Print a line that stays."""


class SilentClimb(Silent):
    """A reporter that shows nothing."""

    def doing(self, what: str) -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Print nothing."""
