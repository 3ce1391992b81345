"""Memory: of each measurement, and of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from strobe.core.report import tables
from strobe.core.report.document import Column, Row, Section, Table, heads
from strobe.core.results import units
from strobe.core.results.measurement import Component, Measurement

MEANING = (
    "Memory above the use at the start of a call, in {source}, of the call with the most. 'Kept' is the memory that "
    "is alive at the end of the call: its outputs, and tensors that autograd needs. It is negative if the call freed "
    "more. 'Peak' is the most at one time."
)
SOURCES = {
    "live tensors": "live tensors (without what an operator uses inside itself)",
    "CUDA allocator": "CUDA's allocator",
    "XPU allocator": "XPU's allocator",
}
LONG = 30  # rows from which the console leaves the parts out


def sections(measurements: Sequence[Measurement], depth: int | None, *, detail: bool = False) -> list[Section]:
    """Return the memory of each measurement, then of its parts; none where nothing was counted.

    The parts are a ``detail`` on request, and where they are many.
    """
    shown = []
    if (held := whole(measurements)) is not None:
        shown.append(Section("memory", "Memory", held))
    for index, m in enumerate(measurements):
        if (table := parts(m, depth)) is not None:
            name = f", {m.name}" if len(measurements) > 1 else ""
            text = [MEANING.format(source=SOURCES.get(m.memory.source or "", "bytes"))]
            folded = detail or len(table.rows) > LONG
            shown.append(Section(f"part-memory-{index}", f"Memory per part{name}", table, text, folded))
    return shown


def whole(measurements: Sequence[Measurement]) -> Table | None:
    """Return memory that each measurement held, or None if nothing was counted."""
    figures = {
        "Weights": [m.memory.weights or None for m in measurements],
        "Peak activations": [m.memory.peak_activations for m in measurements],
        "Peak of the process": [m.memory.peak_process for m in measurements],
        "Peak on the device": [m.memory.peak_device for m in measurements],
        "Of it held by CUDA graphs": [m.memory.graphs for m in measurements],
        "Memory that stays": [m.memory.stays for m in measurements],
    }
    rows = [Row([k, *map(units.size, v)]) for k, v in figures.items() if any(b is not None for b in v)]
    return Table([Column("Memory", numeric=False), *(Column(m.name) for m in measurements)], rows) if rows else None


def parts(measurement: Measurement, depth: int | None = None) -> Table | None:
    """Return weights, what stays and the peak of each part; None if no part was counted.

    Like blocks of like figures share their rows.
    """
    roots = _trees([part for part in tables.to_depth(measurement.components, depth) if not part.other])
    if all(figures == _NOTHING for root in roots for figures in root.figures()):
        return None
    memory = measurement.memory
    whole = [measurement.name, units.size(memory.weights), None, units.size(memory.peak_activations)]
    rows = [Row(whole, "whole"), *(row for group in _group_alike(roots) for row in _rows(group))]
    return Table(heads("<Component | Weights | Kept | Peak"), rows).drop_empty_columns()


_NOTHING = (None, None, None)


@dataclass
class _Tree:
    part: Component
    children: list[_Tree] = field(default_factory=list)

    @property
    def own(self) -> tuple[int | None, int | None, int | None]:
        return self.part.weight_bytes, self.part.kept_bytes, self.part.peak_bytes

    @property
    def kind(self) -> str:
        """The name without its number."""
        return re.sub(r" \d+$", "", self.part.name)

    def figures(self) -> Iterator[tuple[int | None, int | None, int | None]]:
        yield self.own
        for child in self.children:
            yield from child.figures()

    def sameness(self) -> object:
        """Return what is equal for trees of one kind, with numbers, that have the same parts with the same figures."""
        return [self._names(), *self.figures()] if self.kind != self.part.name else self.part.path

    def _names(self) -> list[object]:
        return [self.kind, *(child._names() for child in self.children)]


def _trees(components: Sequence[Component]) -> list[_Tree]:
    roots: list[_Tree] = []
    known: dict[tuple[str, ...], list[_Tree]] = {(): roots}
    for part in components:
        tree = _Tree(part)
        known[tuple(part.path)] = tree.children
        known.get(tuple(part.path[:-1]), roots).append(tree)
    return roots


def _group_alike(siblings: Sequence[_Tree]) -> list[list[_Tree]]:
    """Return successive siblings of one kind (block 0, block 1 …) with the same figures together."""
    return [list(group) for _, group in groupby(siblings, _Tree.sameness)]


def _rows(group: Sequence[_Tree]) -> Iterator[Row]:
    first, last = group[0], group[-1]
    name = first.part.name
    if len(group) > 1:
        name = f"{name} to {last.part.name.removeprefix(first.kind).strip()}, each"
    yield Row([name, *map(units.size, first.own)], "part", first.part.depth)
    for inside in _group_alike(first.children):
        yield from _rows(inside)
