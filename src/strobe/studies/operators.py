"""One more iteration, watched: by torch.profiler for operators, kernels and gaps, or by CUDA's allocator."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import profile, record_function

from strobe.errors import UserError
from strobe.measure.operators import MARK, operator_profile
from strobe.results.schema import OperatorProfile
from strobe.studies.measuring import Options
from strobe.subjects.subject import Phase, Subject
from strobe.timeline import Section, Timeline
from strobe.timeline.probe import Attached
from strobe.timeline.trace import exported, mark_clocks
from strobe.treatments.treatment import Variant


@dataclass
class Recorded:
    """Sections and operators of one warm iteration, tied together by a mark at the start."""

    profile: OperatorProfile
    sections: list[Section]
    events: list[dict[str, Any]]  # torch.profiler's, on its own clock
    document: bytes  # the same, as torch.profiler writes it


def operators_of(subject: Subject, phase: Phase, variant: Variant, measurement: str, options: Options) -> Recorded:
    """Run ``variant`` once more, warm, under torch.profiler with our probes on.

    torch.profiler slows what it watches by up to several microseconds an operator: this run is for looking, not for
    numbers.
    """
    undo = variant.apply(subject)
    try:
        call = subject.call(phase, options.batch_size)
        call(0)
        timeline = Timeline(subject.device)
        hooks = subject.hooks(phase, options.depth) if options.probed else []
        # acc_events changes nothing for one cycle, and keeps torch from warning that there could be several.
        with profile(record_shapes=True, acc_events=True) as profiler, Attached(hooks), timeline:
            mark_clocks()
            with record_function(MARK):
                call(0)
    finally:
        undo()
    document = exported(profiler)
    events = json.loads(document)["traceEvents"]
    return Recorded(operator_profile(events, measurement), timeline.sections(), events, document)


def require_allocator(subject: Subject) -> None:
    """Raises UserError where `memory_snapshot` cannot be taken."""
    if subject.device.type != "cuda":
        raise UserError(f"--memory_snapshot shows CUDA's allocator, and {subject.info.name} runs on {subject.device}")


def memory_snapshot(subject: Subject, phase: Phase, variant: Variant, options: Options) -> bytes:
    """Every allocation of one warm iteration with its stack, as pytorch.org/memory_viz reads it."""
    undo = variant.apply(subject)
    try:
        call = subject.call(phase, options.batch_size)
        call(0)
        torch.cuda.memory._record_memory_history(max_entries=200_000)
        try:
            call(0)
            return pickle.dumps(torch.cuda.memory._snapshot())
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
    finally:
        undo()
