"""Who waits: the same collectives of several ranks, laid side by side.

The kernel of a collective runs from when its own rank arrives until all have arrived and the data is exchanged. So the
rank whose kernel is the shortest came last, and the others waited for it. That needs no common clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strobe.measure.device_time import is_collective
from strobe.measure.profiler_events import DeviceWork, Rows
from strobe.results.trace import RankWait, RankWaits


def rank_waits(ranks: Mapping[str, Rows]) -> RankWaits | str:
    """Return what each rank waited for, or why these traces cannot show it.

    Args:
        ranks: name → rows.
    """
    if len(ranks) < 2:
        return "there is one rank"
    orders = {name: _collectives(rows) for name, rows in ranks.items()}
    without = [name for name, works in orders.items() if not works]
    if without:
        return f"{', '.join(without[:4])}{' …' if len(without) > 4 else ''}: no collectives in the trace"
    sequences = {tuple(work.name for work in works) for works in orders.values()}
    if len(sequences) > 1:
        return "the ranks did not run the same collectives in the same order"
    together = list(zip(*orders.values(), strict=True))
    shortest = [min(work.end - work.start for work in works) for works in together]
    waits = []
    for name, works in orders.items():
        took = [work.end - work.start for work in works]
        waits.append(
            RankWait(
                name=name,
                waiting_ms=sum(mine - least for mine, least in zip(took, shortest, strict=True)) / 1e6,
                last=sum(mine == least for mine, least in zip(took, shortest, strict=True)),
            )
        )
    return RankWaits(collectives=len(together), ranks=waits)


def _collectives(rows: Rows) -> Sequence[DeviceWork]:
    """Return the kernels of collectives, stream by stream: each stream runs its own in order."""
    works = [work for work in rows.device if is_collective(work)]
    streams = list(dict.fromkeys(work.stream for work in sorted(works, key=lambda work: work.start)))
    return sorted(works, key=lambda work: (streams.index(work.stream), work.start))
