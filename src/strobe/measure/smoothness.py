"""How smooth a sequence of actions is: its path, its jerk, its jumps where chunks meet."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike

from strobe.results.motion import Motion


def motion(actions: ArrayLike, begun: Collection[int]) -> Motion | None:
    """Return the figures of one episode; None with fewer than two actions, or where one is not finite.

    Jerk is the third difference of what is commanded: of positions it is the jerk, of velocities or of steps it is a
    derivative further.

    Args:
        actions: (control ticks, action dim).
        begun: ticks whose action is the first of a new chunk.
    """
    values = np.asarray(actions, dtype=np.float64)
    if values.ndim != 2 or len(values) < 2 or not np.isfinite(values).all():
        return None
    steps = np.linalg.norm(np.diff(values, axis=0), axis=1)  # steps[i] leads to tick i + 1
    third = np.diff(values, n=3, axis=0)
    at_seam = np.isin(np.arange(1, len(values)), list(begun))
    split = at_seam.any() and not at_seam.all()
    return Motion(
        path=float(steps.mean()),
        jerk=float(np.sqrt((third**2).sum(axis=1).mean())) if len(third) else None,
        within=float(steps[~at_seam].mean()) if split else None,
        seam=float(steps[at_seam].mean()) if split else None,
    )


def over_episodes(motions: Sequence[Motion]) -> Motion | None:
    """Return the mean of each figure over the episodes that have it; None without episodes."""
    if not motions:
        return None
    return Motion(
        path=float(np.mean([one.path for one in motions])),
        jerk=_mean([one.jerk for one in motions]),
        within=_mean([one.within for one in motions]),
        seam=_mean([one.seam for one in motions]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
