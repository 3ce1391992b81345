"""Accelerators as torch knows them: which one a name means, its memory, and its generator of random numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError
from strobe.core.torch_there import has_torch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_NUMBERED = ("cuda", "xpu")  # kinds of which there may be several; there is one MPS


def device_module(device: torch.device) -> Any:
    """Return torch's module for the devices of this type, such as ``torch.cuda``."""
    import torch

    return torch.get_device_module(device)


def number_device(device: torch.device | str) -> torch.device:
    """Return ``device`` with its number, as tensors on it have it: 'cuda' is the current one.

    'cpu' and 'mps' have no number.
    """
    import torch

    device = torch.device(device)
    if device.type not in _NUMBERED:
        return torch.device(device.type)
    return device if device.index is not None else torch.device(device.type, device_module(device).current_device())


def computes_bf16(device: torch.device, *, emulated: bool = True) -> bool:
    """Return whether the CUDA device has bfloat16; torch itself reports that only for the current device.

    Args:
        emulated: also count a device without arithmetic for it, which computes in float32.
    """
    import torch

    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=emulated)


def check_device(name: str | None) -> None:
    """Raise UserError if this machine has no device ``name``; None is always fine.

    LeRobot would silently take another device, and the numbers would be those of another machine.
    """
    if name is None or (name == "cpu" and not has_torch()):
        return
    if not has_torch():
        raise UserError(f"device {name}, but torch is not installed here; use cpu")
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"no device '{name}': use cpu, cuda, cuda:N or mps") from error
    if device.type == "cpu":
        return
    backend = getattr(torch, device.type, None)
    if backend is None or not backend.is_available():
        raise UserError(f"device {name}, but this machine has no {device.type} device; use cpu")
    if (device.index or 0) >= backend.device_count():
        raise UserError(f"device {name}, but there are only {backend.device_count()} {device.type} devices")


# Memory of an accelerator, by torch's functions for its type. CUDA and XPU have them all. MPS reports the memory in
# use, but neither a peak nor the free memory.

# Names a private pool of CUDA's allocator, in which a graph keeps its memory (torch.cuda.graph_pool_handle).
Pool = tuple[int, int]


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of ``device``, an accelerator, in bytes. None: torch does not report the figure for its type."""

    device: torch.device

    def allocated_bytes(self) -> int | None:
        """Return the memory of living tensors and of operators' own buffers."""
        if self.device.type == "mps":
            import torch

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
        reserved, allocated = self._query("memory_reserved"), self.allocated_bytes()
        return None if free_and_total is None else free_and_total[0] + (reserved or 0) - (allocated or 0)

    def unused_pool_bytes(self, pools: Collection[Pool]) -> int:
        """Return the memory that private ``pools`` hold and that counts as free. Only CUDA has such pools.

        Between two replays no tensor lives in a graph's pool, so `allocated` and `peak` leave it out. Yet every replay
        writes there, and nothing else can use it.
        """
        if self.device.type != "cuda" or not pools:
            return 0
        import torch

        index = number_device(self.device).index
        segments = [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == index]
        own = [segment for segment in segments if tuple(segment.get("segment_pool_id", (0, 0))) in pools]
        return sum(segment["total_size"] - segment["allocated_size"] for segment in own)

    def _query(self, name: str) -> Any:
        function = getattr(device_module(self.device), name, None)
        return None if function is None else function(self.device)


def find_device_memory(device: torch.device) -> DeviceMemory | None:
    """Return the memory of ``device``; None for the CPU, which uses the process's."""
    return None if device.type == "cpu" else DeviceMemory(device)


# States of the generators that draw random numbers: the CPU's, and an accelerator's.

# Name of a device → state of its generator.
GeneratorStates = dict[str, "Tensor"]


def generator_states(device: torch.device) -> GeneratorStates:
    """Return the states of the CPU's generator and of that of ``device``; none without torch."""
    if not has_torch():
        return {}
    import torch

    by_device = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        device = number_device(device)
        by_device[str(device)] = device_module(device).get_rng_state(device)
    return by_device


def set_generators(saved: GeneratorStates) -> None:
    """Set the generators to what `generator_states` returned."""
    for name, state in saved.items():
        import torch

        if name == "cpu":
            torch.set_rng_state(state)
        else:
            device = torch.device(name)
            device_module(device).set_rng_state(state, device)


def _every_generator() -> GeneratorStates:
    """Return the states of the CPU's generator and of those of all accelerators that this process has used.

    ``torch.manual_seed`` seeds them all.
    """
    import torch

    by_device = {"cpu": torch.get_rng_state()}
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return by_device
    module = device_module(accelerator)
    if accelerator.type == "mps":
        return generator_states(accelerator) if module.is_available() else by_device
    for index in range(module.device_count() if module.is_initialized() else 0):
        by_device |= generator_states(torch.device(accelerator.type, index))
    return by_device


@contextmanager
def generators_restored(device: torch.device) -> Iterator[None]:
    """Restore torch's generators afterwards: the CPU's, that of ``device``, those of the devices used so far."""
    saved = _every_generator() | generator_states(device) if has_torch() else {}
    try:
        yield
    finally:
        set_generators(saved)


def convolutions_in_tf32(device: torch.device) -> bool:
    """Return whether convolutions of float32 are computed in TF32 on ``device`` now. cuDNN does, by torch's default."""
    if device.type != "cuda":
        return False
    import torch

    if torch.version.hip or not torch.backends.cudnn.allow_tf32:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere and later
