"""Which accelerator a name means."""

from __future__ import annotations

from typing import Any

import torch

_NUMBERED = ("cuda", "xpu")  # of these there may be several; there is one MPS


def module_of(device: torch.device) -> Any:
    """Return torch's module for the devices of this type, such as ``torch.cuda``."""
    return torch.get_device_module(device)


def numbered(device: torch.device | str) -> torch.device:
    """Return ``device`` with its number, as tensors on it have it: 'cuda' is the current one. 'cpu' and 'mps' have
    none."""
    device = torch.device(device)
    if device.type not in _NUMBERED:
        return torch.device(device.type)
    return device if device.index is not None else torch.device(device.type, module_of(device).current_device())


def computes_bf16(device: torch.device, *, emulated: bool = True) -> bool:
    """Whether the CUDA device has bfloat16; torch itself only tells that of the current device.

    Args:
        emulated: count a device that has no arithmetic for it, and computes in float32.
    """
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=emulated)
