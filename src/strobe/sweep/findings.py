"""Rules on a whole sweep: what its rows say together."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.parts import SMALL_BACKBONE
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import percent
from strobe.core.results.finding import Finding
from strobe.core.results.numerals import significant
from strobe.sweep.results import Cell, Row, Sweep, label

FLAT = 0.95  # share of the best throughput: from there on, more buys little
MAX_REPEAT_DIFFERENCE = 0.05  # difference of medians of a cell's repeats: the machine changed, or a start matters


def failed(sweep: Sweep, _: Thresholds) -> Iterator[Finding]:
    """Cells without numbers."""
    without = [cell for cell in sweep.cells if cell.status not in ("done", "not run")]
    if not without:
        return
    kinds = dict.fromkeys(cell.status for cell in without)
    counted = ", ".join(f"{sum(c.status == kind for c in without)} {kind}" for kind in kinds)
    first = without[0]
    yield Finding(
        rule="cells-failed",
        level="warning",
        title=f"{len(without)} of {len(sweep.cells)} cells have no numbers: {counted}",
        seen=f"{label(first.settings)}: {first.reason}",
        why="The other findings are about the other cells only.",
        do="Each cell's folder has its log.txt. --retry runs these cells again. Raise --memory_gib or --timeout if "
        "that limit stopped them.",
        evidence={"failed": float(len(without)), "cells": float(len(sweep.cells))},
    )


def throughput(sweep: Sweep, _: Thresholds) -> Iterator[Finding]:
    """Along the batch: the smallest that gives nearly all there is."""
    for others, rows in _along(sweep, "batch_size"):
        best = max(rows, key=lambda point: point[1].throughput)
        enough = min(
            (point for point in rows if point[1].throughput >= FLAT * best[1].throughput), key=lambda point: point[0]
        )
        if enough[0] >= best[0]:
            continue
        memory = ""
        if enough[1].memory_bytes and best[1].memory_bytes:
            memory = f", at {enough[1].memory_bytes / 2**30:.1f} rather than {best[1].memory_bytes / 2**30:.1f} GiB"
        yield Finding(
            rule="throughput-flat",
            level="info",
            title=f"From batch size {enough[0]:g} on, a larger batch gains little{others}",
            seen=f"{significant(enough[1].throughput)} samples/s at {enough[0]:g}, at best "
            f"{significant(best[1].throughput)} at {best[0]:g}{memory} ({enough[1].measurement}).",
            why="The device is fully busy. A larger batch only waits longer, and takes more memory.",
            do=f"Use a batch size of {enough[0]:g}, unless your training needs a larger one.",
            evidence={"batch": enough[0], "throughput": enough[1].throughput, "best": best[1].throughput},
        )


def backbone(sweep: Sweep, thresholds: Thresholds) -> Iterator[Finding]:
    """The delay benchmark's question, over all of its variations."""
    shares: list[tuple[Cell, float]] = []
    for cell in sweep.cells:
        for row in cell.rows:
            forward = next((part for part in row.parts if part.path == ["forward"]), None)
            part = next(
                (part for part in row.parts if part.path[:1] == ["forward"] and part.path[-1] == "backbone"), None
            )
            if row.phase == "training forward" and forward is not None and part is not None and forward.share > 0:
                shares.append((cell, part.share / forward.share))
    if len(shares) < 2:
        return
    low, high = min(shares, key=lambda pair: pair[1]), max(shares, key=lambda pair: pair[1])
    viable = sum(share >= thresholds.backbone_dominates for _, share in shares)
    small = sum(share < SMALL_BACKBONE for _, share in shares)
    yield Finding(
        rule="backbone-share",
        level="info",
        title=f"The backbone is {percent(low[1])} to {percent(high[1])} of the training forward",
        seen=f"Least at {label(low[0].settings)}, most at {label(high[0].settings)}. At or above "
        f"{percent(thresholds.backbone_dominates)} in {viable} of {len(shares)} cells, under "
        f"{percent(SMALL_BACKBONE)} in {small}.",
        why="Batch expansion trains over all delays. It runs the backbone once, and the rest once per delay. The "
        "larger the backbone's share, the more time it saves.",
        do="Decide by the cells that you train with. Compare the ways to train over delays before you rule one out.",
        evidence={
            "lowest": low[1],
            "highest": high[1],
            "viable": float(viable),
            "small": float(small),
            "cells": float(len(shares)),
        },
    )


def repeats(sweep: Sweep, _: Thresholds) -> Iterator[Finding]:
    """Repeats of a cell that differ."""
    spread = [
        (max(row.repeats) / min(row.repeats) - 1, cell)
        for cell in sweep.cells
        for row in cell.rows
        if len(row.repeats) > 1 and min(row.repeats) > 0
    ]
    wide = [pair for pair in spread if pair[0] > MAX_REPEAT_DIFFERENCE]
    if not wide:
        return
    most = max(wide, key=lambda pair: pair[0])
    yield Finding(
        rule="repeats-differ",
        level="warning",
        title=f"Repeats of the same cell differ by up to {percent(most[0])}",
        seen=f"{len(wide)} of {len(spread)} rows differ by more than {percent(MAX_REPEAT_DIFFERENCE)}; "
        f"most: {label(most[1].settings)}.",
        why="Differences of that size between cells may come from the machine, not from the setting.",
        do="Sweep on a quiet machine, with more repeats or a longer --seconds.",
        evidence={"largest": most[0], "rows": float(len(wide))},
    )


def _along(sweep: Sweep, axis: str) -> Iterator[tuple[str, list[tuple[float, Row]]]]:
    """Yield the rows along a numeric axis, for every combination of the other settings, measurement and machine."""
    numeric = next((candidate for candidate in sweep.axes if candidate.name == axis and candidate.numbers), None)
    if numeric is None or numeric.numbers is None:
        return
    place = dict(zip(numeric.values, numeric.numbers, strict=True))
    lines: dict[tuple[str, str, int | None], list[tuple[float, Row]]] = {}
    for cell in sweep.cells:
        others = label({name: value for name, value in cell.settings.items() if name != axis})
        for row in cell.rows if axis in cell.settings else ():
            lines.setdefault((others, row.measurement, cell.machine), []).append((place[cell.settings[axis]], row))
    for (others, _, _), rows in lines.items():
        if len(rows) > 1:
            yield (f" ({others})" if others else ""), rows


RULES = (failed, throughput, backbone, repeats)
