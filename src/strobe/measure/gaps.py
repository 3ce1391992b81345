"""Busy and idle time of a device, or of torch's operators on the host, and the cause of each gap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["work", "queued", "wait"]
Cause = Literal["start", "end", "queued", "wait", "idle"]


class Stretch(NamedTuple):
    """From ``start`` to ``end``, in any unit: work, work launched but not begun, or a host that waits or copies."""

    start: int
    end: int
    kind: Kind = "work"


@dataclass(frozen=True)
class Gap:
    """A stretch without work.

    ``cause`` is 'start' before the first work and 'end' after the last; 'queued' where the next work had been launched
    when the gap began; 'wait' where it had not, and the host waited for the device or copied during the gap; 'idle'
    where nobody had launched anything.
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
        return self.span - self.busy


def occupancy(stretches: Iterable[Stretch], begin: int, end: int) -> Occupancy:
    """Return busy time and gaps from ``begin`` to ``end``; stretches may overlap, nest, touch and reach beyond that."""
    kinds: dict[Kind, list[tuple[int, int]]] = {"work": [], "queued": [], "wait": []}
    for start, stop, kind in stretches:
        kinds[kind].append((max(start, begin), min(stop, end)))
    work, queued, wait = (_merged(kinds[kind]) for kind in ("work", "queued", "wait"))
    edges = [begin, *(edge for stretch in work for edge in stretch), end]
    gaps = [
        Gap(left, right, _cause(left, right, work, queued, wait))
        for left, right in zip(edges[::2], edges[1::2], strict=True)
        if right > left
    ]
    return Occupancy(max(end - begin, 0), sum(stop - start for start, stop in work), gaps)


Merged = Sequence[tuple[int, int]]


def _merged(stretches: Iterable[tuple[int, int]]) -> Merged:
    """Return the union of ``stretches``, as stretches that neither overlap nor touch; empty ones vanish."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if stop <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _cause(left: int, right: int, work: Merged, queued: Merged, wait: Merged) -> Cause:
    if not work or right <= work[0][0]:
        return "start"
    if left >= work[-1][1]:
        return "end"
    if _reaches(queued, left, left + 1):
        return "queued"
    return "wait" if _reaches(wait, left, right) else "idle"


def _reaches(stretches: Merged, left: int, right: int) -> bool:
    """Whether one of ``stretches`` overlaps [left, right)."""
    last = bisect_right(stretches, right - 1, key=lambda stretch: stretch[0]) - 1  # the last that begins in time
    return last >= 0 and stretches[last][1] > left
