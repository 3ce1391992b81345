"""Numbers as people read them: one minus sign, no minus zero, no figure that nobody can read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strobe.findings import view
from strobe.results import units
from strobe.results.data import Interval

EVERY: dict[str, Callable[[float], str | None]] = {
    "ms": units.ms,
    "signed": units.signed,
    "percent": units.percent,
    "change": units.change,
    "calls": units.calls,
    "gflop": units.gflop,
    "number": units.number,
    "short_ms": units.short_ms,
    "rate": units.rate,
    "sigma": units.sigma,
    "size": lambda value: units.size(round(value)),
    "metric": units.metric,
    "span": lambda value: units.span(Interval(low=value, high=value, level=0.95)),
    "change_ends": lambda value: units.change_ends(Interval(low=value, high=value, level=0.95)),
    "a finding's ms": view.ms,
    "a finding's percent": view.percent,
    "a finding's number": view.number_in_words,
}


@pytest.mark.parametrize("name", EVERY)
@given(st.floats(-1e140, 1e140) | st.floats(-1e7, 1e7) | st.floats(-1, 1))
@example(-0.0)
@example(-1e-9)
@example(0.999)
@example(1e131)
@example(999_999.0)
def test_any_number_can_be_read(name: str, value: float):
    shown = EVERY[name](value) or ""
    assert not re.search(r"(?<!e)-", shown), "a hyphen for a minus sign"
    assert not re.search(r"−0(\.0*)?(?![.\d])", shown), "minus nothing"
    assert max(len(digits) for digits in re.findall(r"[\d,.]+", shown)) <= 17, "digits that nobody reads"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.metric(999_600), "1 M"),
        (units.metric(999), "999"),
        (units.metric(1_000), "1 k"),
        (units.metric(51_600_000), "51.6 M"),
        (units.size(1023), "1,023 B"),
        (units.size(1024 * 1024 - 1), "1.0 MiB"),
        (units.size(1023 * 1024), "1,023 KiB"),
        (units.size(-2048), "−2.0 KiB"),
        (units.size(5 * 2**40), "5,120 GiB"),
        (units.percent(-0.0004), "0.0 %"),
        (units.change(1 - 1e-6), "+0.0 %"),
        (units.change(1e131), "over 1,000,000 ×"),
        (units.number(-2.5), "−2.5"),
        (units.number(123_456.0), "123,500"),
        (units.number(1000.0), "1,000"),
        (units.rate(-40.04), "−40"),
        (units.sigma(3e-7), "3e-7"),
    ],
)
def test_numbers_read_like_this(shown: str, expected: str):
    assert shown == expected
