"""Numbers as people read them: one minus sign, no minus zero, no figure that nobody can read."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strobe.core.findings import view
from strobe.core.measure.statistics import summarise
from strobe.core.results import units
from strobe.core.results.data import Interval, Samples

EVERY: dict[str, Callable[[float], str | None]] = {
    "ms": units.ms, "signed": units.format_signed, "percent": units.percent, "change": units.change,
    "calls": units.calls,
    "gflop": units.gflop, "number": units.number, "short_ms": units.short_ms, "rate": units.rate,
    "sigma": units.sigma, "metric": units.metric, "size": lambda value: units.size(round(value)),
    "span": lambda value: units.span(Interval(low=value, high=value, level=0.95)),
    "change_ends": lambda value: units.change_ends(Interval(low=value, high=value, level=0.95)),
    "a finding's ms": view.ms, "a finding's percent": view.percent, "a finding's number": view.number_in_words,
}  # fmt: skip


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


LIKE_THIS = {
    units.metric: {999_600: "1 M", 999: "999", 1_000: "1 k", 51_600_000: "51.6 M"},
    units.size: {
        512: "512 B", 1023: "1,023 B", 1536: "1.5 KiB", 912 * 2**20: "912 MiB", 1024 * 1024 - 1: "1.0 MiB",
        1023 * 1024: "1,023 KiB", 3 * 2**30: "3.0 GiB", -2048: "−2.0 KiB", 5 * 2**40: "5,120 GiB",
    },
    units.percent: {-0.0004: "0.0 %"},
    units.format_signed: {-0.001: "+0.00"},
    units.change: {
        1.031: "+3.1 %", 0.9: "−10.0 %", 0.9999: "+0.0 %", 1 - 1e-6: "+0.0 %", 250.0: "250 ×",
        1e130: "over 1,000,000 ×", 1e131: "over 1,000,000 ×",
    },
    units.number: {-2.5: "−2.5", 123_456.0: "123,500", 1000.0: "1,000"},
    units.rate: {-40.04: "−40"},
    units.sigma: {
        0.0: "0", 0.00374: "0.0037", 0.001: "0.001", 3.04e-7: "3e-7", 2.06e-7: "2.1e-7", 0.614: "0.61", 12.4: "12",
        1234: "1,200", -0.0213: "−0.021", -4.2e-5: "−4.2e-5", None: None,
    },
    lambda ms: units.ms(ms, units.digits(ms)): {1234.56: "1,234.6", 0.04321: "0.0432"},
    units.plain: {"a\x1b[31m\nb\u202e": "a\ufffd[31m b\ufffd"},
}  # fmt: skip


def test_numbers_read_like_this() -> None:
    for shown, values in LIKE_THIS.items():
        assert {value: shown(value) for value in values} == values  # type: ignore[operator]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]))
def test_samples_know_every_share_of_them(values: list[float], share: float) -> None:
    samples = Samples(values=values, summary=summarise(values))
    assert samples.quantile(share) == pytest.approx(float(np.percentile(values, 100 * share)), rel=1e-9, abs=1e-9)
