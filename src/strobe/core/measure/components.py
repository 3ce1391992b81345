"""From sections to the parts of a measurement: their times, their blocks, those that several have in common."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from strobe.core.measure.statistics import summarise
from strobe.core.results.measurement import Blocks, Component, Measurement, Span
from strobe.core.results.subject import Ceiling
from strobe.core.timeline import section
from strobe.core.timeline.timeline import Section

if TYPE_CHECKING:
    from strobe.core.measure.accounting import Account

OTHER = "other"
Path = tuple[str, ...]


@dataclass
class Iteration:
    """One run of the whole: its section, and the sections inside it on the same thread, in tree order."""

    whole: Section
    parts: list[Section]

    @property
    def ms(self) -> float:
        """Milliseconds of the whole."""
        return self.whole.ms


def iterations(sections: Sequence[Section], root: str) -> list[Iteration]:
    """Split a timeline at the top-level sections called ``root``, in the order they ran."""
    iterations: list[Iteration] = []
    for part in sections:
        if part.path == (root,):
            iterations.append(Iteration(part, []))
        elif part.path[0] == root and iterations and part.end_ns <= iterations[-1].whole.end_ns:
            iterations[-1].parts.append(part)
    return sorted(iterations, key=lambda iteration: iteration.whole.start_ns)


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
    parts = _times(runs)
    whole = [run.ms for run in runs]
    on_device = any(run.whole.device_ms is not None for run in runs)
    rows: list[Component] = []

    def row(path: Path, values: list[float]) -> Component:
        share = sum(values) / sum(whole) if sum(whole) else 0.0
        summary = summarise([max(value, 0.0) for value in values])
        return Component(path=list(path), values=values, summary=summary, share=share, calls=1.0)

    def descend(parent: Path, values: list[float]) -> None:
        children = [path for path in parts if path[:-1] == parent]
        for path in children:
            part, account = row(path, parts[path].ms), (accounts or {}).get(path)
            part.calls = parts[path].calls / len(runs)
            part.host_ms = parts[path].host_ms / len(runs) if on_device else None
            part.weight_bytes = weight_bytes(path)
            if account is not None:
                part.gflop, part.moved_bytes = account.gflop, account.moved_bytes
                part.gflop_by_dtype = {dtype: flop / 1e9 for dtype, flop in account.flop.items()}
                part.kept_bytes, part.peak_bytes = account.kept_bytes, account.peak_bytes
                part.ceiling_share = _ceiling_share(account, sum(part.values) / len(part.values), ceiling)
            rows.append(part)
            descend(path, parts[path].ms)
        if children or not parent:
            rest = [value - sum(parts[path].ms[i] for path in children) for i, value in enumerate(values)]
            rows.append(row((*parent, OTHER), rest))
            rows[-1].other = True

    descend((), whole)
    return rows


@dataclass
class _Times:
    """Of one part: milliseconds of each iteration; milliseconds on the host and calls, over all of them."""

    ms: list[float]
    host_ms: float = 0.0
    calls: int = 0


def _times(runs: Sequence[Iteration]) -> dict[Path, _Times]:
    parts: dict[Path, _Times] = {}
    for index, run in enumerate(runs):
        for timed, ms in zip(run.parts, _running_ms(run), strict=True):
            part = parts.setdefault(timed.path[1:], _Times([0.0] * len(runs)))
            part.ms[index] += ms
            part.host_ms += timed.host_ms
            part.calls += 1
    return parts


def _running_ms(run: Iteration) -> list[float]:
    """Milliseconds in which each part ran, or a part in it.

    That is all of its time, but where a coroutine has a section open while it waits: other code of its thread runs
    then, and parts of one parent overlap. From each begin or end of a section to the next one the code runs that this
    section stands in, so that shares add up.
    """
    around, latest, ends, overlap = list[int](), dict[Path, int](), dict[int, int](), False
    for at, part in enumerate(run.parts, 1):
        latest[part.path] = at
        around.append(latest.get(part.path[:-1], 0))  # 0: the whole
        overlap = overlap or part.start_ns < ends.get(around[-1], part.start_ns)
        ends[around[-1]] = max(part.end_ns, ends.get(around[-1], part.end_ns))
    if not overlap:
        return [part.ms for part in run.parts]
    times = [  # on the device where it was timed there
        (part.start_ns, part.end_ns)
        if part.device_start_ns is None or part.device_end_ns is None
        else (part.device_start_ns, part.device_end_ns)
        for part in (run.whole, *run.parts)
    ]
    moments = [(start, 1, at) for at, (start, end) in enumerate(times) if at and end > start]
    moments += [(end, 0, -at) for at, (start, end) in enumerate(times) if at and end > start]
    ran, open_parts, running, before = [0] * len(times), {0}, 0, times[0][0]
    for moment, begins, place in sorted(moments):
        at = running
        while at:
            ran[at] += moment - before
            at = around[at - 1]
        before, running = moment, abs(place)
        if begins:
            open_parts.add(running)
        else:
            open_parts.discard(running)
            while running not in open_parts:
                running = around[running - 1]
    return [ns / 1e6 for ns in ran[1:]]


def spans(run: Iteration) -> list[Span]:
    """The sections of one iteration on a time axis that starts with it."""
    start = run.whole.start_ns if run.whole.device_start_ns is None else run.whole.device_start_ns
    spans: list[Span] = []
    for part in [run.whole, *run.parts]:
        begin = part.start_ns if part.device_start_ns is None else part.device_start_ns
        spans.append(
            Span(
                name=part.name,
                start_ms=max((begin - start) / 1e6, 0.0),
                duration_ms=max(part.ms, 0.0),
                depth=part.depth,
                thread=part.thread,
            )
        )
    return spans


def _ceiling_share(account: Account, ms: float, ceiling: Ceiling | None) -> float | None:
    # The least time the machine could take for this FLOP, dtype by dtype, over the time it took.
    if ceiling is None or ms <= 0 or not account.flop:
        return None
    if any(dtype not in ceiling.gflops for dtype in account.flop):
        return None
    least_ms = sum(flop / (ceiling.gflops[dtype] * 1e9) * 1e3 for dtype, flop in account.flop.items())
    return least_ms / ms if least_ms > 0 else None


BLOCK = re.compile(r"block \d+")
BLOCKS_LEVEL = 0.01  # level of the test
BLOCKS_TRIFLE = 0.03  # share of the average: a smaller spread is not worth words, however certain
FEWEST_ITERATIONS = 8  # iterations for the test, whose chi-square is an approximation


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
    if len(group) > 2 and values.shape[1] >= FEWEST_ITERATIONS and np.ptp(values, axis=0).any():
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
        differ=p is not None and p < BLOCKS_LEVEL and spread > BLOCKS_TRIFLE * average,
    )


WHOLES = ("policy", "model")  # parts that are shown by what is in them
NEARLY_ALL = 0.9  # a part that holds this much of the whole in one call is opened too; a backbone's at any share


def common_parts(measurements: Sequence[Measurement]) -> list[dict[str, float]]:
    """Part → milliseconds per iteration (medians) of each measurement; numbered parts of one kind are taken together.

    The first measurement decides which parts are opened. A part with nothing in it that could be timed (compiled code)
    stays whole.
    """
    if not measurements:
        return []
    opened = _opened_paths(measurements[0].components)
    return [_parts(m.components, opened, lambda part: part.summary.median) for m in measurements]


def shares(measurement: Measurement) -> dict[str, float]:
    """The same parts of one measurement, each as its share of the whole, 0 to 1."""
    return _parts(measurement.components, _opened_paths(measurement.components), lambda part: part.share)


def share(measurement: Measurement, name: str) -> float:
    """Of the part called ``name`` in the whole, 0 to 1, wherever it appears; 0 where it does not."""
    return sum(part.share for part in find_named_parts(measurement, name))


def find_named_parts(measurement: Measurement, name: str) -> list[Component]:
    """Return the part called ``name``, wherever it appears; not what it contains of the same name."""
    return [
        part
        for part in measurement.components
        if not part.other and part.path[-1] == name and name not in part.path[:-1]
    ]


def _opened_paths(components: Sequence[Component]) -> set[Path]:
    paths: set[Path] = set()
    for part in components:
        path = tuple(part.path)
        top = not path[:-1] or path[:-1] in paths
        once = part.calls == 1 and (part.share >= NEARLY_ALL or path[0] == "model")
        whole = part.name in WHOLES or once
        if top and whole and not part.other and _inside(path, components):
            paths.add(path)
    return paths


def _inside(path: Path, components: Sequence[Component]) -> bool:
    return any(tuple(part.path[:-1]) == path and not part.other for part in components)


def _parts(
    components: Sequence[Component], opened: set[Path], figure: Callable[[Component], float]
) -> dict[str, float]:
    return {name: sum(map(figure, group)) for name, group in _group_components(components, opened).items()}


def group_parts(measurements: Sequence[Measurement]) -> list[dict[str, list[Component]]]:
    """The same parts as `common_parts`, each as the components that it is made of."""
    opened = _opened_paths(measurements[0].components) if measurements else set()
    return [_group_components(m.components, opened) for m in measurements]


def _group_components(components: Sequence[Component], opened: set[Path]) -> dict[str, list[Component]]:
    groups: dict[str, list[Component]] = {}
    numbered: dict[str, int] = {}
    for part in components:
        path = tuple(part.path)
        if part.other or (path[:-1] and path[:-1] not in opened):
            continue
        if path in opened and _inside(path, components):
            continue
        kind = re.sub(r"[ _.]*\d+$", "", part.name) or part.name
        numbered[kind] = numbered.get(kind, 0) + (kind != part.name)
        groups.setdefault(kind, []).append(part)
    return {f"{kind}s" if numbered[kind] > 1 else kind: group for kind, group in groups.items()}


_PRICED_BATCHES = 9


def empty_section_ms(recorded: AbstractContextManager[object], many: int = 500) -> float:
    """Price of one section here, in milliseconds: the median over batches of empty ones.

    Args:
        recorded: a context in which sections are recorded as those are whose price is asked for.
        many: sections of a batch.
    """
    took = []
    with recorded:
        for _ in range(_PRICED_BATCHES):
            start = time.perf_counter()
            for _ in range(many):
                with section("price"):
                    pass
            took.append((time.perf_counter() - start) * 1e3 / many)
    return median(took)
