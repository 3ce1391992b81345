"""Calls against the robot's clock, in words: the gaps between calls and their price, and chunks in time for a rate."""

from __future__ import annotations

from strobe.core.report.document import Columns, Section, figure, figures, scaled_column, table, words
from strobe.core.results import units
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Measurement

ABOUT = (
    "At the robot's pace a call begins every few control ticks, and the machine is idle in between. Back to back, one "
    "call follows the other. Cameras and motors are not part of this: `strobe rollout` measures them."
)


def cadence_answers(result: Result) -> list[str]:
    """Return the cost of the gaps, if calls were also made without them, and the late calls."""
    sentences = []
    gap = result.gap if isinstance(result, BreakdownResult) else None
    if gap is not None and {gap.baseline, gap.candidate} <= {m.name for m in result.measurements}:
        sentences.append(_price(result, gap))
    for m in result.measurements:
        if m.cadence is not None and m.cadence.late:
            sentences.append(
                f"{units.capital(m.name)}: {m.cadence.late:,} of {m.cadence.calls:,} calls began late: the call "
                f"before took longer than {m.cadence.period_ms:,.1f} ms."
            )
    return sentences


def cadence_sections(result: Result) -> list[Section]:
    """Return how the calls of each measurement were spaced; none if all were back to back."""
    if not any(m.cadence is not None for m in result.measurements):
        return []
    decimals = units.digits(max(m.samples.summary.median for m in result.measurements))
    return [Section("cadence", "Cadence", table(result.measurements, _CADENCE, decimals), [ABOUT])]


def _spacing(m: Measurement) -> str:
    return "back to back" if m.cadence is None else f"{units.count(m.cadence.ticks, 'tick')} of {m.cadence.hz:g} Hz"


_CADENCE: Columns[Measurement] = [
    words("Calls", lambda m: m.name),
    words("Spacing", _spacing),
    figure("One every (ms)", lambda m: m.cadence and m.cadence.period_ms, units.places(1)),
    scaled_column("ms (median)", lambda m: m.samples.summary.median),
    scaled_column("95 % CI", lambda m: m.samples.summary.interval, units.span),
    *figures("{:,}".format, ("Calls", lambda m: m.samples.summary.n), ("Late", lambda m: m.cadence and m.cadence.late)),
]


def _price(result: Result, gap: Comparison) -> str:
    together, paced = (result.measurement(name) for name in (gap.baseline, gap.candidate))
    before, after = together.samples.summary.median, paced.samples.summary.median
    decimals = units.digits(max(before, after))
    every = f" of one every {paced.cadence.period_ms:,.0f} ms" if paced.cadence is not None else ""
    interval = gap.verdict.interval
    text = f"A call takes {units.ms(before, decimals)} ms back to back, {units.ms(after, decimals)} ms at the robot's "
    text += f"pace{every} ({units.change(gap.verdict.ratio, interval)} {units.change_ends(interval)}): "
    meaning = {
        "slower": "the gaps cost time, because clocks fall and caches lose their content",
        "faster": "the gaps cost nothing",
        "inconclusive": "the cost of the gaps is inconclusive",
    }
    return f"{text}{meaning.get(gap.verdict.kind, 'the gaps cost little or nothing')}."
