"""Do the blocks of a backbone differ? Their sum, average and spread, and whether the samples show a difference."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from strobe.measure.statistics import summarise
from strobe.results.measurement import Blocks, Component

BLOCK = re.compile(r"block \d+")
LEVEL = 0.01  # of the test
TRIFLE = 0.03  # of the average: below it a spread is not worth words, however surely it is there
FEWEST = 8  # iterations for the test, whose chi-square is an approximation


def blocks(components: Sequence[Component]) -> list[Blocks]:
    """For each part with two blocks or more ('block 0', 'block 1' …), what they amount to.

    An iteration runs all blocks, so its samples are a row of a two-way table whose rows may differ (load, clocks)
    without saying anything of the blocks: Friedman's test ranks within rows.
    """
    groups: dict[tuple[str, ...], list[Component]] = {}
    for component in components:
        if BLOCK.fullmatch(component.name) and not component.other and component.values:
            groups.setdefault(tuple(component.path[:-1]), []).append(component)
    return [_taken_together(path, group) for path, group in groups.items() if len(group) > 1]


def _taken_together(path: tuple[str, ...], group: Sequence[Component]) -> Blocks:
    from scipy.stats import friedmanchisquare

    values = np.array([component.values for component in group])  # (blocks, iterations)
    medians = np.median(values, axis=1)
    average, spread = float(medians.mean()), float(medians.std(ddof=1))
    p = None
    if len(group) > 2 and values.shape[1] >= FEWEST and np.ptp(values, axis=0).any():
        p = float(friedmanchisquare(*values).pvalue)
    return Blocks(
        path=list(path),
        names=[component.name for component in group],
        medians=medians.tolist(),
        total=summarise(values.sum(axis=0)),
        share=sum(component.share for component in group),
        average=average,
        spread=spread,
        p=p,
        differ=p is not None and p < LEVEL and spread > TRIFLE * average,
    )
