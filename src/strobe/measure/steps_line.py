"""The line a + b × steps through latencies that were measured in the same rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from strobe.measure.intervals import inflation
from strobe.results.budget import Line
from strobe.results.data import Interval

RESAMPLES = 2000


def steps_line(part: str, samples: Mapping[int, Sequence[float]], resamples: int = RESAMPLES) -> Line | None:
    """Least squares through (steps, median of the samples); None with fewer than two numbers of steps.

    The 95 % intervals are percentiles of a bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
    chapter 13) that draws whole rounds, so that what slows a round alike stays together, wider by what neighbouring
    rounds share (see `intervals.inflation`). They say how well the line
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
