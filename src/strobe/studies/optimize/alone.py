"""A rung by itself, chunk after chunk: are enough of its chunks in time for the target?

What a closing run has of a rung is too little to say that: some ten chunks, where 59 can show that 95 % are in time.
"""

from __future__ import annotations

import math

from strobe.measure.in_time import InTimeLooks, fewest_chunks, in_time
from strobe.results.data import Samples
from strobe.results.in_time import InTime
from strobe.results.measurement import Measurement
from strobe.studies.optimize import limits
from strobe.studies.optimize.aim import Aim
from strobe.studies.optimize.runs import Runs
from strobe.treatments.treatment import Variant


def seen_in(measurement: Measurement, aim: Aim) -> InTime:
    """Judge the chunks of ``measurement``."""
    return in_time(measurement.samples.values, aim.target_ms, aim.in_time)


def watch(
    runs: Runs, variant: Variant, chunk_ms: float, aim: Aim, seconds: float = math.inf
) -> tuple[InTime, Samples] | None:
    """Run ``variant`` by itself until its chunks show whether enough are in time.

    Args:
        chunk_ms: that a chunk takes, roughly.
        seconds: that it may take at most.

    Returns:
        The judgement and the chunks; None where ``seconds`` are too few for it, and nothing was run.

    Raises:
        KeyboardInterrupt: during the run.
    """
    usual, most = limits.IN_TIME_S
    least_s = (fewest_chunks(aim.in_time) + limits.FIRST) * runs.spaced_s(chunk_ms / 1e3)
    if least_s > min(seconds, most):
        return None
    looks = InTimeLooks(variant.name, aim.target_ms, aim.in_time)
    measured = runs.sample_one(variant, looks, min(max(usual, least_s), seconds))
    if measured.interrupted:
        raise KeyboardInterrupt
    samples = measured.measurements[0].samples
    return looks.judged(samples.values), samples
