"""NVTX ranges around sections, so that Nsight Systems shows the parts above the kernels that they launched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError
from strobe.core.timeline.sections import own

if TYPE_CHECKING:
    import torch


def require_ranges(device: torch.device) -> None:
    """Raise UserError where ranges cannot be pushed: on another device than CUDA, or with a torch without NVTX."""
    if device.type != "cuda":
        raise UserError(f"--nvtx needs CUDA, whose tools read the ranges, and the policy or model runs on {device}")
    import torch

    try:
        torch.cuda.nvtx.range_push("strobe")
        torch.cuda.nvtx.range_pop()
    except RuntimeError as error:  # torch's stand-in of a build without NVTX
        raise UserError(f"--nvtx needs a torch with NVTX: {error}") from None


def add_ranges(opener: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return ``opener``, a class of sections, with a range of each section's name around it.

    A thread's ranges are a stack. A section that an exception left open ends with the one around it, so each range is
    popped once, and never another one's.
    """
    import torch

    push, pop, opened = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop, defaultdict[int, list[Any]](list)

    class RangedSection(opener):  # type: ignore[misc, valid-type]
        __slots__ = ()

        # Not in ``__enter__``, which looks for the frame of the ``with`` block one call above itself.
        def __init__(self, name: str) -> None:
            super().__init__(name)
            push(name)
            opened[own.number].append(self)

        def __exit__(self, *exception: object) -> None:
            super().__exit__(*exception)
            mine = opened[own.number]
            while self in mine:
                mine.pop()
                pop()

    return RangedSection
