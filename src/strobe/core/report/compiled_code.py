"""Compiled code: its graphs and seconds, and the lines at which it stops, is compiled again, or is not captured."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report.document import Columns, Section, figure, listing, words
from strobe.core.results import units
from strobe.core.results.compilation import Compilation, CompiledPlace
from strobe.core.results.measurement import Measurement

ABOUT = (
    "By torch's own records. The seconds are those of compiling, of capturing CUDA graphs, and of the warm-up: the "
    "rest of the calls before the measured ones."
)
Named = tuple[str, Compilation]


def sections(measurements: Sequence[Measurement]) -> list[Section]:
    """Return what was compiled for each measurement, and the places to look at; none where nothing was compiled."""
    compiled = [(m.name, m.compilation) for m in measurements if m.compilation is not None]
    text = [ABOUT, *(f"{name}: not judged: {seen.unjudged}." for name, seen in compiled if seen.unjudged)]
    places = [(name, place) for name, seen in compiled for place in seen.places]
    shown = listing("compiled", "Compiled code", compiled, _COMPILED, *text, whole=True)
    return shown + listing("compiled-places", "Where compiled code stops, or is compiled again", places, _PLACES)


def _seconds(value: float) -> str | None:
    return units.number(value, 3)


def _why(place: CompiledPlace) -> str:
    late = f"{place.late} after the warm-up" if place.late else ""
    return "; ".join(filter(None, [f"reached {place.limit}" if place.limit else "", late, *place.reasons]))


_COMPILED: Columns[Named] = [
    words("Compiled", lambda one: one[0]),
    figure("Graphs", lambda one: one[1].graphs),
    figure("Breaks (lines)", lambda one: len(one[1].breaks)),
    figure("Recompiled", lambda one: sum(place.times for place in one[1].of("recompiled"))),
    figure("after warm-up", lambda one: sum(place.late for place in one[1].places)),
    figure("Compile s", lambda one: one[1].compile_s, _seconds),
    figure("Capture s", lambda one: one[1].capture_s, _seconds),
    figure("Warm-up s", lambda one: one[1].warmup_s, _seconds),
]
_PLACES: Columns[tuple[str, CompiledPlace]] = [
    words("Of", lambda one: one[0]),
    words("What", lambda one: one[1].what),
    words("Where", lambda one: one[1].where),
    words("In", lambda one: one[1].function or None),
    figure("Times", lambda one: one[1].times),
    words("Why", lambda one: _why(one[1])),
]
