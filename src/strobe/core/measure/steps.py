"""Latency over denoising steps: the line through it, and the parts of a chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from strobe.core.measure.statistics import inflation
from strobe.core.results.data import Interval
from strobe.core.results.line import Line

WHOLES = ("policy",)  # parts that are replaced by the parts inside them
RESAMPLES = 2000


def top_level(parts: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """Return the first level of ``parts``, by path in ms, and of the policy what is in it; equal names are added up."""
    milliseconds: dict[str, float] = {}
    for path, ms in parts.items():
        inside = len(path) == 2 and path[0] in WHOLES
        if inside or (len(path) == 1 and not (path[0] in WHOLES and any(p[:1] == path and len(p) > 1 for p in parts))):
            milliseconds[path[-1]] = milliseconds.get(path[-1], 0.0) + ms
    return milliseconds


def steps_line(part: str, samples: Mapping[int, Sequence[float]], resamples: int = RESAMPLES) -> Line | None:
    """Least squares through (steps, median of the samples); None with fewer than two numbers of steps.

    The 95 % intervals are percentiles of a bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
    chapter 13) that draws whole rounds, so that what slows a round alike stays together, wider by what neighbouring
    rounds share (see `statistics.inflation`). They say how well the line
    through these numbers of steps is known, not how straight it is. Below six rounds there are none.

    Args:
        samples: steps → milliseconds of each round, equally many for all.

    Raises:
        ValueError: not equally many samples, or none.
    """
    steps = np.array(sorted(samples), dtype=float)
    if len(steps) < 2:
        return None
    rounds = np.array([samples[int(count)] for count in steps], dtype=float)  # (numbers of steps, rounds)
    if rounds.ndim != 2 or not rounds.size:
        raise ValueError("a line needs as many samples for each number of steps, one at least")
    medians = np.median(rounds, axis=1)
    per_step, fixed = map(float, np.polyfit(steps, medians, 1))
    ends: tuple[Interval | None, Interval | None] = (None, None)
    if rounds.shape[1] >= 6:
        drawn = np.random.default_rng(0).integers(rounds.shape[1], size=(resamples, rounds.shape[1]))
        fits = np.polyfit(steps, np.median(rounds[:, drawn], axis=2), 1)  # (slope and offset, resamples)
        of_rounds = np.polyfit(steps, rounds, 1)
        slope, offset = (
            around + (np.percentile(drawn_fits, [2.5, 97.5]) - around) * math.sqrt(inflation(series))
            for around, drawn_fits, series in zip((per_step, fixed), fits, of_rounds, strict=True)
        )
        ends = (Interval(low=offset[0], high=offset[1]), Interval(low=slope[0], high=slope[1]))
    return Line(
        part=part,
        fixed_ms=fixed,
        fixed_interval=ends[0],
        per_step_ms=per_step,
        per_step_interval=ends[1],
        one_step_ms=float(medians[0] / steps[0]),
        predicted={int(count): fixed + per_step * float(count) for count in steps},
    )
