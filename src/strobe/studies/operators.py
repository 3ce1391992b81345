"""One more iteration under torch.profiler, so that its operators and kernels can be merged into the trace."""

from __future__ import annotations

from torch.profiler import profile

from strobe.studies.measuring import Options
from strobe.subjects.subject import Phase, Subject
from strobe.timeline import Section, Timeline
from strobe.timeline.probe import Attached
from strobe.timeline.trace import mark_clocks


def operators_of(subject: Subject, phase: Phase, options: Options) -> tuple[list[Section], profile]:
    """Sections and operators of one warm iteration, tied together by a mark at the start.

    torch.profiler slows what it watches by up to several microseconds an operator: this run is for looking, not for
    numbers.
    """
    call = subject.call(phase, options.batch_size)
    call(0)
    timeline = Timeline(subject.device)
    with profile() as profiler, Attached(subject.hooks(phase, options.depth)), timeline:
        mark_clocks()
        call(0)
    return timeline.sections(), profiler
