"""Key-value caches at an engine's border: tensors on the way in, what was appended to them on the way out.

transformers' caches are objects that a model appends to in place, and a policy hands from its prefix pass to its
denoising steps. An engine knows tensors. So a cache that a part is given goes in as its keys and values; what the part
appends comes out, and is appended to the cache itself. A cache that the part makes comes out whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map
from transformers.cache_utils import DynamicCache, DynamicLayer

Pairs = tuple[tuple[Tensor, Tensor], ...]


class Held(NamedTuple):
    """The keys and values of a cache, (B, heads, length, width) each, a pair for each layer."""

    layers: Pairs


class Appended(NamedTuple):
    """Keys and values that were appended to one of the caches that were given, each pair with its layer's number."""

    layers: tuple[tuple[int, Tensor, Tensor], ...]


@dataclass(frozen=True)
class Given:
    """In the results, the place of one of the caches that were given, by its number."""

    number: int


class Played(NamedTuple):
    """Results of a part, in which caches are ``Held`` or ``Given``, and what it appended to each that it was given."""

    value: Any
    appended: tuple[Appended, ...]


def is_cache(value: Any) -> bool:
    """Return whether ``value`` is a cache whose layers hold keys and values that grow, and nothing else."""
    return isinstance(value, DynamicCache) and all(_grows(layer) for layer in value.layers)


def taken_apart(arguments: Any) -> tuple[Any, list[DynamicCache]]:
    """Return ``arguments`` with tensors in the place of caches, and these caches."""
    found: list[DynamicCache] = []

    def apart(value: Any) -> Any:
        if not is_cache(value):
            return value
        found.append(value)
        return _held(value)

    return tree_map(apart, arguments, is_leaf=is_cache), found


def played(forward: Callable[..., Any], args: Any, kwargs: Any) -> Played:
    """Call ``forward`` with arguments that were `taken_apart`."""
    given: list[DynamicCache] = []
    lengths: list[list[int]] = []

    def whole(value: Any) -> Any:
        if not isinstance(value, Held):
            return value
        cache = _made(value)
        given.append(cache)
        lengths.append([keys.shape[-2] for keys, _ in value.layers])
        return cache

    args, kwargs = tree_map(whole, (args, kwargs), is_leaf=lambda value: isinstance(value, Held))
    with mock.patch.object(DynamicLayer, "update", _updated):
        value = forward(*args, **kwargs)
    appended = tuple(_appended(cache, before) for cache, before in zip(given, lengths, strict=True))

    def apart(value: Any) -> Any:
        number = next((number for number, cache in enumerate(given) if cache is value), None)
        if number is not None:
            return Given(number)
        return _held(value) if is_cache(value) else value

    return Played(tree_map(apart, value, is_leaf=is_cache), appended)


def has_cache(results: Played) -> bool:
    """Return whether the part that gave ``results`` was given a cache, or made one."""
    leaves, _ = tree_flatten(results.value, is_leaf=lambda value: isinstance(value, Held))
    return bool(results.appended) or any(isinstance(leaf, Held) for leaf in leaves)


def put_together(results: Played, given: Sequence[DynamicCache]) -> Any:
    """Append to the caches that were ``given`` what ``results`` say, and return the value with caches in it."""
    for cache, appended in zip(given, results.appended, strict=True):
        for layer, keys, values in appended.layers:
            cache.update(keys, values, layer)

    def whole(value: Any) -> Any:
        if isinstance(value, Given):
            return given[value.number]
        return _made(value) if isinstance(value, Held) else value

    return tree_map(whole, results.value, is_leaf=lambda value: isinstance(value, (Given, Held)))


def _grows(layer: Any) -> bool:
    keys = getattr(layer, "keys", None)
    return type(layer) is DynamicLayer and isinstance(keys, Tensor) and keys.dim() == 4


def _held(cache: Any) -> Held:
    return Held(tuple((layer.keys, layer.values) for layer in cache.layers))


def _made(held: Held) -> DynamicCache:
    cache = DynamicCache()
    for keys, values in held.layers:
        layer = DynamicLayer()
        _updated(layer, keys, values)
        cache.layers.append(layer)
    return cache


_UPDATE = DynamicLayer.update


def _updated(layer: Any, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """Do what ``DynamicLayer.update`` does, without joining the first keys to an empty tensor, which engines refuse."""
    if layer.is_initialized:
        return _UPDATE(layer, keys, values, *args, **kwargs)
    layer.keys, layer.values, layer.dtype, layer.device = keys, values, keys.dtype, keys.device
    layer.is_initialized = True
    return keys, values


def _appended(cache: Any, before: Sequence[int]) -> Appended:
    found: list[tuple[int, Tensor, Tensor]] = []
    for number, layer in enumerate(cache.layers):
        length = before[number] if number < len(before) else 0
        if layer.keys.shape[-2] > length:
            found.append((number, layer.keys[..., length:, :], layer.values[..., length:, :]))
    return Appended(tuple(found))
