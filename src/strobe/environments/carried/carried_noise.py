"""Noise that is the same in every version of torch and on every device.

NumPy's `RandomState` is frozen: NumPy keeps its streams as they are (NEP 19). What torch draws otherwise, such as
dropout, comes from torch's own generator at the same seed.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

_PLAIN = {name: getattr(torch, name) for name in ("randn", "randn_like", "rand", "rand_like", "normal")}


@contextlib.contextmanager
def same_noise(seed: int) -> Iterator[None]:
    """Inside, torch's normal and uniform draws come from NumPy's frozen generator, begun at ``seed``."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    state = np.random.RandomState(seed % 2**32)
    drawn = {
        "randn": _shaped(state.standard_normal),
        "rand": _shaped(state.random_sample),
        "randn_like": _like(state.standard_normal),
        "rand_like": _like(state.random_sample),
        "normal": _normal(state),
    }
    for name, function in drawn.items():
        setattr(torch, name, function)
    try:
        yield
    finally:
        for name, function in _PLAIN.items():
            setattr(torch, name, function)


def _shaped(draw: Callable[[Any], Any]) -> Callable[..., torch.Tensor]:
    def function(*size: Any, dtype: Any = None, device: Any = None, **options: Any) -> torch.Tensor:
        given = options.get("size", size)
        shape = tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else tuple(given)
        made = torch.as_tensor(draw(shape)).to(device=device, dtype=dtype or torch.get_default_dtype())
        return made.requires_grad_(bool(options.get("requires_grad")))

    return function


def _like(draw: Callable[[Any], Any]) -> Callable[..., torch.Tensor]:
    def function(like: torch.Tensor, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
        return torch.as_tensor(draw(tuple(like.shape))).to(device=device or like.device, dtype=dtype or like.dtype)

    return function


def _normal(state: Any) -> Callable[..., torch.Tensor]:
    def function(mean: Any, std: Any = 1.0, size: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        tensor = next((given for given in (mean, std) if isinstance(given, torch.Tensor)), None)
        if size is None and tensor is None:
            return _PLAIN["normal"](mean, std)
        shape = tuple(size) if size is not None else tuple(tensor.shape)  # type: ignore[union-attr]
        kind = dtype or (tensor.dtype if tensor is not None else torch.get_default_dtype())
        place = device if device is not None else (tensor.device if tensor is not None else None)
        return mean + std * torch.as_tensor(state.standard_normal(shape)).to(device=place, dtype=kind)

    return function
