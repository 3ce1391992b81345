"""States of the generators that draw random numbers: the CPU's, and an accelerator's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from strobe.devices.which import module_of, numbered

# Name of a device → state of its generator.
States = dict[str, Tensor]


def states(device: torch.device) -> States:
    """Return the states of the CPU's generator and of that of ``device``."""
    by_device = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        device = numbered(device)
        by_device[str(device)] = module_of(device).get_rng_state(device)
    return by_device


def set_states(saved: States) -> None:
    """Set the generators to what `states` returned."""
    for name, state in saved.items():
        if name == "cpu":
            torch.set_rng_state(state)
        else:
            device = torch.device(name)
            module_of(device).set_rng_state(state, device)


def every() -> States:
    """Return the states of the CPU's generator and of those of all accelerators that this process has used.

    ``torch.manual_seed`` seeds them all.
    """
    by_device = {"cpu": torch.get_rng_state()}
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return by_device
    module = module_of(accelerator)
    if accelerator.type == "mps":
        return states(accelerator) if module.is_available() else by_device
    for index in range(module.device_count() if module.is_initialized() else 0):
        by_device |= states(torch.device(accelerator.type, index))
    return by_device


@contextmanager
def put_back(device: torch.device) -> Iterator[None]:
    """Restore all generators afterwards: the CPU's, that of ``device``, and those of the devices used so far."""
    saved = every() | states(device)
    try:
        yield
    finally:
        set_states(saved)
