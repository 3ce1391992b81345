"""Memory of an accelerator: in use, at its highest, left; through the functions that torch has for its type.

CUDA and XPU have them all. MPS tells what is in use, and neither a peak nor what is left of the machine's memory.
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
    """Memory of ``device``, an accelerator, in bytes. None stands for what torch does not tell of its type."""

    device: torch.device

    def allocated(self) -> int | None:
        """Memory of living tensors, and what operators hold for themselves."""
        if self.device.type == "mps":
            return torch.mps.current_allocated_memory()
        return self._told("memory_allocated")

    def peak(self) -> int | None:
        """The highest `allocated` since `reset_peak`, or since the process began."""
        return self._told("max_memory_allocated")

    def reset_peak(self) -> None:
        """Let `peak` begin anew at what is in use now. Nothing is waited for: memory is handed out at launch."""
        self._told("reset_peak_memory_stats")

    def free(self) -> int | None:
        """Memory that a new tensor can have: what the driver has left, and what torch's allocator holds unused."""
        try:
            left = self._told("mem_get_info")
        except RuntimeError:  # some integrated XPUs do not tell
            return None
        reserved, allocated = self._told("memory_reserved"), self.allocated()
        return None if left is None else left[0] + (reserved or 0) - (allocated or 0)

    def unused_in(self, pools: Collection[Pool]) -> int:
        """Memory that private ``pools`` hold and that counts as free. CUDA's alone.

        Between two replays no tensor lives in a graph's pool, so `allocated` and `peak` leave it out. Yet every replay
        writes there, and nothing else can have it.
        """
        if self.device.type != "cuda" or not pools:
            return 0
        index = numbered(self.device).index
        segments = [one for one in torch.cuda.memory_snapshot() if one["device"] == index]
        own = [one for one in segments if tuple(one.get("segment_pool_id", (0, 0))) in pools]
        return sum(one["total_size"] - one["allocated_size"] for one in own)

    def _told(self, name: str) -> Any:
        function = getattr(module_of(self.device), name, None)
        return None if function is None else function(self.device)


def memory_of(device: torch.device) -> DeviceMemory | None:
    """Return the memory of ``device``; None for the CPU, which has the process's."""
    return None if device.type == "cpu" else DeviceMemory(device)
