"""A part's call as an engine sees it: its arguments, results and key-value caches flat, as tensors and constants.

transformers' caches are objects that a model appends to in place, and a policy hands from its prefix pass to its
denoising steps. An engine knows tensors. So a cache that a part is given goes in as its keys and values; what the part
appends comes out, and is appended to the cache itself. A cache that the part makes comes out whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from transformers import cache_utils
from transformers.cache_utils import DynamicCache

from strobe.core.errors import UserError
from strobe.treatments.engines.draws import DrawnBefore

# transformers before 4.54 has caches without layers, as openpi pins it. None of them is known here then.
if TYPE_CHECKING or hasattr(cache_utils, "DynamicLayer"):
    from transformers.cache_utils import DynamicLayer
else:
    DynamicLayer = type("DynamicLayer", (), {"update": None})
Pairs = tuple[tuple[Tensor, Tensor], ...]


class Held(NamedTuple):
    """The keys and values of a cache, (B, heads, length, width) each, a pair for each layer."""

    layers: Pairs


class Appended(NamedTuple):
    """Keys and values that were appended to one of the caches that were given, each pair with its layer's number."""

    layers: tuple[tuple[int, Tensor, Tensor], ...]


@dataclass(frozen=True)
class GivenCache:
    """In the results, the place of one of the caches that were given, by its number."""

    number: int


class Played(NamedTuple):
    """Results of a part, with ``Held`` or ``GivenCache`` for caches, and what it appended to each given one."""

    value: object
    appended: tuple[Appended, ...]


def is_cache(value: object) -> TypeGuard[DynamicCache]:
    """Return whether ``value`` is a cache whose layers hold keys and values that grow, and nothing else."""
    return isinstance(value, DynamicCache) and all(_grows(layer) for layer in getattr(value, "layers", [None]))


def caches_flattened(arguments: object) -> tuple[Any, list[DynamicCache]]:
    """Return ``arguments`` with tensors in the place of caches, and these caches."""
    caches: list[DynamicCache] = []

    def flatten_cache(value: object) -> object:
        if not is_cache(value):
            return value
        caches.append(value)
        return _hold_cache(value)

    return tree_map(flatten_cache, arguments, is_leaf=is_cache), caches


def run_flattened(forward: Callable[..., object], args: Any, kwargs: Any) -> Played:
    """Call ``forward`` with arguments as `caches_flattened` returns them."""
    given: list[DynamicCache] = []
    lengths: list[list[int]] = []

    def whole(value: object) -> object:
        if not isinstance(value, Held):
            return value
        cache = _rebuild_cache(value)
        given.append(cache)
        lengths.append([keys.shape[-2] for keys, _ in value.layers])
        return cache

    args, kwargs = tree_map(whole, (args, kwargs), is_leaf=lambda value: isinstance(value, Held))
    with mock.patch.object(DynamicLayer, "update", first_keys_as_they_are):
        value = forward(*args, **kwargs)
    appended = tuple(_appended_entries(cache, before) for cache, before in zip(given, lengths, strict=True))

    def flatten_cache(value: object) -> object:
        number = next((number for number, cache in enumerate(given) if cache is value), None)
        if number is not None:
            return GivenCache(number)
        return _hold_cache(value) if is_cache(value) else value

    return Played(tree_map(flatten_cache, value, is_leaf=is_cache), appended)


def has_cache(results: Played) -> bool:
    """Return whether the part that gave ``results`` was given a cache, or made one."""
    leaves, _ = tree_flatten(results.value, is_leaf=lambda value: isinstance(value, Held))
    return bool(results.appended) or any(isinstance(leaf, Held) for leaf in leaves)


def caches_restored(results: Played, given: Sequence[DynamicCache]) -> object:
    """Append to the caches that were ``given`` what ``results`` say, and return the value with caches in it."""
    for cache, appended in zip(given, results.appended, strict=True):
        for layer, keys, values in appended.layers:
            cache.update(keys, values, layer)

    def whole(value: object) -> object:
        if isinstance(value, GivenCache):
            return given[value.number]
        return _rebuild_cache(value) if isinstance(value, Held) else value

    return tree_map(whole, results.value, is_leaf=lambda value: isinstance(value, (GivenCache, Held)))


def _grows(layer: object) -> bool:
    keys = getattr(layer, "keys", None)
    return type(layer) is DynamicLayer and isinstance(keys, Tensor) and keys.dim() == 4


def _hold_cache(cache: Any) -> Held:
    return Held(tuple((layer.keys, layer.values) for layer in cache.layers))


def _rebuild_cache(held: Held) -> DynamicCache:
    cache = DynamicCache()
    for keys, values in held.layers:
        layer = DynamicLayer()
        first_keys_as_they_are(layer, keys, values)
        cache.layers.append(layer)
    return cache


_UPDATE = DynamicLayer.update


def first_keys_as_they_are(
    layer: Any, keys: Tensor, values: Tensor, *args: object, **kwargs: object
) -> tuple[Tensor, Tensor]:
    """Do what ``DynamicLayer.update`` does, without joining the first keys to an empty tensor, which engines refuse."""
    if layer.is_initialized:
        return _UPDATE(layer, keys, values, *args, **kwargs)
    layer.keys, layer.values, layer.dtype, layer.device = keys, values, keys.dtype, keys.device
    layer.is_initialized = True
    return keys, values


def _appended_entries(cache: Any, before: Sequence[int]) -> Appended:
    pairs: list[tuple[int, Tensor, Tensor]] = []
    for number, layer in enumerate(cache.layers):
        length = before[number] if number < len(before) else 0
        if layer.keys.shape[-2] > length:
            pairs.append((number, layer.keys[..., length:, :], layer.values[..., length:, :]))
    return Appended(tuple(pairs))


