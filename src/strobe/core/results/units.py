"""Numbers as people read them, with as many digits as the whole they belong to deserves; and places in code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.results.numerals import format_fixed, minus, significant

if TYPE_CHECKING:
    from strobe.core.results.data import Interval  # loads pydantic, and help has numbers to write too

NONE = "–"
TAIL = 0.95  # share of the values within the one figure that stands next to a median
P_TAIL, TAIL_PERCENT = f"p{100 * TAIL:g}", f"{100 * TAIL:g} %"


def plain(text: str) -> str:
    """Return one printable line: names and notes come from outside and may hold newlines or terminal escapes."""
    if text.isprintable() and "  " not in text:  # nearly always, and much faster
        return text.strip()
    return " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())


def capital(text: str) -> str:
    """Return ``text`` with a capital letter at its start; a command keeps its own."""
    return text if text.startswith("strobe ") else f"{text[:1].upper()}{text[1:]}"


def plural(count: int) -> str:
    """Return the ending of a noun after ``count``: 's', but for one."""
    return "" if count == 1 else "s"


def join_names(names: Sequence[str], most: int | None = None) -> str:
    """Return names in a row: 'a, b and c'; of more than ``most`` names the first, and how many more there are."""
    if most is not None and len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def quote(name: str) -> str:
    """Return a variant's name for a sentence: in backticks, but for the baseline and names with an article.

    >>> quote("memory=kept"), quote("baseline"), quote("the robot")
    ('`memory=kept`', 'the baseline', 'the robot')
    """
    if name == "baseline":
        return "the baseline"
    return name if name.startswith(("the ", "this ")) else f"`{name}`"


def digits(whole_ms: float) -> int:
    """Return the decimals for every time in a table whose largest figure is ``whole_ms``, so that columns align."""
    for limit, decimals in ((1000, 1), (10, 2), (1, 3)):
        if abs(whole_ms) >= limit:
            return decimals
    return 4


def ms(value: float | None, decimals: int = 2) -> str | None:
    """Return milliseconds with so many decimals: '12.30'; None for None."""
    return None if value is None else format_fixed(value, decimals)


def places(decimals: int) -> Callable[[float | None], str | None]:
    """Return `ms` with so many decimals."""
    return lambda value: ms(value, decimals)


def format_signed(value: float | None, decimals: int = 2) -> str | None:
    """Return a number with its sign: '+1.20', '−0.50'; None for None."""
    return None if value is None else format_fixed(value, decimals, plus=True)


def span(interval: Interval | None, decimals: int = 2) -> str | None:
    """Return an interval as '1.20 to 3.40'; None for None."""
    return (
        None
        if interval is None
        else f"{format_fixed(interval.low, decimals)} to {format_fixed(interval.high, decimals)}"
    )


def signed_span(interval: Interval | None, decimals: int = 2) -> str | None:
    """Return an interval with signs: '−0.20 to +3.40'; None for None."""
    if interval is None:
        return None
    return f"{format_signed(interval.low, decimals)} to {format_signed(interval.high, decimals)}"


def percent(share: float | None) -> str | None:
    """Return a share from 0 to 1 as '12.3 %'; None for None."""
    return None if share is None else f"{format_fixed(100 * share, 1)} %"


def interval_title(intervals: Sequence[Interval | None]) -> str:
    """Return the head of a column of intervals: '99 % CI'; 'CI' if their levels differ."""
    levels = {f"{100 * interval.level:.3g} %" for interval in intervals if interval is not None}
    return f"{levels.pop()} CI" if len(levels) == 1 else "CI" if levels else "95 % CI"


def change(ratio: float | None, interval: Interval | None = None) -> str | None:
    """Return a ratio as a change: 1.031 is ``+3.1 %``, and 120 is ``120 ×``. Factors, if ``interval`` has them."""
    return None if ratio is None else _change(ratio, " %", factor=_has_factors(ratio, interval))


def change_span(interval: Interval | None) -> str | None:
    """Return an interval of ratios as changes, '+1.2 to +3.4 %', or as factors, '0.5 to 120 ×'; None for None."""
    if interval is None:
        return None
    factor = _has_factors(interval.high, interval)
    return (
        f"{_change(interval.low, factor=factor)} to {_change(interval.high, ' ×' if factor else ' %', factor=factor)}"
    )


def change_ends(interval: Interval) -> str:
    """Return the ends of an interval of ratios, to stand behind a `change` with this interval: ``[+1.2, +3.4]``."""
    factor = _has_factors(interval.high, interval)
    return f"[{_change(interval.low, factor=factor)}, {_change(interval.high, factor=factor)}]"


def _has_factors(ratio: float, interval: Interval | None) -> bool:
    return (ratio if interval is None else interval.high) >= 100


def _change(ratio: float, unit: str = "", *, factor: bool) -> str:
    if not factor:
        return f"{format_signed(100 * (max(ratio, 0.0) - 1), 1)}{unit}"
    shown = "over 1,000,000" if ratio >= 1e6 else f"{ratio:,.0f}" if ratio >= 100 else significant(max(ratio, 0.0))
    return f"{shown}{' ×' if unit else ''}"


def calls(value: float | None) -> str | None:
    """Return calls per iteration, with a decimal where they are no whole number; None for None."""
    return None if value is None else format_fixed(value, 0 if value == round(value) else 1)


def gflop(value: float | None) -> str | None:
    """Return GFLOP, with two decimals below 100; None for None."""
    return None if value is None else format_fixed(value, 2 if round(value, 2) < 100 else 0)


def size(value: int | None) -> str | None:
    """Return bytes in the largest binary unit of which there is one, after rounding."""
    if value is None:
        return None
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(abs(amount)) < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{format_fixed(amount, 0 if unit == 'B' or abs(amount) >= 99.95 else 1)} {unit}"


def number(value: float | None, figures: int = 4) -> str | None:
    """Return a number with so many figures, and no exponent where a person would write none."""
    return None if value is None else significant(value, figures)


def figures(count: int) -> Callable[[float | None], str | None]:
    """Return `number` with so many figures."""
    return lambda value: number(value, count)


def cosine(value: float | None) -> str | None:
    """Return a cosine with six decimals; None for None."""
    return None if value is None else f"{value:.6f}"


def short_ms(value: float) -> str:
    """Return milliseconds for a sentence: three figures, from a second on all of them."""
    return format_fixed(value, 0) if abs(value) >= 1000 else rate(value)


def rate(value: float) -> str:
    """Return a number with three figures, and no exponent where a person would write none."""
    return significant(value)


def count(value: int, noun: str) -> str:
    """Return a number with its noun: '1 call', '2 calls'."""
    return f"{value:,} {noun}{plural(value)}"


def metric(value: float) -> str:
    """Return a large count in short: 51600000 is ``51.6 M``, and 999999 is ``1 M``."""
    for limit, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if float(f"{abs(value):.3g}") >= limit:
            return f"{significant(value / limit)}{unit}"
    return minus(f"{value + 0.0:g}")


def sigma(value: float | None) -> str | None:
    """Return a number with two figures, such as an error in σ; with an exponent only below a thousandth."""
    if value is None:
        return None
    if value and abs(value) < 0.001:
        digits, _, power = f"{abs(value):.1e}".partition("e")
        shown = f"{digits.removesuffix('.0')}e{int(power)}"
    else:
        shown = significant(abs(value), 2)
    return f"−{shown}" if value < 0 else shown


@functools.cache
def place(file: str, line: int) -> str:
    """Return where a function is, from the folder that its package was imported from: never a path of this machine."""
    if file in ("", "~", "<built-in>"):
        return "built in"
    if file.startswith("<"):
        return file
    path = Path(file)
    roots = sorted((Path(root) for root in sys.path if root), key=lambda root: -len(root.parts))
    name = next((path.relative_to(root) for root in roots if path.is_relative_to(root)), Path(path.name))
    return f"{name.as_posix()}:{line}"
