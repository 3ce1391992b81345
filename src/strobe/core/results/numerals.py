"""Numbers as text for people: one minus sign (−), no minus zero, no endless digits.

An exponent keeps its hyphen (``3e-7``), as do flags, files and JSON: text for programs is not written here.
"""

from __future__ import annotations

import math

LARGEST = 1e12  # larger numbers are written with an exponent


def format_fixed(value: float, decimals: int = 2, *, plus: bool = False) -> str:
    """Return ``value`` with so many decimals; ``plus``: with a sign in any case, +0 included."""
    if not math.isfinite(value) or abs(value) >= LARGEST:
        return significant(value, plus=plus)
    return minus(f"{round(value, decimals) + 0.0:{'+' if plus else ''},.{decimals}f}")


def significant(value: float, figures: int = 3, *, plus: bool = False) -> str:
    """Return ``value`` with so many figures, in full between a hundred-thousandth and `LARGEST`."""
    sign = "+" if plus else ""
    rounded = float(f"{value:.{figures - 1}e}") + 0.0
    if not math.isfinite(rounded) or rounded == 0 or 1e-5 <= abs(rounded) < LARGEST:
        decimals = (
            0 if rounded == 0 or not math.isfinite(rounded) else figures - 1 - math.floor(math.log10(abs(rounded)))
        )
        text = f"{rounded:{sign},.{max(0, decimals)}f}"
        return minus(text.rstrip("0").rstrip(".") if "." in text else text)
    digits, _, power = f"{rounded:{sign}.{figures - 1}e}".partition("e")
    return minus(f"{digits.rstrip('0').rstrip('.')}e{int(power)}")


def minus(text: str) -> str:
    """Return the text of one number with a minus sign for its hyphen; that of an exponent stays."""
    return f"−{text[1:]}" if text.startswith("-") else text


def points(share: float) -> str:
    """Return a difference of rates, such as success rates: 0.1 is '10 points'."""
    return f"{significant(100 * share)} point{'' if abs(share) == 0.01 else 's'}"
