"""Structures of tensors taken apart and put together again: a graph has fixed places for tensors, not for objects."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from strobe.errors import UserError
from strobe.treatments.patch import identity


class Structure:
    """A structure of tensors (lists, dictionaries, transformers' outputs and KV caches) taken apart.

    Raises UserError for an object that may hold more than is seen here.
    """

    def __init__(self, value: Any, what: str) -> None:
        leaves, self._spec = tree_flatten(value, is_leaf=is_cache)
        # A cache may be a living one, which its owner empties: what is kept is its form.
        self._leaves = [copy.copy(leaf) if is_cache(leaf) else leaf for leaf in leaves]
        self.tensors: list[Tensor] = []
        kinds: list[Hashable] = [str(self._spec)]
        for leaf in self._leaves:
            held = tensors_of(leaf)
            self.tensors += held
            if held or is_cache(leaf):
                kinds.append((type(leaf), *((tensor.shape, tensor.dtype) for tensor in held)))
            else:
                kinds.append(_constant(leaf, what))
        self.key: Hashable = tuple(kinds)

    def rebuilt(self, tensors: Sequence[Tensor]) -> Any:
        """The structure with other tensors, of the same kinds; caches are new ones."""
        left = iter(tensors)
        return tree_unflatten([_filled(leaf, left) for leaf in self._leaves], self._spec)


def is_cache(value: Any) -> bool:
    layers = getattr(value, "layers", None)
    return not isinstance(value, nn.Module) and isinstance(layers, list) and all(hasattr(one, "keys") for one in layers)


def tensors_of(leaf: Any) -> list[Tensor]:
    if isinstance(leaf, Tensor):
        return [leaf]
    if not is_cache(leaf):
        return []
    return [held for layer in leaf.layers for held in (layer.keys, layer.values) if isinstance(held, Tensor)]


def _filled(leaf: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(leaf, Tensor):
        return next(tensors)
    if not is_cache(leaf):
        return leaf
    cache = copy.copy(leaf)
    cache.layers = [copy.copy(layer) for layer in leaf.layers]
    for layer in cache.layers:
        for name in ("keys", "values"):
            if isinstance(getattr(layer, name), Tensor):
                setattr(layer, name, next(tensors))
    return cache


def _constant(leaf: Any, what: str) -> Hashable:
    if leaf is None or isinstance(leaf, bool | int | float | str | Enum | torch.dtype | torch.device):
        return (type(leaf), leaf)
    if isinstance(leaf, nn.Module):
        return id(leaf)
    if isinstance(leaf, FunctionType | MethodType):
        return identity(leaf)
    raise UserError(f"{what} holds a {type(leaf).__name__}, which cannot be captured")
