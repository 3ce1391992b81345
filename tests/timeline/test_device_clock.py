"""The clock of an accelerator, on one that is made up: a current device, streams, stamps as float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from strobe.timeline import clock

HOUR_NS = 3_600_000_000_000


class Accelerator:
    """Stands for `torch.cuda`, with two devices. Its events tell differences as CUDA does: float32 of milliseconds."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.current = 0
        self.waited: list[str] = []
        outer = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                self.ns = self.device = None

            def record(self, stream: Any = None) -> None:
                self.ns, self.device = outer.now_ns, outer.current if stream is None else stream

            def elapsed_time(self, other: Any) -> float:
                assert self.device == other.device, "events of two devices have no time between them"
                return float(np.float32((other.ns - self.ns) / 1e6))

        self.Event = Event

    def current_stream(self, device: torch.device) -> int:
        return device.index or 0

    def synchronize(self, device: torch.device | None = None) -> None:
        self.waited.append(str(device))


@pytest.fixture
def made_up(monkeypatch):
    accelerator = Accelerator()
    monkeypatch.setattr(torch, "get_device_module", lambda _: accelerator)
    return accelerator


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
    *early, begun, ended = device.resolve([*marks, start, end])
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
