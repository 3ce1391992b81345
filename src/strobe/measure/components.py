"""From sections to components: what each part took, per iteration, with what is left over shown as 'other'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strobe.measure.accounting import Account
from strobe.measure.statistics import summarise
from strobe.results.machine import Ceiling
from strobe.results.measurement import Component, Span
from strobe.timeline.timeline import Section

OTHER = "other"
Path = tuple[str, ...]


@dataclass
class Iteration:
    """One run of the whole: its section, and the sections inside it on the same thread, in tree order."""

    whole: Section
    parts: list[Section]

    @property
    def ms(self) -> float:
        return self.whole.ms


def iterations(sections: Sequence[Section], root: str) -> list[Iteration]:
    """Split a timeline at the top-level sections called ``root``, in the order they ran."""
    found: list[Iteration] = []
    for section in sections:
        if section.path == (root,):
            found.append(Iteration(section, []))
        elif section.path[0] == root and found and section.end_ns <= found[-1].whole.end_ns:
            found[-1].parts.append(section)
    return sorted(found, key=lambda iteration: iteration.whole.start_ns)


def components(
    runs: Sequence[Iteration],
    accounts: Mapping[Path, Account] | None = None,
    ceiling: Ceiling | None = None,
    weight_bytes: Callable[[Path], int | None] = lambda _: None,
) -> list[Component]:
    """The parts of ``runs`` as rows in tree order, each parent closed by its 'other'.

    Args:
        runs: at least one iteration.
        accounts: path below the iteration → what the counted pass saw there, from ``Accounting``.
        ceiling: turns FLOP into a share of what this machine was measured to do.
        weight_bytes: of the part at a path below the iteration.
    """
    order: dict[Path, None] = {}
    ms: dict[Path, list[float]] = {}
    host: dict[Path, float] = {}
    calls: dict[Path, int] = {}
    for index, run in enumerate(runs):
        for part in run.parts:
            path = part.path[1:]
            order.setdefault(path)
            ms.setdefault(path, [0.0] * len(runs))[index] += part.ms
            host[path] = host.get(path, 0.0) + part.host_ms
            calls[path] = calls.get(path, 0) + 1
    on_device = any(run.whole.device_ms is not None for run in runs)
    whole = [run.ms for run in runs]
    rows: list[Component] = []

    def add(path: Path, values: list[float], other: bool) -> None:
        account = (accounts or {}).get(path) if not other else None
        busy_ms = sum(values) / len(values)
        rows.append(
            Component(
                path=list(path),
                other=other,
                calls=calls.get(path, len(runs)) / len(runs),
                values=values,
                summary=summarise([max(value, 0.0) for value in values]),
                share=sum(values) / sum(whole) if sum(whole) else 0.0,
                host_ms=host[path] / len(runs) if on_device and not other else None,
                gflop=account.gflop if account is not None else None,
                gflop_by_dtype={dtype: flop / 1e9 for dtype, flop in account.flop.items()} if account else {},
                moved_bytes=account.moved_bytes if account is not None else None,
                ceiling_share=_ceiling_share(account, busy_ms, ceiling),
                weight_bytes=weight_bytes(path) if not other else None,
                kept_bytes=account.kept_bytes if account is not None else None,
                peak_bytes=account.peak_bytes if account is not None else None,
            )
        )

    def descend(parent: Path, values: list[float]) -> None:
        children = [path for path in order if path[:-1] == parent]
        for path in children:
            add(path, ms[path], other=False)
            descend(path, ms[path])
        if children or not parent:
            rest = [value - sum(ms[path][i] for path in children) for i, value in enumerate(values)]
            add((*parent, OTHER), rest, other=True)

    descend((), whole)
    return rows


def spans(run: Iteration) -> list[Span]:
    """The sections of one iteration on a time axis that starts with it."""
    start = run.whole.start_ns if run.whole.device_start_ns is None else run.whole.device_start_ns
    found: list[Span] = []
    for part in [run.whole, *run.parts]:
        begin = part.start_ns if part.device_start_ns is None else part.device_start_ns
        found.append(
            Span(
                name=part.name,
                start_ms=max((begin - start) / 1e6, 0.0),
                duration_ms=max(part.ms, 0.0),
                depth=part.depth,
                thread=part.thread,
            )
        )
    return found


def _ceiling_share(account: Account | None, ms: float, ceiling: Ceiling | None) -> float | None:
    # The least time the machine could take for this FLOP, dtype by dtype, over the time it took.
    if account is None or ceiling is None or ms <= 0 or not account.flop:
        return None
    if any(dtype not in ceiling.gflops for dtype in account.flop):
        return None
    least_ms = sum(flop / (ceiling.gflops[dtype] * 1e9) * 1e3 for dtype, flop in account.flop.items())
    return least_ms / ms if least_ms > 0 else None
