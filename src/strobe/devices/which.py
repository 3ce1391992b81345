"""Find the accelerator that a name means, and check that this machine has it."""

from __future__ import annotations

from typing import Any

import torch

from strobe.errors import UserError

_NUMBERED = ("cuda", "xpu")  # of these there may be several; there is one MPS


def module_of(device: torch.device) -> Any:
    """Return torch's module for the devices of this type, such as ``torch.cuda``."""
    return torch.get_device_module(device)


def numbered(device: torch.device | str) -> torch.device:
    """Return ``device`` with its number, as tensors on it have it: 'cuda' is the current one.

    'cpu' and 'mps' have no number.
    """
    device = torch.device(device)
    if device.type not in _NUMBERED:
        return torch.device(device.type)
    return device if device.index is not None else torch.device(device.type, module_of(device).current_device())


def computes_bf16(device: torch.device, *, emulated: bool = True) -> bool:
    """Return whether the CUDA device has bfloat16; torch itself reports that only for the current device.

    Args:
        emulated: also count a device without arithmetic for it, which computes in float32.
    """
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=emulated)


def check_device(name: str | None) -> None:
    """Raise UserError if this machine has no device ``name``; None is always fine.

    LeRobot would silently take another device, and the numbers would be those of another machine.
    """
    if name is None:
        return
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