# Arguments and results.

_CONSTANTS = (type(None), bool, int, float, str, torch.dtype, GivenCache)


@dataclass
class Call:
    """Arguments of a part's forward, with tensors in the place of caches, as they were and flat.

    ``leaves``: every tensor and constant in the arguments, in order; ``spec`` puts them back into ``args`` and
    ``kwargs``. ``key``: shapes, constants, and which tensors are there twice; calls of one key can share an engine.
    ``caches``: those that were given.
    """

    args: tuple[object, ...]
    kwargs: dict[str, object]
    leaves: list[object]
    spec: TreeSpec
    key: Hashable
    caches: list[DynamicCache]

    @classmethod
    def from_arguments(cls, args: tuple[object, ...], kwargs: dict[str, object], part: str) -> Call:
        """Return the call of ``part`` with these arguments. Raises UserError unless all are tensors or constants."""
        (args, kwargs), caches = caches_flattened((args, kwargs))
        leaves, spec = tree_flatten((args, kwargs))
        _require_constants(leaves, part, "takes")
        # Not the dtypes: what comes in another one is converted.
        shapes = tuple(tuple(leaf.shape) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves)
        return cls(args, kwargs, leaves, spec, (shapes, repr(spec), _numbers(leaves)), caches)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of each tensor among the leaves, in order, its place in `tensors`."""
        return _numbers(self.leaves)

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments that are tensors, in order, each once: ACT's images are in its batch under two names."""
        return list({id(leaf): leaf for leaf in self.leaves if isinstance(leaf, Tensor)}.values())

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Those of `tensors`."""
        return [tensor.dtype for tensor in self.tensors]

    def clone_tensors(self) -> Call:
        """Return the same call with tensors of its own."""
        own = {id(tensor): tensor.detach().clone() for tensor in self.tensors}
        leaves = [own.get(id(leaf), leaf) for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return Call(args, kwargs, leaves, self.spec, self.key, [])


def _numbers(leaves: Sequence[object]) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(id(leaf), len(seen)) for leaf in leaves if isinstance(leaf, Tensor))


@dataclass
class Results:
    """Results of the part in torch, from which the engine's results take their classes and dtypes."""

    leaves: list[Any]
    spec: TreeSpec
    places: list[int]  # of the tensors, each once: a last layer's states may be there under two names

    @classmethod
    def from_value(cls, value: object, part: str) -> Results:
        """Results of ``part``. Raises UserError for one that is no tensor and no constant."""
        leaves, spec = tree_flatten(value)
        _require_constants(leaves, part, "gives")
        first = {id(leaf): place for place, leaf in reversed([*enumerate(leaves)]) if isinstance(leaf, Tensor)}
        return cls(leaves, spec, sorted(first.values()))

    @property
    def tensors(self) -> list[Tensor]:
        """The results that are tensors, each once, in order."""
        return [self.leaves[place] for place in self.places]

    def fill_tensors(self, tensors: Sequence[Tensor]) -> object:
        """Return ``tensors`` in the place of the recorded ones, in their dtypes."""
        given = {id(own): new.to(own.dtype) for own, new in zip(self.tensors, tensors, strict=True)}
        return tree_unflatten([given.get(id(leaf), leaf) for leaf in self.leaves], self.spec)


class Flat(nn.Module):
    """The part as a function from tensors to tensors, floating ones as float32, which every engine takes."""

    def __init__(
        self,
        part: nn.Module,
        call: Call,
        places: Sequence[int],
        run: Callable[..., object],
        drawn: Sequence[torch.dtype] = (),
    ) -> None:
        """``run``: what is called, and computes with the weights of ``part``; ``drawn``: dtypes of what it draws."""
        super().__init__()
        self.part = part
        self._call, self._places, self._run, self._drawn = call, places, run, drawn

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        dtypes = (*self._call.dtypes, *self._drawn)
        given = [value.to(dtype) for value, dtype in zip(tensors, dtypes, strict=True)]
        numbers = iter(self._call.numbers)
        leaves = [given[next(numbers)] if isinstance(leaf, Tensor) else leaf for leaf in self._call.leaves]
        args, kwargs = tree_unflatten(leaves, self._call.spec)
        with DrawnBefore(given[len(self._call.dtypes) :]):
            results = tree_flatten(run_flattened(self._run, args, kwargs))[0]
        return tuple(cast_to_float32(results[place]) for place in self._places)


def cast_to_float32(value: Tensor) -> Tensor:
    """Return floating tensors as float32, others as they are."""
    return value.float() if value.is_floating_point() else value


def least_cosine(got: object, results: Results) -> float:
    """Least cosine between the tensors of ``got`` and of ``results``, 0 where there are NaNs.

    Tensors of zeros have no cosine and are left out.
    """
    cosines = [1.0]
    for ours, theirs in zip(Results.from_value(got, "").tensors, results.tensors, strict=True):
        a, b = ours.double().flatten(), theirs.double().flatten()
        if b.norm() > 0:
            cosines.append(float(a @ b / (a.norm() * b.norm()).clamp(min=1e-300)))
    return 0.0 if any(math.isnan(cosine) for cosine in cosines) else min(cosines)  # min() passes over a NaN


def _require_constants(leaves: Sequence[object], part: str, does: str) -> None:
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, *_CONSTANTS)):
            kind = type(leaf).__name__
            raise UserError(f"'{part}' {does} a {kind}, and an engine supports only tensors: use another part")
