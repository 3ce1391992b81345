"""Compiled code: its graphs and seconds, and the lines at which it breaks, is compiled again, or is not captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strobe.core.report.document import Columns, Section, figure, listing, words
from strobe.core.results import units
from strobe.core.results.compilation import CodePlace, Compilation
from strobe.core.results.measurement import Measurement

ABOUT = (
    "By torch's own records. The seconds are those of compiling, of capturing CUDA graphs, and of the warm-up: the "
    "rest of the calls before the measured ones."
)


class _Compiled(NamedTuple):
    name: str
    seen: Compilation


class _Event(NamedTuple):
    name: str
    what: str
    at: CodePlace
    times: int
    why: str


def sections(measurements: Sequence[Measurement]) -> list[Section]:
    """Return what was compiled for each measurement, and the places to look at; none where nothing was compiled."""
    compiled = [_Compiled(m.name, m.compilation) for m in measurements if m.compilation is not None]
    text = [ABOUT, *(f"{name}: not judged: {seen.unjudged}." for name, seen in compiled if seen.unjudged)]
    events = [event for name, seen in compiled for event in _events(name if len(measurements) > 1 else "", seen)]
    shown = listing("compiled", "Compiled code", compiled, _COMPILED, *text, whole=True)
    return shown + listing("compiled-places", "Where compiled code stops, or is compiled again", events, _EVENTS)


def answers(measurements: Sequence[Measurement]) -> list[str]:
    """Return in a sentence each what was compiled for the measurements that have compiled code."""
    return [_sentence(m.name, m.compilation) for m in measurements if m.compilation is not None]


def _sentence(name: str, seen: Compilation) -> str:
    if seen.compile_s is None:
        return f"{name}: what was compiled is not judged: {seen.unjudged}."
    text = f"{name}: {units.count(seen.graphs, 'compiled graph')}, made in {_seconds(seen.compile_s)} s"
    if seen.recompiled:
        text += f", some of them in {units.count(sum(each.times for each in seen.recompiled), 'recompilation')}"
    stops = f"; compiled code stops at {units.count(len(seen.places), 'line')}" if seen.places else ""
    return f"{text}{stops}."


def _events(name: str, seen: Compilation) -> Iterator[_Event]:
    for cut in seen.breaks:
        yield _Event(name, "not compiled" if cut.whole else "graph break", cut, cut.times, cut.reason)
    for again in seen.recompiled:
        late = f"{again.late} after the warm-up" if again.late else ""
        limit = f"reached {again.limit}" if again.limit else ""
        why = "; ".join(text for text in (limit, late, *again.guards) if text)
        yield _Event(name, "recompiled", again, again.times, why)
    for skipped in seen.skipped:
        yield _Event(name, "no CUDA graph", skipped, skipped.times, skipped.reason)


def _seconds(value: float) -> str | None:
    return units.number(value, 3)


_COMPILED: Columns[_Compiled] = [
    words("Compiled", lambda one: one.name),
    figure("Graphs", lambda one: one.seen.graphs),
    figure("Breaks (lines)", lambda one: len(one.seen.places)),
    figure("Recompiled", lambda one: sum(each.times for each in one.seen.recompiled)),
    figure("after warm-up", lambda one: sum(each.late for each in one.seen.recompiled)),
    figure("Compile s", lambda one: one.seen.compile_s, _seconds),
    figure("Capture s", lambda one: one.seen.capture_s, _seconds),
    figure("Warm-up s", lambda one: one.seen.warmup_s, _seconds),
]
_EVENTS: Columns[_Event] = [
    words("Of", lambda event: event.name or None),
    words("What", lambda event: event.what),
    words("Where", lambda event: event.at.shown),
    words("In", lambda event: event.at.function or None),
    figure("Times", lambda event: event.times),
    words("Why", lambda event: event.why),
]
