"""Numbers as people read them, with as many digits as the whole they belong to deserves."""

from __future__ import annotations

from strobe.results.data import Interval

NONE = "–"


def plain(text: str) -> str:
    """One printable line: names and notes come from outside and may hold newlines or terminal escapes."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())


def digits(whole_ms: float) -> int:
    """Decimals for every time in a table whose largest figure is ``whole_ms``, so that columns align."""
    for limit, decimals in ((1000, 1), (10, 2), (1, 3)):
        if abs(whole_ms) >= limit:
            return decimals
    return 4


def ms(value: float | None, decimals: int = 2) -> str | None:
    return None if value is None else f"{value:,.{decimals}f}"


def signed(value: float | None, decimals: int = 2) -> str | None:
    if value is None:
        return None
    return f"{round(value, decimals) + 0.0:+,.{decimals}f}".replace("-", "−")


def span(interval: Interval | None, decimals: int = 2) -> str | None:
    return None if interval is None else f"{interval.low:,.{decimals}f} to {interval.high:,.{decimals}f}"


def signed_span(interval: Interval | None, decimals: int = 2) -> str | None:
    if interval is None:
        return None
    return f"{signed(interval.low, decimals)} to {signed(interval.high, decimals)}"


def percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def change(ratio: float | None) -> str | None:
    """A ratio as a change: 1.031 is ``+3.1 %``, and 120 is ``120 ×``."""
    return None if ratio is None else _change(ratio, " %")


def change_span(interval: Interval | None) -> str | None:
    return None if interval is None else f"{_change(interval.low)} to {_change(interval.high, ' %')}"


def change_ends(interval: Interval) -> str:
    """The ends of an interval of ratios, to stand behind a `change`: ``[+1.2, +3.4]``."""
    return f"[{_change(interval.low)}, {_change(interval.high)}]"


def _change(ratio: float, unit: str = "") -> str:
    if ratio < 100:
        return f"{signed(100 * (ratio - 1), 1)}{unit}"
    return f"{ratio:,.0f} ×" if ratio < 1e6 else "over 1,000,000 ×"


def calls(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def gflop(value: float | None) -> str | None:
    return None if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def size(value: int | None) -> str | None:
    """Bytes in the binary unit that gives one to four digits before the point."""
    if value is None:
        return None
    if value < 0:
        return f"−{size(-value)}"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:,.1f} {unit}"


def number(value: float | None, significant: int = 4) -> str | None:
    return None if value is None else f"{value:.{significant}g}"


def short_ms(value: float) -> str:
    """Milliseconds in a sentence: three figures, from a second on all of them."""
    return f"{value:,.0f}" if abs(value) >= 1000 else rate(value)


def rate(value: float) -> str:
    """Three figures, and no exponent where a person would write none."""
    return f"{float(f'{value:.3g}'):,.10g}"


def count(value: int, noun: str) -> str:
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def metric(value: float) -> str:
    """A large count in short: 51600000 is ``51.6 M``."""
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:g}"


def sigma(value: float | None) -> str | None:
    """A number with two figures, such as an error in units of a spread; with an exponent only below a thousandth."""
    if value is None:
        return None
    if value and abs(value) < 0.001:
        digits, _, power = f"{abs(value):.1e}".partition("e")
        shown = f"{digits.removesuffix('.0')}e{int(power)}"
    else:
        shown = f"{float(f'{abs(value):.2g}'):,.10g}"
    return f"−{shown}" if value < 0 else shown
