"""What is torch's and what is not, without importing torch: functions of NumPy and JAX run where it is not installed.

A value can only be a tensor or a module once torch was imported, so these look at what was.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn
    from typing_extensions import TypeIs


def has_torch() -> bool:
    """Return whether torch is installed."""
    try:
        return "torch" in sys.modules or find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def is_tensor(value: object) -> TypeIs[Tensor]:
    """Return whether ``value`` is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_module(value: object) -> TypeIs[nn.Module]:
    """Return whether ``value`` is a module of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


@dataclass(frozen=True)
class Processor:
    """The CPU as a device, where torch is not installed."""

    type: str = "cpu"
    index: int | None = None

    def __str__(self) -> str:
        return self.type
