"""Memory of an accelerator (in use, peak, free), by torch's functions for its type.

CUDA and XPU have them all. MPS reports the memory in use, but neither a peak nor the free memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from strobe.devices.which import module_of, numbered

# Names a private pool of CUDA's allocator, in which a graph keeps its memory (torch.cuda.graph_pool_handle).
Pool = tuple[int, int]


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of ``device``, an accelerator, in bytes. None: torch does not report the figure for its type."""

    device: torch.device

    def allocated(self) -> int | None:
        """Return the memory of living tensors and of operators' own buffers."""
        if self.device.type == "mps":
            return torch.mps.current_allocated_memory()
        return self._query("memory_allocated")

    def peak(self) -> int | None:
        """Return the highest `allocated` since `reset_peak`, or since the process began."""
        return self._query("max_memory_allocated")

    def reset_peak(self) -> None:
        """Start a new `peak` at the memory in use now. It does not wait for kernels: memory is allocated at launch."""
        self._query("reset_peak_memory_stats")

    def free(self) -> int | None:
        """Return the memory that a new tensor can have: the driver's free memory and the unused part of torch's."""
        try:
            free_and_total = self._query("mem_get_info")
        except RuntimeError:  # some integrated XPUs do not report it
            return None
        reserved, allocated = self._query("memory_reserved"), self.allocated()
        return None if free_and_total is None else free_and_total[0] + (reserved or 0) - (allocated or 0)

    def unused_in(self, pools: Collection[Pool]) -> int:
        """Return the memory that private ``pools`` hold and that counts as free. Only CUDA has such pools.

        Between two replays no tensor lives in a graph's pool, so `allocated` and `peak` leave it out. Yet every replay
        writes there, and nothing else can use it.
        """
        if self.device.type != "cuda" or not pools:
            return 0
        index = numbered(self.device).index
        segments = [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == index]
        own = [segment for segment in segments if tuple(segment.get("segment_pool_id", (0, 0))) in pools]
        return sum(segment["total_size"] - segment["allocated_size"] for segment in own)

    def _query(self, name: str) -> Any:
        function = getattr(module_of(self.device), name, None)
        return None if function is None else function(self.device)


def memory_of(device: torch.device) -> DeviceMemory | None:
    """Return the memory of ``device``; None for the CPU, which uses the process's."""
    return None if device.type == "cpu" else DeviceMemory(device)
