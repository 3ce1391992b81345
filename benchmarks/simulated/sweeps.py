"""What a sweep and a comparison of many variants promise: the best of them, those slower than it, how figures grow.

Every cell takes the same time; a claim is false where any is called slower than the best. Three runs of one cell differ
by 2 %, by a normal deviate or by one with heavy tails. One run of each is never judged.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from simulated.claim import NOISES, Claim, Noise, times

from strobe.core.measure.statistics import bonferroni
from strobe.core.measure.verdicts import LEVEL, paired_verdict
from strobe.core.results.data import Summary
from strobe.sweep.best import best, parse
from strobe.sweep.results import Axis, Cell, CellRun, Row
from strobe.sweep.scaling import scalings

AXIS = "batch_size"
FALSE, FOUND = 0.05, 0.9
BETWEEN, REPEATS = 0.02, 3  # standard deviation between runs of one cell, and its runs
SAMPLES = 100  # of a run, of which a p95 is judged too


def simulate(quick: bool) -> list[Claim]:
    """Simulate every promise of a sweep, and that of a comparison with many variants."""
    random = np.random.default_rng(17)
    tries = 40 if quick else 400
    claims = [
        _slower(random, cells, metric, apart, REPEATS, FALSE, tries)
        for cells in (2, 5, 10, 20)
        for metric in ("time_ms", "p95_ms", "throughput")
        for apart in ("independent", "heavy tails")
    ]
    claims += [_slower(random, cells, "time_ms", "independent", 1, 0.0, tries) for cells in (2, 20)]
    claims += [_any_variant(random, noise, name, 20, 12 if quick else 400) for name, noise in NOISES.items()]
    claims += [_slow_cell_claim(random, metric, tries) for metric in ("time_ms", "p95_ms")]
    return [*claims, *_growth(random, 60 if quick else 2000)]


def _slower(
    random: np.random.Generator, cells: int, metric: str, apart: str, repeats: int, rate: float, tries: int
) -> Claim:
    hits = 0
    for _ in range(tries):
        rows, samples = _simulate_sweep(random, [30.0] * cells, repeats, NOISES[apart], BETWEEN)
        found = best(parse(metric, [AXIS]), rows, samples)
        hits += len(found.ties) + len(found.unjudged) < cells - 1
    runs = f"{repeats} run{'s' * (repeats > 1)} of each, {BETWEEN:.0%} apart"
    return Claim(f"any of {cells} equal cells slower than the best by {metric}", f"{apart} between {runs}", rate,
                 "at most", hits, tries)  # fmt: skip


def _slow_cell_claim(random: np.random.Generator, metric: str, tries: int) -> Claim:
    """Of ten cells one takes a tenth longer."""
    hits = 0
    for _ in range(tries):
        rows, samples = _simulate_sweep(random, [30.0] * 9 + [33.0], REPEATS, NOISES["independent"], 0.01)
        found = best(parse(metric, [AXIS]), rows, samples)
        hits += all(tie[AXIS] != "9" for tie in found.ties) and not found.unjudged
    return Claim(f"a cell slower by 10 % among ten, by {metric}", f"independent, {REPEATS} runs of each, 1% apart",
                 FOUND, "at least", hits, tries)  # fmt: skip


def _simulate_sweep(
    random: np.random.Generator, medians: list[float], repeats: int, apart: Noise, spread: float
) -> tuple[list[Cell], dict[tuple[str, str], list[list[float]]]]:
    cells, raw = [], {}
    for place, median in enumerate(medians):
        off = np.exp(spread * apart(random, repeats))
        runs = [times(NOISES["independent"], random, SAMPLES, median=median * one).tolist() for one in off.tolist()]
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
        kinds = [paired_verdict(first, one, level=bonferroni(variants, LEVEL)).kind for one in others]
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
