"""An accelerator that is made up: a current device, streams, stamps as float32, an allocator for each device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

GIB = 2**30


@dataclass
class Card:
    """One device's memory, as its allocator and its driver count it, and the state of its generator."""

    driver_free: int = 8 * GIB
    reserved: int = 0
    allocated: int = 0
    highest: int = 0
    resets: int = 0
    random: Tensor = field(default_factory=lambda: torch.zeros(16, dtype=torch.uint8))
    segments: list[dict[str, Any]] = field(default_factory=list)

    def take(self, size: int) -> None:
        """Let a tensor of ``size`` bytes begin, or one of -``size`` end."""
        self.allocated += size
        self.highest = max(self.highest, self.allocated)


class Accelerator:
    """Stands for `torch.cuda`, with two devices. Its events tell differences as CUDA does: float32 of milliseconds.

    What is asked without a device is answered for the current one.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.current = 0
        self.waited: list[str] = []
        self.cards = [Card(), Card()]
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

    def card(self, device: torch.device | str | None) -> Card:
        index = None if device is None else torch.device(device).index
        return self.cards[self.current if index is None else index]

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.cards)

    def current_device(self) -> int:
        return self.current

    def current_stream(self, device: torch.device) -> int:
        return device.index or 0

    def synchronize(self, device: torch.device | None = None) -> None:
        self.waited.append(str(device))

    def memory_allocated(self, device: Any = None) -> int:
        return self.card(device).allocated

    def memory_reserved(self, device: Any = None) -> int:
        return self.card(device).reserved

    def max_memory_allocated(self, device: Any = None) -> int:
        return self.card(device).highest

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        card = self.card(device)
        card.highest, card.resets = card.allocated, card.resets + 1

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.card(device).driver_free, 16 * GIB

    def memory_snapshot(self) -> list[dict[str, Any]]:
        return [{"device": index, **one} for index, card in enumerate(self.cards) for one in card.segments]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return self.card(device).random.clone()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        self.card(device).random = state.clone()
