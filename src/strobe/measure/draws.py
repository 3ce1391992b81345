"""Other runs that could have been: latencies drawn again from those recorded, and intervals from such draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from strobe.measure.rollout import Action, seams
from strobe.results.data import Interval
from strobe.results.replay import Jump

BLOCK = 5  # mean length of calls that are drawn together: slow ones come in rows
LEVEL = 0.95
RESAMPLES = 1000


def in_order(latencies: Sequence[int], first: int = 1) -> Iterator[int]:
    """``latencies`` as recorded, then those after the ``first`` ones over again, without end."""
    yield from latencies
    rest = list(latencies[first:]) or list(latencies)
    while True:
        yield from rest


def drawn(latencies: Sequence[int], rng: np.random.Generator, first: int = 1) -> Iterator[int]:
    """The ``first`` latencies as recorded, then others drawn from the rest, without end.

    Drawn twice: a pool as large as the rest, since another recording would have had other latencies, then from that.
    Both in blocks of random length, which keep neighbours together (the stationary bootstrap: Politis and Romano,
    Journal of the American Statistical Association 89, 1994).
    """
    yield from latencies[:first]
    rest = list(latencies[first:]) or list(latencies)
    blocks = _blocks(rest, rng)
    pool = [next(blocks) for _ in rest]
    yield from _blocks(pool, rng)


def _blocks(values: Sequence[int], rng: np.random.Generator) -> Iterator[int]:
    size = len(values)
    while True:
        at, length = int(rng.integers(size)), int(rng.geometric(1 / BLOCK))
        for index in range(at, at + length):
            yield values[index % size]


def middle(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the interval that 95 % of ``values`` lie in, each one of them."""
    low, high = np.percentile(values, [50 * (1 - LEVEL), 50 * (1 + LEVEL)], method="closest_observation")
    return float(low), float(high)


def jumps(actions: Sequence[Action], joints: Sequence[str], rng: np.random.Generator) -> list[Jump]:
    """Jumps at seams over ordinary steps, joint by joint; the interval is a bootstrap over seams, steps held."""
    found = []
    sizes = _jumps(actions)
    for index, seam in enumerate(seams(actions, joints)):
        if seam.ratio is None:
            continue
        interval = None
        if len(sizes) >= 3:
            mine = np.array([size[index] for size in sizes])
            medians = np.median(rng.choice(mine, (RESAMPLES, len(mine))), axis=1) / seam.step.p95
            low, high = np.percentile(medians, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
            interval = Interval(low=float(low), high=float(high), level=LEVEL)
        found.append(Jump(joint=seam.joint, ratio=seam.ratio, interval=interval, seams=len(sizes)))
    return found


def _jumps(actions: Sequence[Action]) -> list[list[float]]:
    return [
        [abs(b - a) for a, b in zip(before.values, now.values, strict=True)]
        for before, now in pairwise(actions)
        if now.joined and before.chunk != now.chunk and len(before.values) == len(now.values)
    ]
