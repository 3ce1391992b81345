"""What a sweep and a comparison of many variants promise: the best of them, those slower than it, how figures grow.

Every cell takes the same time; a claim is false where any is called slower than the best. Runs of one cell differ by a
normal deviate: within what is allowed for where there is one run of each, and by 5 % where there are repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
from _claims import NOISES, Claim, Noise, times

from strobe.measure.success_rates import each_of
from strobe.measure.verdicts import LEVEL, paired_verdict
from strobe.results.data import Summary
from strobe.results.sweep import Axis, Cell, CellRun, Row
from strobe.sweeps.best import best, parse
from strobe.sweeps.scaling import scalings

AXIS = "batch_size"
FALSE, FOUND = 0.05, 0.9


def simulate(quick: bool) -> list[Claim]:
    """Simulate every promise of a sweep, and that of a comparison with many variants."""
    random = np.random.default_rng(17)
    tries = 6 if quick else 200
    claims = []
    for name, noise in NOISES.items():
        claims.append(_slower(random, noise, name, "time_ms", 20, 1, 0.005, tries))
        claims.append(_slower(random, noise, name, "p95_ms", 20, 1, 0.005, tries))
        claims.append(_slower(random, noise, name, "throughput", 10, 3, 0.05, tries))
        claims.append(_any_variant(random, noise, name, 20, 2 * tries))
    claims += [_found(random, metric, 2 * tries) for metric in ("time_ms", "p95_ms")]
    return [*claims, *_growth(random, 10 * tries)]


def _slower(
    random: np.random.Generator,
    noise: Noise,
    name: str,
    metric: str,
    cells: int,
    repeats: int,
    spread: float,
    tries: int,
) -> Claim:
    hits = 0
    for _ in range(tries):
        # A p95 of twenty cells takes 175 samples that know nothing of each other.
        enough = 600 if metric == "p95_ms" else 60
        rows, samples = _swept(random, noise, [30.0] * cells, repeats, spread, enough)
        found = best(parse(metric, [AXIS]), rows, samples)
        hits += len(found.ties) + len(found.unjudged) < cells - 1
    runs = f"{repeats} run{'s' * (repeats > 1)} of each, {spread:.1%} apart"
    return Claim(f"any of {cells} equal cells slower than the best by {metric}", f"{name}, {runs}", FALSE, "at most",
                 hits, tries)  # fmt: skip


def _found(random: np.random.Generator, metric: str, tries: int) -> Claim:
    """Of ten cells one takes a tenth longer."""
    hits = 0
    for _ in range(tries):
        rows, samples = _swept(random, NOISES["independent"], [30.0] * 9 + [33.0], 1, 0.005, 400)
        found = best(parse(metric, [AXIS]), rows, samples)
        hits += all(tie[AXIS] != "9" for tie in found.ties) and not found.unjudged
    return Claim(
        f"a cell slower by 10 % among ten, by {metric}", "independent, 1 run of each", FOUND, "at least", hits, tries
    )


def _swept(
    random: np.random.Generator, noise: Noise, medians: list[float], repeats: int, spread: float, samples: int
) -> tuple[list[Cell], dict[tuple[str, str], list[list[float]]]]:
    cells, raw = [], {}
    for place, median in zip(count(), medians, strict=False):
        runs = [
            times(noise, random, samples, median=median * float(np.exp(spread * random.standard_normal()))).tolist()
            for _ in range(repeats)
        ]
        cells.append(_cell(str(place), 1, runs))
        raw[str(place), "inference"] = runs
    return cells, raw


def _cell(key: str, batch: int, runs: list[list[float]]) -> Cell:
    every = [ms for run in runs for ms in run]
    middle, tail = map(float, np.percentile(every, [50, 95]))
    summary = Summary(n=len(every), median=middle, interval=None, mean=middle, std=0, min=middle, max=tail, p95=tail)
    row = Row(measurement="inference", phase="inference", batch=1, ms=summary, throughput=1e3 / summary.median,
              repeats=[float(np.median(run)) for run in runs])  # fmt: skip
    done = [CellRun(repeat=1, status="done", folder="", machine=0)]
    return Cell(key=key, settings={AXIS: key if batch == 1 else str(batch)}, status="done", runs=done, rows=[row])


def _any_variant(random: np.random.Generator, noise: Noise, name: str, variants: int, tries: int) -> Claim:
    hits = 0
    for _ in range(tries):
        first = times(noise, random, 40)
        others = (times(noise, random, 40) for _ in range(variants))
        kinds = [paired_verdict(first, one, level=each_of(variants, LEVEL)).kind for one in others]
        hits += any(kind in ("faster", "slower") for kind in kinds)
    return Claim(f"any of {variants} equal variants faster or slower", f"{name}, one run in rounds", FALSE, "at most",
                 hits, tries)  # fmt: skip


def _growth(random: np.random.Generator, tries: int) -> list[Claim]:
    """Whether the 95 % intervals of an exponent and of a price per unit leave out the true one."""
    sizes = [1, 2, 4, 8, 16, 32]
    axis = Axis(name=AXIS, values=[str(size) for size in sizes], numbers=[float(s) for s in sizes], unit="samples")
    shapes: dict[str, tuple[Callable[[int], float], float]] = {
        "exponent": (lambda size: 5.0 * size**0.8, 0.8),
        "price per unit": (lambda size: 40.0 + 3.0 * size, 3.0),
    }
    claims = []
    for name, (shape, truth) in shapes.items():
        missed = 0
        for _ in range(tries):
            spread = np.exp(0.03 * random.standard_normal(len(sizes)))
            medians = [shape(size) * float(off) for size, off in zip(sizes, spread, strict=True)]
            cells = [_cell(str(size), size, [[ms]]) for size, ms in zip(sizes, medians, strict=True)]
            (fit,) = scalings([axis], cells)
            interval = fit.interval if name == "exponent" else fit.slope_interval
            missed += interval is None or not interval.low <= truth <= interval.high
        claims.append(Claim(f"a 95 % interval of the {name} without the true one", "runs 3 % apart", FALSE, "at most",
                            missed, tries))  # fmt: skip
    return claims
