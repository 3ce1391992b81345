"""How much a climb measures, and how long that may take.

Read as ``limits.TRY_S`` where they are used, so that a test can shorten them all in one place.
"""

from __future__ import annotations

PAIRS = 8  # with which a verdict reaches its 99 %: of the closing run, at the least
ROUNDS = 10  # of a try, at the least
GUARDED = 16  # observations with noise of their own that a try is guarded on, at most
LOOKED_AT = 2  # observations of a try that differ in prompt and state, the first of them twice
CHECK_S = 12.0  # seconds for looking well at the actions of the rung that the ladder ends with, roughly
CHUNKS = 45.0  # of the policy as it is: the least time for a climb, where no limit was asked for
FIRST = 2  # of them before it is timed, so that what is wrong costs little
GLANCED_FROM_S = 3.0  # a try that takes longer begins with a glance
FAR = 2.0  # times the target: such a policy need not be measured well to know that it misses it
LITTLE = 0.15  # of a chunk's time: what can save less is not tried where the target is far
SLOWER = 1.05  # times what was before, at first sight: too slow for the closing run
TRIES = 3  # that must fit into the time limit, at the policy's first speed, for candidates to be tried one by one
# The least and the most that a try is sampled for, unless its rounds take longer; clear verdicts come sooner.
TRY_S = (2.0, 10.0)
# A rung by itself, to see whether its chunks are in time: the seconds that it usually takes at most, and those that it
# may take where the fewest chunks that can show it take longer. It is not run where these take longer still.
IN_TIME_S = (10.0, 25.0)
FINEST = 0.025  # half-width of the closing run's intervals, unless a finer one is asked for: less takes too long
SURE = 1.05  # times what earlier ladders promise, to count on it
CLOSING_SHARE = 0.15  # of the time limit, kept for the closing run


def default_limit(device: str) -> float:
    """Return the seconds for a climb: 80 on a CPU, 300 elsewhere, where compiling pays."""
    return 80.0 if device == "cpu" else 300.0


def try_s(chunk_s: float) -> float:
    """Return the seconds that a try takes at the least, where a chunk takes ``chunk_s``."""
    return (2 * (ROUNDS + 1) + FIRST + 1) * chunk_s
