"""Trace: what do the traces of torch.profiler show, of any program on any device?

It needs neither torch nor LeRobot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from strobe.core.errors import UserError
from strobe.core.results import units
from strobe.traces.annotations import iterations, parts
from strobe.traces.device_time import copies, device_time, rank_waits, syncs
from strobe.traces.graph_parts import graph_times
from strobe.traces.launches import drop_early_work, holes, lost_launches, missing_kernels_text
from strobe.traces.occupancy import Nest, merge_stretches
from strobe.traces.operator_table import profile_rows
from strobe.traces.profiler_events import DeviceWork, Rows, parse_rows
from strobe.traces.results import RankWaits, TraceAnswer, TracedRank
from strobe.traces.trace_file import TraceFile, read_trace
from strobe.version import __version__


def trace(files: Sequence[Path], progress: Callable[[Path], None] = lambda _: None) -> TraceAnswer:
    """Return what traces show; several are the ranks of one program.

    Args:
        progress: is called with each file before it is read.

    Raises:
        UserError: none of them can be read, or has events that were timed.
    """
    read: dict[str, tuple[TraceFile, Rows]] = {}
    left_out: list[str] = []
    for path in files:
        progress(path)
        try:
            file, rows = _read(path)
        except UserError as error:
            if len(files) == 1:
                raise
            left_out.append(f"left out: {error}")
            continue
        name = path.name if file.rank is None else f"rank {file.rank}"
        read[_unique(name, path, read)] = file, rows
    if not read:
        raise UserError(f"none of the {len(files)} files is a trace: {left_out[0].removeprefix('left out: ')}")
    ordered = dict(sorted(read.items(), key=lambda item: (item[1][0].rank is None, item[1][0].rank or 0)))
    ranks = [_rank(name, file, rows) for name, (file, rows) in ordered.items()]
    answer = TraceAnswer(strobe_version=__version__, title=_title(ranks), ranks=ranks, notes=left_out)
    waits = rank_waits({name: rows for name, (_, rows) in ordered.items()})
    if isinstance(waits, RankWaits):
        answer.waits = waits
    elif len(ranks) > 1 or any((rank.ranks or 1) > 1 for rank in ranks):
        answer.not_judged.append(f"who waits for whom: {waits}")
    answer.notes += [f"{name}: left out {_reasons(rows)}" for name, (_, rows) in ordered.items() if rows.left_out]
    answer.not_judged += [line for rank in ranks for line in _unjudged_parts(rank)]
    return answer


def _read(path: Path) -> tuple[TraceFile, Rows]:
    file = read_trace(path)
    rows = drop_early_work(parse_rows(file.events).drop_distant_events())
    if not (rows.operators or rows.runtime or rows.device or rows.annotations):
        bad = sum(rows.left_out.values())
        why = f"{bad:,} events cannot be used ({_reasons(rows)})" if bad else f"{len(file.events):,} events, none timed"
        raise UserError(f"{path} has nothing to analyse: {why}")
    return TraceFile(path, [], file.rank, file.ranks, file.devices), rows


def _reasons(rows: Rows) -> str:
    return ", ".join(f"{count:,} event{'s' * (count != 1)} {reason}" for reason, count in rows.left_out.most_common())


def _unique(name: str, path: Path, taken: dict[str, tuple[TraceFile, Rows]]) -> str:
    tries = [name, f"{name} ({path.name})", *(f"{name} ({path.name}, {number})" for number in range(2, len(taken) + 3))]
    return next(each for each in tries if each not in taken)


def _title(ranks: Sequence[TracedRank]) -> str:
    return f"trace {ranks[0].file}" if len(ranks) == 1 else f"traces of {len(ranks)} ranks"


def _rank(name: str, file: TraceFile, rows: Rows) -> TracedRank:
    """Return what one trace shows."""
    whole = [call for calls in (rows.operators, rows.runtime, rows.annotations) for call in calls] or rows.device
    begin, end = min(event.start for event in whole), max(event.end for event in whole)
    annotations, lost = Nest(rows.annotations), lost_launches(rows)
    judged = replace(rows, device=[]) if lost.all else rows  # copies alone say nothing of a device
    by_device: dict[str, list[DeviceWork]] = {}
    for work in judged.device:
        by_device.setdefault(work.device, []).append(work)
    devices, missing = [], []
    for number, works in sorted(by_device.items()):
        its = replace(rows, device=works)
        missing.append(holes(its, lost))
        devices.append(device_time(its, file.devices.get(number, ""), annotations, missing[-1]))
    return TracedRank(
        name=name,
        file=file.path.name,
        rank=file.rank,
        ranks=file.ranks,
        operators=profile_rows(rows, name, begin, end),
        devices=devices,
        copies=copies(rows),
        syncs=syncs(rows),
        iterations=iterations(judged, merge_stretches(hole for each in missing for hole in each)),
        parts=parts(judged, annotations, lost.calls),
        graphs=graph_times(judged, judged),
        left_out=dict(rows.left_out),
        launches=lost.launches,
        lost_launches=len(lost.calls),
        lost_first=lost.first,
        launches_known=lost.matched,
    )


def _unjudged_parts(rank: TracedRank) -> list[str]:
    lines = []
    if not rank.launches_known:
        lines.append(
            f"what launched the kernels of {rank.name}: none has the number (correlation) of its launch, so "
            f"launches without a kernel, stretches bound by launches and the device time of parts are not known"
        )
    if rank.lost_launches and not rank.devices:
        lines.append(f"the device of {rank.name}: {missing_kernels_text(rank.launches)}")
    elif rank.lost_launches:
        first = ", most of them the first ones" if rank.lost_first else ""
        unjudged = ", ".join(f"{units.short_ms(device.gaps.unjudged_ms)} ms" for device in rank.devices)
        lines.append(
            f"{unjudged} of the device's time of {rank.name}: of {rank.launches:,} launches {rank.lost_launches:,} "
            f"have no kernel in the trace{first}"
        )
    elif not rank.devices:
        lines.append(f"the device of {rank.name}: the trace has no work on a device")
    if not rank.graphs and any(device.graph_kernels for device in rank.devices):
        lines.append(f"graphs of {rank.name}: which launches replayed them is not known")
    if rank.iterations is None:
        lines.append(
            f"iterations of {rank.name}: it has no ProfilerStep, and no annotation repeats over half of its time"
        )
    if not rank.parts:
        lines.append(f"parts of {rank.name}: it has no annotations (record_function)")
    return lines
