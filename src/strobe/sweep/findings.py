"""Rules on a whole sweep: what its rows say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import NANOSECOND_MS, percent
from strobe.core.results.finding import Finding, info, warning
from strobe.core.results.numerals import significant
from strobe.sweep.results import Row, Sweep, label

FLAT = 0.95  # share of the best throughput: from there on, more buys little
MAX_REPEAT_DIFFERENCE = 0.05  # difference of medians of a cell's repeats: the machine changed, or a start matters


def failed_cells(sweep: Sweep, _: Thresholds) -> Iterator[Finding]:
    without = [cell for cell in sweep.cells if cell.status not in ("done", "not run")]
    if without:
        counts = Counter(cell.status for cell in without)
        counted = ", ".join(f"{count} {status}" for status, count in counts.items())
        yield warning(
            rule="cells-failed",
            title=f"{len(without)} of {len(sweep.cells)} configurations have no numbers: {counted}",
            found=f"{label(without[0].settings)}: {without[0].reason}",
            why="The other findings are about the other configurations only.",
            do="Read log.txt in the folder of each configuration, then run the same command with --retry. Raise "
            "--memory_gib or --timeout if that limit stopped them.",
        )


def throughput(sweep: Sweep, _: Thresholds) -> Iterator[Finding]:
    for others, rows in _rows_along_axis(sweep, "batch_size"):
        if len({row.batch for _, row in rows}) == 1:  # the phase ignores the batch size
            continue
        largest, best = max(rows, key=lambda point: point[1].throughput)
        flat = [point for point in rows if point[1].throughput >= FLAT * best.throughput]
        batch, enough = min(flat, key=lambda point: point[0])
        if batch >= largest:
            continue
        memory = ""
        if enough.memory_bytes and best.memory_bytes:
            memory = f", at {enough.memory_bytes / 2**30:.1f} rather than {best.memory_bytes / 2**30:.1f} GiB"
        yield info(
            rule="throughput-flat",
            title=f"From batch size {batch:g} on, a larger batch gains little{others}",
            found=f"{significant(enough.throughput)} samples/s at {batch:g}, at best {significant(best.throughput)} "
            f"at {largest:g}{memory} ({enough.measurement}).",
            why="The device is fully busy. A larger batch only waits longer and takes more memory.",
            do=f"Use a batch size of {batch:g}, unless your training needs a larger one.",
        )


def repeats(sweep: Sweep, _: Thresholds) -> Iterator[Finding]:
    spread = [
        (max(row.repeats) / min(row.repeats) - 1, cell)
        for cell in sweep.cells
        for row in cell.rows
        if len(row.repeats) > 1 and min(row.repeats) > NANOSECOND_MS
    ]
    if wide := [pair for pair in spread if pair[0] > MAX_REPEAT_DIFFERENCE]:
        largest, cell = max(wide, key=lambda pair: pair[0])
        yield warning(
            rule="repeats-differ",
            title=f"Repeats of one configuration differ by up to {percent(largest)}",
            found=f"{len(wide)} of {len(spread)} rows differ by more than {percent(MAX_REPEAT_DIFFERENCE)}; most: "
            f"{label(cell.settings)}.",
            why="Differences of that size between configurations may come from the machine, not from the setting.",
            do="Sweep on a quiet machine, with more repeats or a longer --seconds.",
        )


def _rows_along_axis(sweep: Sweep, axis: str) -> Iterator[tuple[str, list[tuple[float, Row]]]]:
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


RULES = (failed_cells, throughput, repeats)
