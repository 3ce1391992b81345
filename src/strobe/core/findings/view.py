"""Reading a result: parts found by name, and numbers put in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from strobe.core.results import units
from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import CompareResult, Result
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.numerals import format_fixed

CENTURY_MS = 1e12  # longest credible time: beyond it, or below a nanosecond, it was not measured but made up
NANOSECOND_MS = 1e-6
CUDA_GRAPHS = (
    "CUDA graphs (`strobe compare --variant 'graph: graph=chunk'` for inference, else --compile "
    "--compile_mode=reduce-overhead)"
)


R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Part:
    """One or more components of the same name, taken together."""

    name: str
    ms: float  # median per iteration
    share: float  # ``ms`` of the whole's median, as a sentence has both; a table's shares are of the sums
    calls: float  # per iteration
    components: tuple[Component, ...]


def part(measurement: Measurement, components: Sequence[Component]) -> Part | None:
    """``components`` of ``measurement`` as one part; None if there are none, or if they took no time."""
    if not components:
        return None
    if len({len(component.values) for component in components}) == 1 and components[0].values:
        ms = statistics.median(map(sum, zip(*(component.values for component in components), strict=True)))
    else:
        ms = sum(component.summary.median for component in components)
    if ms < NANOSECOND_MS:
        return None
    calls = sum(component.calls for component in components)
    return Part(components[0].name, ms, ms / max(whole_ms(measurement), ms), calls, tuple(components))


def find(measurement: Measurement, name: str, *, inside: str | None = None) -> Part | None:
    """The part called ``name``, summed where it appears more than once; ``inside`` names an ancestor."""
    return part(
        measurement,
        [
            component
            for component in measurement.components
            if not component.other
            and component.path[-1] == name
            and name not in component.path[:-1]
            and (inside is None or inside in component.path[:-1])
        ],
    )


def top(measurement: Measurement, name: str) -> Part | None:
    """The part called ``name`` at the top of the tree."""
    return part(measurement, [c for c in measurement.components if not c.other and c.path == [name]])


def first_level(measurement: Measurement) -> list[Part]:
    """The parts of the family's first level: what is two deep, and what is one deep without parts of its own.

    The numbered modules of a sequence are no parts of their own: '2' is one thing in each sequence.
    """
    named = [each for each in measurement.components if not each.other and not each.name.isdecimal()]
    parents = {component.path[0] for component in named if component.depth > 1}
    groups: dict[str, list[Component]] = {}
    for component in named:
        if component.depth == 2 or (component.depth == 1 and component.path[0] not in parents):
            groups.setdefault(component.name, []).append(component)
    return [whole for group in groups.values() if (whole := part(measurement, group)) is not None]


def examined_measurements(result: Result, phase: str | None = None) -> Iterator[Measurement]:
    """The measurements whose parts findings are about, of ``phase`` or of all."""
    return (measurement for measurement in result.advised_measurements() if phase in (None, measurement.phase))


def compared_measurements(result: CompareResult) -> Iterator[tuple[Comparison, Measurement, Measurement]]:
    """Each comparison with the measurements of its baseline and of its candidate."""
    known = {measurement.name: measurement for measurement in result.measurements}
    for comparison in result.comparisons:
        before, after = known.get(comparison.baseline), known.get(comparison.candidate)
        if before is not None and after is not None:
            yield comparison, before, after


def plausible(result: R) -> R:
    """``result`` without what cannot have been measured: rules divide and extrapolate."""

    def possible(component: Component) -> bool:
        numbers = [*component.values, component.summary.median, component.host_ms or 0.0, component.gflop or 0.0]
        return (
            bool(component.path)
            and all(abs(number) <= CENTURY_MS for number in numbers)
            and abs(component.share) <= 10
            and 0 <= component.calls <= CENTURY_MS
        )

    measurements = [
        measurement.model_copy(update={"components": [c for c in measurement.components if possible(c)]})
        for measurement in result.measurements
        if NANOSECOND_MS <= measurement.samples.summary.median <= CENTURY_MS
    ]
    return result.model_copy(update={"measurements": measurements})


def number(value: float | None) -> float | None:
    """Return ``value`` as a float; None if it is missing, or too large to have been measured."""
    return float(value) if value is not None and abs(value) <= CENTURY_MS else None


def whole_ms(measurement: Measurement) -> float:
    """The median of the whole."""
    return measurement.samples.summary.median


def subtract_share(whole: float, share: float) -> float:
    """The rest of ``whole`` if ``share`` of it were free."""
    return whole * max(1 - share, 0.0)


def ms(value: float) -> str:
    """Milliseconds in a sentence."""
    return f"{units.short_ms(value)} ms"


def percent(share: float) -> str:
    """A share of 1 in per cent; one decimal below ten."""
    return f"{format_fixed(share * 100, 0 if abs(share) >= 0.0995 else 1)} %"


def free(measurement: Measurement, share: float) -> str:
    """Amdahl's bound in words: what the whole would be if ``share`` of it cost nothing."""
    before = whole_ms(measurement)
    after = subtract_share(before, share)
    return f"at most: if it were free, the {measurement.phase} would go from {ms(before)} to {ms(after)} (computed)"


def distance(same: Agreement) -> str:
    """Return how far actions, features or outputs are apart, in words: in σ where that is known."""
    if same.rms is None or same.worst is None:
        return f"cosine {same.cosine:.6f}, largest error {same.largest_error:.3g}"
    where = ", ".join(filter(None, (same.worst_dimension, same.worst_at)))
    flips = f", {number_in_words(100 * same.flips)} % of decisions flipped" if same.flips else ""
    worst = {"actions": "dimension", "features": "channel", "outputs": "column"}[same.of]
    return f"{sigma(same.rms)} apart (RMS of the worst {worst}), {sigma(same.worst)} at most" + (
        f" in {where}{flips}" if where else flips
    )


def sigma(value: float) -> str:
    """An error in units of a spread, with two figures."""
    return f"{number_in_words(value)} σ"


def number_in_words(value: float) -> str:
    """A number with two figures."""
    return units.sigma(value) or "" if math.isfinite(value) else "no finite number"


def gib(size: float, decimals: int = 1) -> str:
    """Bytes in GiB."""
    return f"{size / 2**30:.{decimals}f} GiB"
