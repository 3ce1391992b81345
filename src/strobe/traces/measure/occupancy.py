"""Busy time and gaps of a span, and the cause of each gap, from intervals."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["work", "queued", "wait", "copy"]
Cause = Literal["start", "end", "queued", "wait", "copy", "idle"]
Merged = Sequence[tuple[int, int]]


class Stretch(NamedTuple):
    """From ``start`` to ``end``, in any unit.

    It is work, work launched but not begun, a host that waits for the device, or a host that copies.
    """

    start: int
    end: int
    kind: Kind = "work"


@dataclass(frozen=True)
class Gap:
    """A stretch without work.

    ``cause`` is 'start' before the first work and 'end' after the last; 'queued' where the next work had been launched
    when the gap began; 'wait' where it had not, and the host waited for the device during the gap; 'copy' where the
    host copied; 'idle' where nobody had launched anything.
    """

    start: int
    end: int
    cause: Cause


@dataclass(frozen=True)
class Occupancy:
    """A span divided into busy time and gaps: ``busy`` and the gaps' lengths add up to ``span``."""

    span: int
    busy: int
    gaps: list[Gap]

    @property
    def idle(self) -> int:
        """The length of all gaps."""
        return self.span - self.busy


def occupancy(stretches: Iterable[Stretch], begin: int, end: int) -> Occupancy:
    """Return busy time and gaps from ``begin`` to ``end``; stretches may overlap, nest, touch and reach beyond that."""
    kinds: dict[Kind, list[tuple[int, int]]] = {"work": [], "queued": [], "wait": [], "copy": []}
    for start, stop, kind in stretches:
        kinds[kind].append((max(start, begin), min(stop, end)))
    united: dict[Kind, Merged] = {kind: merged(pieces) for kind, pieces in kinds.items()}
    work = united["work"]
    edges = [begin, *(edge for stretch in work for edge in stretch), end]
    gaps = [
        Gap(left, right, _cause(left, right, united))
        for left, right in zip(edges[::2], edges[1::2], strict=True)
        if right > left
    ]
    return Occupancy(max(end - begin, 0), length(work), gaps)


def merged(stretches: Iterable[tuple[int, int]]) -> Merged:
    """Return the union of ``stretches``, as stretches that neither overlap nor touch; empty ones vanish."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if stop <= start:
            continue
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], stop))
        else:
            united.append((start, stop))
    return united


def length(stretches: Merged) -> int:
    """Return the length of a union."""
    return sum(stop - start for start, stop in stretches)


def overlap(some: Merged, others: Merged) -> int:
    """Return the length of what two unions share."""
    shared = mine = theirs = 0
    while mine < len(some) and theirs < len(others):
        start, stop = max(some[mine][0], others[theirs][0]), min(some[mine][1], others[theirs][1])
        shared += max(stop - start, 0)
        if some[mine][1] < others[theirs][1]:
            mine += 1
        else:
            theirs += 1
    return shared


def _cause(left: int, right: int, united: dict[Kind, Merged]) -> Cause:
    work = united["work"]
    if not work or right <= work[0][0]:
        return "start"
    if left >= work[-1][1]:
        return "end"
    if _reaches(united["queued"], left, left + 1):
        return "queued"
    if _reaches(united["wait"], left, right):
        return "wait"
    return "copy" if _reaches(united["copy"], left, right) else "idle"


def _reaches(stretches: Merged, left: int, right: int) -> bool:
    """Whether one of ``stretches`` overlaps [left, right)."""
    last = bisect_right(stretches, right - 1, key=lambda stretch: stretch[0]) - 1  # the last that begins in time
    return last >= 0 and stretches[last][1] > left
