"""Calls against the robot's clock, in words: the gaps between calls and their price, and chunks in time for a rate."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report.document import Column, Row, Section, Table
from strobe.core.results import units
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.comparison import Comparison
from strobe.core.results.in_time import InTime
from strobe.core.results.measurement import Measurement
from strobe.ladder.results import Ladder

ABOUT = (
    "At the robot's pace a call begins every so many control ticks, and the machine idles in between. Back to back, "
    "one call follows the other. The robot's cameras and motors are not part of this: `strobe rollout` measures them."
)


def cadence_answers(result: Result) -> list[str]:
    """Return the price of the gaps, where calls were also made without them, and calls that came late."""
    sentences = []
    gap = result.gap if isinstance(result, BreakdownResult) else None
    if gap is not None and {gap.baseline, gap.candidate} <= {m.name for m in result.measurements}:
        sentences.append(_price(result, gap))
    for m in result.measurements:
        if m.cadence is not None and m.cadence.late:
            sentences.append(
                f"{m.name}: {m.cadence.late:,} of {m.cadence.calls:,} calls began late: the calls before them took "
                f"longer than {m.cadence.period_ms:,.1f} ms, so these calls followed without a gap."
            )
    return sentences


def cadence_sections(result: Result) -> list[Section]:
    """Return how the calls of each measurement were spaced; none where all were back to back."""
    if not any(m.cadence is not None for m in result.measurements):
        return []
    columns = [Column("Calls", numeric=False), Column("Spacing", numeric=False), Column("One every (ms)")]
    columns += [Column("ms (median)"), Column("95 % interval"), Column("Calls"), Column("Late")]
    return [Section("cadence", "Cadence", Table(columns, _rows(result.measurements)), [ABOUT])]


def _rows(measurements: Sequence[Measurement]) -> list[Row]:
    decimals = units.digits(max((m.samples.summary.median for m in measurements), default=0.0))
    rows = []
    for m in measurements:
        whole, cadence = m.samples.summary, m.cadence
        if cadence is None:
            spacing, every, late = "back to back", None, None
        else:
            spacing = f"{units.count(cadence.ticks, 'tick')} of {cadence.hz:g} Hz"
            every, late = units.ms(cadence.period_ms, 1), f"{cadence.late:,}"
        cells = [m.name, spacing, every, units.ms(whole.median, decimals)]
        rows.append(Row([*cells, units.span(whole.interval, decimals), f"{whole.n:,}", late]))
    return rows


def _price(result: Result, gap: Comparison) -> str:
    together, paced = (result.measurement(name) for name in (gap.baseline, gap.candidate))
    before, after = together.samples.summary.median, paced.samples.summary.median
    decimals = units.digits(max(before, after))
    every = f" of one every {paced.cadence.period_ms:,.0f} ms" if paced.cadence is not None else ""
    text = f"A call takes {units.ms(before, decimals)} ms back to back, {units.ms(after, decimals)} ms at the robot's "
    text += f"pace{every} ({units.change(gap.verdict.ratio)} {units.change_ends(gap.verdict.interval)}): "
    meaning = {
        "slower": "clocks and caches fall in the gaps",
        "faster": "the gaps cost nothing",
        "no difference shown": "no difference that these calls can show",
        "too noisy": "too noisy to tell what the gaps cost",
    }
    return f"{text}{meaning[gap.verdict.kind]}."


def describe_share(judged: InTime) -> str:
    """Return how many chunks were in time, and what that shows of all others."""
    missed = judged.outcome == "missed"
    bound = (
        f"at most {_bound_in_words(judged.high, judged)}"
        if missed
        else f"at least {_bound_in_words(judged.low, judged)}"
    )
    text = f"{_percent(judged.share)} of {units.count(judged.chunks, 'chunk')} are in time ({bound}, {_level(judged)}"
    return f"{text}, if no more than {judged.burst} in a row are late)" if judged.burst is not None else f"{text})"


def describe_lack(judged: InTime) -> str:
    """Return what chunks that show nothing lack."""
    seen = (
        f"{judged.on_time} of {units.count(judged.chunks, 'chunk')} {'was' if judged.on_time == 1 else 'were'} in time"
    )
    if judged.needed is None:
        return f"{seen}, too near to {_percent(judged.asked)} to tell"
    needed = f"{judged.needed:,} to show that {_percent(judged.asked)} are (--iterations={judged.needed})"
    return f"{seen}, and it takes {needed}"


def describe_target(name: str, target: str, median_ms: float, ladder: Ladder) -> str:
    """Return whether the rung that a ladder ends with reaches its target, in a sentence or two.

    Args:
        name: of the policy.
        target: the rate, with its milliseconds.
    """
    judged = ladder.in_time
    by = median_ms - ladder.target_ms
    if judged is None:  # of an earlier version, which looked at the median
        return f"{name} reaches {target} by its median." if ladder.met else f"{name} misses {target}{_by(by)}."
    if judged.outcome == "reached":
        return f"{name} reaches {target}: {describe_share(judged)}."
    if judged.outcome == "missed":
        required = f", where {_percent(judged.asked)} must be" if by <= 0 else ""
        return f"{name} misses {target}{_by(by)}: {describe_share(judged)}{required}."
    return f"Too few chunks to say whether {name} reaches {target}: {describe_lack(judged)}."


def _by(missing_ms: float) -> str:
    return f" by {units.short_ms(missing_ms)} ms" if missing_ms > 0 else ""


def _level(judged: InTime) -> str:
    return f"{100 * judged.level:.3g} %"


def _percent(value: float) -> str:
    """Return a share of chunks; never 100 % where one was late."""
    return f"{100 * value:.3g} %" if value in (0, 1) or 0.1 < 100 * value < 99.9 else f"{100 * value:.2f} %"


def _bound_in_words(value: float, judged: InTime) -> str:
    """Return a bound of the share, with as many figures as it takes to see that it is not the requested share."""
    for figures in range(3, 8):
        if float(f"{100 * value:.{figures}g}") != 100 * judged.asked:
            return f"{100 * value:.{figures}g} %"
    return _percent(value)
