"""The clock of an accelerator, on one that is made up: a current device, streams, stamps as float32."""

from __future__ import annotations

import pytest
import torch
from support.checks.presence import require_value

from strobe.core.timeline import clock

HOUR_NS = 3_600_000_000_000


def test_short_sections_are_exact_after_an_hour(made_up):
    device = clock.device_clock("cuda:0")
    assert device is not None
    marks, true = [], []
    for _ in range(3600):  # a mark each second, as a run has many more of
        made_up.now_ns += HOUR_NS // 3600
        marks.append(device.read())
        true.append(made_up.now_ns)
    made_up.now_ns += 1_234_567
    start = device.read()
    made_up.now_ns += 87_000
    end = device.read()
    *early, begun, ended = map(require_value, device.resolve([*marks, start, end]))
    assert ended - begun == pytest.approx(87_000, abs=10)
    assert early[-1] - early[0] == pytest.approx(true[-1] - true[0], abs=100_000)


def test_marks_may_come_in_any_order_and_some_may_be_missing(made_up):
    device = clock.device_clock("cuda:0")
    assert device is not None
    marks = []
    for _ in range(5):
        made_up.now_ns += 1_000_000
        marks.append(device.read())
    forward = device.resolve(marks)
    mixed = device.resolve([marks[3], None, marks[0], marks[4], marks[1], marks[2], marks[0]])
    assert mixed == [forward[3], None, forward[0], forward[4], forward[1], forward[2], forward[0]]


def test_a_second_device_is_the_one_that_is_marked_and_waited_for(made_up):
    made_up.current = 0
    device = clock.device_clock("cuda:1")
    assert device is not None
    assert device.read()[1].device == 1
    made_up.waited.clear()
    device.resolve([])
    assert set(made_up.waited) == {"cuda:1"}
    made_up.waited.clear()
    clock.synchronise(torch.device("cuda:1"))
    assert made_up.waited == ["cuda:1"]


def test_no_clock_and_nothing_to_wait_for_on_a_cpu(made_up):
    assert clock.device_clock("cpu") is None
    clock.synchronise("cpu")
    clock.synchronise(None)
    assert made_up.waited == []
