"""By how many control ticks a joint's state follows its action."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

MOST_LAG = 15  # ticks that are looked at: half a second at 30 Hz
FEWEST = 30  # ticks of an episode
LEAST_MATCH = 0.5  # correlation of the steps below which state and action are not seen to be of one motion
STILL = 1e-6  # of a joint's size: a spread below it is none


def lag_ticks(action: ArrayLike, state: ArrayLike) -> float | None:
    """Return the ticks after which a joint's steps repeat those of its action, to a part of a tick; None if not seen.

    The peak of the correlation of the differences, with a parabola through it and its neighbours. It is not seen where
    the joint hardly moves, where the steps resemble each other too little, or where the peak is at an end.

    Args:
        action, state: (ticks,), in the same unit or not; the state of a tick is read before its action is sent.
    """
    commanded, moved = (np.diff(np.asarray(values, dtype=float)) for values in (action, state))
    if len(commanded) < FEWEST or not (np.isfinite(commanded).all() and np.isfinite(moved).all()):
        return None
    size = max(1.0, float(np.abs(np.asarray(action, dtype=float)).max()))
    if commanded.std() <= STILL * size or moved.std() <= STILL * size:
        return None
    most = min(MOST_LAG, len(commanded) // 3)
    match = np.array([_correlation(commanded[: len(commanded) - lag], moved[lag:]) for lag in range(most + 1)])
    peak = int(np.argmax(match))
    if match[peak] < LEAST_MATCH or peak == most:
        return None
    if peak == 0:
        return 0.0
    before, here, after = match[peak - 1 : peak + 2]
    curve = before - 2 * here + after
    return float(peak + (0.5 * (before - after) / curve if curve < 0 else 0.0))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    spread = a.std() * b.std()
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 0 else 0.0
