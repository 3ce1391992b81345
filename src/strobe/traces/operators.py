"""One more iteration, watched: by torch.profiler for operators, kernels and gaps, or by CUDA's allocator."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch.profiler import profile, record_function

from strobe.core.errors import UserError
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Reporter, Silent, Steps
from strobe.core.subjects.subject import Phase, Subject
from strobe.core.timeline import Section, Timeline
from strobe.core.timeline.probe import Attached, Hook
from strobe.core.timeline.ranges import require_ranges
from strobe.core.timeline.trace import chrome_trace, export_trace, mark_clocks
from strobe.core.treatments.treatment import Variant
from strobe.core.untrusted import JsonObject
from strobe.traces.annotations import parts
from strobe.traces.graph_parts import graph_times
from strobe.traces.launches import lost_launches
from strobe.traces.occupancy import Nest
from strobe.traces.operator_table import MARK, operator_profile
from strobe.traces.profiler_events import Rows, parse_rows
from strobe.traces.results import OperatorProfile, TracePart

TRIES = 5  # most tries, while they fit in the time below
TRY_S = 1.0


@dataclass
class ProfiledIteration:
    """Sections and operators of one warm iteration, tied together by a mark at the start."""

    profile: OperatorProfile
    sections: list[Section]
    events: list[JsonObject]  # torch.profiler's, on its own clock
    document: bytes  # the same, as torch.profiler writes it


def profile_operators(
    subject: Subject,
    phase: Phase,
    variant: Variant,
    measurement: str,
    options: Options,
    reporter: Reporter | None = None,
    *,
    memory: bool = False,
) -> ProfiledIteration:
    """Run ``variant`` once more, warm, under torch.profiler with our probes on.

    Of short iterations it takes the fastest of a few: a moment without the core makes gaps that are not there.
    torch.profiler slows what it watches by up to several microseconds an operator: this run is for looking, not for
    numbers. With ``memory`` it also records allocations.
    """
    sections, document = _fastest(subject, phase, variant, options, reporter, memory=memory)
    events = json.loads(document)["traceEvents"]
    seen = operator_profile(events, measurement)
    seen.parts = device_parts(events, sections) if seen.kernel_calls else []
    if seen.graph_kernels:  # what a graph runs is in no section: the same work without the graph is
        eager, without = _fastest(subject, phase, variant.unbuilt(), options, reporter)
        rows = [_cut_to_sections(events, sections), _cut_to_sections(json.loads(without)["traceEvents"], eager)]
        seen.graphs = graph_times(*rows)
    return ProfiledIteration(seen, sections, events, document)


def _fastest(
    subject: Subject,
    phase: Phase,
    variant: Variant,
    options: Options,
    reporter: Reporter | None,
    *,
    memory: bool = False,
) -> tuple[list[Section], bytes]:
    with ExitStack() as stack:
        stack.callback(variant.apply(subject))
        call = subject.call(phase, options.batch_size)
        hooks = subject.hooks(phase, options.depth) if options.probed else []
        start = time.perf_counter()
        call(0)
        tries = max(1, min(TRIES, int(TRY_S / (time.perf_counter() - start))))
        steps, watched = Steps(reporter or Silent(), "calls"), []
        steps(1, 1 + tries)
        for number in range(tries):
            watched.append(_watch(subject, call, hooks, memory))
            steps(2 + number, 1 + tries)
        profiler, timeline, _ = min(watched, key=itemgetter(2))
    return timeline.sections(), export_trace(profiler)


def device_parts(events: Sequence[JsonObject], sections: Sequence[Section]) -> list[TracePart]:
    """Return the sections of the iteration in `MARK` with the device's work launched in each.

    The profiler of ``events`` and the timeline of ``sections`` ran over the same `mark_clocks`.
    """
    rows = _cut_to_sections(events, sections)
    return parts(rows, Nest(rows.annotations), lost_launches(rows).lacking)


def _cut_to_sections(events: Sequence[JsonObject], sections: Sequence[Section]) -> Rows:
    rows, ours = (parse_rows(chrome_trace(sections, profiled=more)["traceEvents"]) for more in (events, None))
    mark = next(call for call in rows.annotations if call.name == MARK)
    return replace(rows.inside(mark.start, mark.end), annotations=ours.inside(mark.start, mark.end).annotations)


def _watch(
    subject: Subject, call: Callable[[int], object], hooks: Sequence[Hook], memory: bool
) -> tuple[profile, Timeline, float]:
    timeline = Timeline(subject.device)
    # acc_events changes nothing for one cycle, and keeps torch from warning that there could be several.
    with profile(record_shapes=True, profile_memory=memory, acc_events=True) as profiler, Attached(hooks), timeline:
        mark_clocks()
        start = time.perf_counter()
        with record_function(MARK):
            call(0)
        took = time.perf_counter() - start
    return profiler, timeline, took


def check_tools(device: torch.device, *, nvtx: bool, memory_snapshot: bool) -> None:
    """Raise UserError for profilers that ``device`` does not have."""
    if nvtx:
        require_ranges(device)
    if memory_snapshot and device.type != "cuda":
        raise UserError(f"--memory_snapshot shows CUDA's allocator, and the policy or model runs on {device}")


def memory_snapshot(subject: Subject, phase: Phase, variant: Variant, options: Options) -> bytes:
    """Return every allocation of one warm iteration with its stack, as pytorch.org/memory_viz reads it."""
    with ExitStack() as stack:
        stack.callback(variant.apply(subject))
        call = subject.call(phase, options.batch_size)
        call(0)
        torch.cuda.memory._record_memory_history(max_entries=200_000)
        stack.callback(torch.cuda.memory._record_memory_history, enabled=None)
        call(0)
        return pickle.dumps(torch.cuda.memory._snapshot())
