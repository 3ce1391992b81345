"""Trace: what do the traces of torch.profiler show, of any program on any device?

It needs neither torch nor LeRobot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from strobe.core.errors import UserError
from strobe.traces.annotations import drop_crossing, iterations, parts
from strobe.traces.device_time import copies, device_time, rank_waits, syncs
from strobe.traces.graph_parts import graph_times
from strobe.traces.launches import blindness_text, drop_early_work, holes, lacks_text, lost_launches
from strobe.traces.occupancy import Nest, merge
from strobe.traces.operator_table import profile_rows
from strobe.traces.profiler_events import DeviceWork, Rows, parse_rows
from strobe.traces.results import RankWaits, TraceAnswer, TracedRank
from strobe.traces.trace_file import TraceFile, read_events
from strobe.version import __version__


def trace(files: Sequence[Path], progress: Callable[[Path, int, int], None] = lambda *_: None) -> TraceAnswer:
    """Return what traces show; several are the ranks of one program.

    Calls ``progress`` as `read_events` does. Raises UserError if none can be read, or has events that were timed.
    """
    read: dict[str, tuple[TraceFile, Rows]] = {}
    left_out: list[str] = []
    for path in files:
        try:
            file, rows = _read(path, progress)
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
    title = f"trace {ranks[0].file}" if len(ranks) == 1 else f"traces of {len(ranks)} ranks"
    answer = TraceAnswer(strobe_version=__version__, title=title, ranks=ranks, notes=left_out)
    waits = rank_waits({name: rows for name, (_, rows) in ordered.items()})
    if isinstance(waits, RankWaits):
        answer.waits = waits
    elif len(ranks) > 1 or any((rank.ranks or 1) > 1 for rank in ranks):
        answer.not_judged.append(f"who waits for whom: {waits}")
    answer.notes += [f"{name}: left out {_reasons(rows)}" for name, (_, rows) in ordered.items() if rows.left_out]
    answer.not_judged += [line for rank in ranks for line in _unjudged_parts(rank)]
    return answer


def _read(path: Path, progress: Callable[[Path, int, int], None]) -> tuple[TraceFile, Rows]:
    file = TraceFile(path)
    rows = drop_early_work(parse_rows(read_events(file, progress)).drop_distant_events())
    if not (rows.operators or rows.runtime or rows.device or rows.annotations):
        bad = sum(rows.left_out.values())
        why = f"{bad:,} events cannot be used ({_reasons(rows)})" if bad else f"{file.count:,} events, none timed"
        raise UserError(f"{path} has nothing to analyse: {why}")
    return file, rows


def _reasons(rows: Rows) -> str:
    return ", ".join(f"{count:,} event{'s' * (count != 1)} {reason}" for reason, count in rows.left_out.most_common())


def _unique(name: str, path: Path, taken: dict[str, tuple[TraceFile, Rows]]) -> str:
    tries = [name, f"{name} ({path.name})", *(f"{name} ({path.name}, {number})" for number in range(2, len(taken) + 3))]
    return next(each for each in tries if each not in taken)


def _rank(name: str, file: TraceFile, rows: Rows) -> TracedRank:
    """Return what one trace shows."""
    whole = [call for calls in (rows.operators, rows.runtime, rows.annotations) for call in calls] or rows.device
    begin, end = min(event.start for event in whole), max(event.end for event in whole)
    nested, crossing = drop_crossing(rows)
    annotations, lost = Nest(nested.annotations), lost_launches(rows)
    judged = replace(rows, device=[]) if lost.all else rows  # copies alone say nothing of a device
    parted = replace(judged, annotations=nested.annotations)
    by_device: dict[str, list[DeviceWork]] = {}
    for work in judged.device:
        by_device.setdefault(work.device, []).append(work)
    devices, missing = [], []
    for number, works in sorted(by_device.items()):
        its = replace(rows, device=works)
        missing.append(holes(its, lost))
        devices.append(device_time(its, file.devices.get(number, ""), annotations, missing[-1]))
        devices[-1].lacks = lacks_text(devices[-1].gaps, lost) if lost.lacking else None
    return TracedRank(
        name=name,
        file=file.path.name,
        rank=file.rank,
        ranks=file.ranks,
        operators=profile_rows(rows, name, begin, end),
        devices=devices,
        copies=copies(rows),
        syncs=syncs(rows),
        iterations=iterations(judged, merge(hole for each in missing for hole in each)),
        parts=parts(judged, annotations, lost.lacking),
        crossing=crossing,
        graphs=graph_times(parted, parted),
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
    if not rank.devices:
        why = blindness_text(rank.launches) if rank.lost_launches else "the trace has no work on a device"
        lines.append(f"the device of {rank.name}: {why}")
    lacking = (device for device in rank.devices if device.lacks and device.gaps.is_judged)
    lines += [f"a part of the time of {rank.device_label(device)}: {device.lacks}" for device in lacking]
    if not rank.graphs and any(device.graph_kernels for device in rank.devices):
        lines.append(f"graphs of {rank.name}: which launches replayed them is not known")
    if rank.iterations is None:
        lines.append(f"iterations of {rank.name}: no ProfilerStep, and no annotation repeats over half of its time")
    if rank.crossing:
        more = " …" if len(rank.crossing) > 4 else ""
        lines.append(f"parts of {rank.name} that cross each other: {', '.join(rank.crossing[:4])}{more}")
    elif not rank.parts:
        lines.append(f"parts of {rank.name}: it has no annotations (record_function)")
    return lines
