"""Noise that is the same in every version of torch and on every device.

NumPy's `RandomState` is frozen: NumPy keeps its streams as they are (NEP 19). A draw depends on the seed, its shape and
how many of that shape came before, so that a draw more elsewhere changes no other one. What torch draws otherwise comes
from its own generator at the same seed. Dropout is left out of a training step: two versions draw it in another order.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

_PLAIN = {name: getattr(torch, name) for name in ("randn", "randn_like", "rand", "rand_like", "normal")}


class _Draws:
    """Arrays of random numbers by their shape."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count: Counter[str] = Counter()

    def normal(self, shape: tuple[int, ...]) -> Any:
        return self._state("normal", shape).standard_normal(shape)

    def uniform(self, shape: tuple[int, ...]) -> object:
        return self._state("uniform", shape).random_sample(shape)

    def _state(self, kind: str, shape: tuple[int, ...]) -> Any:
        name = f"{kind} {tuple(shape)}"
        self._count[name] += 1
        return np.random.RandomState(zlib.crc32(f"{self._seed} {name} {self._count[name]}".encode()))


@contextlib.contextmanager
def same_noise(seed: int) -> Iterator[None]:
    """Inside, torch's normal and uniform draws come from NumPy's frozen generator, begun at ``seed``."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    draws = _Draws(seed)
    drawn: dict[str, Any] = {
        "randn": _draw_by_shape(draws.normal),
        "rand": _draw_by_shape(draws.uniform),
        "randn_like": _draw_like_tensor(draws.normal),
        "rand_like": _draw_like_tensor(draws.uniform),
        "normal": _normal(draws),
    }
    with mock.patch.multiple(torch, **drawn):
        yield


@contextlib.contextmanager
def disable_dropout() -> Iterator[None]:
    """Inside, modules in training mode drop nothing: neither values, nor attention, nor paths."""
    attention: Any = torch.nn.functional.scaled_dot_product_attention

    def keeping(*args: object, **options: object) -> torch.Tensor:
        given = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
        return attention(*given, **{name: value for name, value in options.items() if name != "dropout_p"})

    def dropping_nothing(given: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return given

    def all_paths(self: torch.Tensor, p: float = 0.5, **_: object) -> torch.Tensor:
        return self.fill_(p)  # by which they are divided afterwards

    functional: dict[str, Any] = {"dropout": dropping_nothing, "scaled_dot_product_attention": keeping}
    with (
        mock.patch.multiple(torch.nn.functional, **functional),
        mock.patch.object(torch.Tensor, "bernoulli_", all_paths),
    ):
        yield


def _draw_by_shape(draw: Callable[[Any], object]) -> Callable[..., torch.Tensor]:
    def function(*size: Any, dtype: Any = None, device: Any = None, **options: Any) -> torch.Tensor:
        given = options.get("size", size)
        shape = tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else tuple(given)
        made = torch.as_tensor(draw(shape)).to(device=device, dtype=dtype or torch.get_default_dtype())
        return made.requires_grad_(bool(options.get("requires_grad")))

    return function


def _draw_like_tensor(draw: Callable[[Any], object]) -> Callable[..., torch.Tensor]:
    def function(like: torch.Tensor, dtype: Any = None, device: Any = None, **_: object) -> torch.Tensor:
        return torch.as_tensor(draw(tuple(like.shape))).to(device=device or like.device, dtype=dtype or like.dtype)

    return function


def _normal(draws: _Draws) -> Callable[..., torch.Tensor]:
    def function(mean: Any, std: Any = 1.0, size: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        tensor = next((given for given in (mean, std) if isinstance(given, torch.Tensor)), None)
        if size is None and tensor is None:
            return _PLAIN["normal"](mean, std)
        shape = tuple(size) if size is not None else tuple(tensor.shape)  # type: ignore[union-attr]
        kind = dtype or (tensor.dtype if tensor is not None else torch.get_default_dtype())
        place = device if device is not None else (tensor.device if tensor is not None else None)
        return mean + std * torch.as_tensor(draws.normal(shape)).to(device=place, dtype=kind)

    return function
