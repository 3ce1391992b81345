"""The device's peak over a training, in which LeRobot resets it at every step; and the price of a section there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import torch

from strobe.core.devices.accelerators import find_device_memory
from strobe.core.timeline import Timeline
from strobe.train.summary import section_price_ms
from strobe.train.watch import TrainingWatch


def test_the_highest_of_all_steps_counts_and_of_what_lies_between_them(made_up):
    card = made_up.cards[1]
    tracker: Any = SimpleNamespace(metrics={name: SimpleNamespace(val=1.0) for name in ("loss", "lr")})

    def measured_peak(updates: list[int], between: list[int], before: int = 0) -> int | None:
        watch = TrainingWatch()
        watch.config = SimpleNamespace(steps=len(updates))
        watch._memory = memory = find_device_memory(torch.device("cuda:1"))
        watch.timeline, watch._cores = Timeline(), psutil.cpu_times()
        assert memory is not None
        memory.reset_peak()

        def update(inner_tracker: Any, policy: Any, size: int) -> None:
            made_up.reset_peak_memory_stats("cuda:1")  # as lerobot_train.update_policy does
            card.take(size)
            card.take(-size)

        for size, after in zip(updates, between, strict=True):
            watch._next_step()
            card.take(before)  # images made floats on the device
            card.take(-before)
            watch._update(update, tracker, None, size)
            card.take(after)  # an evaluation, say
            card.take(-after)
        watch._end_step()
        return watch.peak_device

    assert measured_peak([500, 9000, 700], [0, 0, 0]) == 9000
    assert measured_peak([500, 600, 700], [0, 4000, 0]) == 4000
    assert measured_peak([500, 600, 700], [0, 0, 5000]) == 5000
    assert measured_peak([500, 600, 700], [0, 0, 0], before=3000) == 3000


def test_a_training_on_the_cpu_has_no_device_peak():
    watch = TrainingWatch()
    watch._look_at_memory()
    assert watch.peak_device is None


def test_the_price_of_a_section_is_that_of_the_clocks_it_is_marked_on(made_up):
    """On a device a section is marked there too: its price is not that of one that only the host has."""
    marks: list[int] = []
    inner = made_up.Event

    class Event(inner):
        def __init__(self, enable_timing: bool) -> None:
            super().__init__(enable_timing)
            marks.append(1)

    made_up.Event = Event
    section_price_ms(None, 50)
    assert not marks
    section_price_ms(Timeline("cuda:1"), 50)
    assert len(marks) >= 2 * 9 * 5
