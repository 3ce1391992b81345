"""A part's call as an engine sees it: its arguments and results flat, as tensors and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from transformers.cache_utils import DynamicCache

from strobe.errors import UserError
from strobe.treatments.engines.caches import Given, played, taken_apart

_CONSTANTS = (type(None), bool, int, float, str, torch.dtype, Given)


@dataclass
class Call:
    """Arguments of a part's forward, with tensors in the place of caches, as they were and flat.

    ``leaves``: every tensor and constant in the arguments, in order; ``spec`` puts them back into ``args`` and
    ``kwargs``. ``key``: shapes and constants; calls of one key can share an engine. ``caches``: those that were given.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    spec: TreeSpec
    key: Any
    caches: list[DynamicCache]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any], part: str) -> Call:
        """The call of ``part`` with these arguments. Raises UserError for one that is no tensor and no constant."""
        (args, kwargs), caches = taken_apart((args, kwargs))
        leaves, spec = tree_flatten((args, kwargs))
        _require_constants(leaves, part, "takes")
        # Not the dtypes: what comes in another one is converted.
        key = (tuple(tuple(leaf.shape) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves), repr(spec))
        return cls(args, kwargs, leaves, spec, key, caches)

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments that are tensors, in order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Those of `tensors`."""
        return [tensor.dtype for tensor in self.tensors]

    def copied(self) -> Call:
        """The same call with tensors of its own."""
        leaves = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return Call(args, kwargs, leaves, self.spec, self.key, [])


@dataclass
class Results:
    """Results of the part in torch, from which the engine's results take their classes and dtypes."""

    leaves: list[Any]
    spec: TreeSpec
    places: list[int]  # of the tensors, each once: a last layer's states may be there under two names

    @classmethod
    def of(cls, value: Any, part: str) -> Results:
        """Results of ``part``. Raises UserError for one that is no tensor and no constant."""
        leaves, spec = tree_flatten(value)
        _require_constants(leaves, part, "gives")
        first = {id(leaf): place for place, leaf in reversed([*enumerate(leaves)]) if isinstance(leaf, Tensor)}
        return cls(leaves, spec, sorted(first.values()))

    @property
    def tensors(self) -> list[Tensor]:
        """The results that are tensors, each once, in order."""
        return [self.leaves[place] for place in self.places]

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """``tensors`` in the place of the recorded ones, in their dtypes."""
        given = {id(own): new.to(own.dtype) for own, new in zip(self.tensors, tensors, strict=True)}
        return tree_unflatten([given.get(id(leaf), leaf) for leaf in self.leaves], self.spec)


class Flat(nn.Module):
    """The part as a function from tensors to tensors, floating ones as float32, which every engine takes."""

    def __init__(self, part: nn.Module, call: Call, places: Sequence[int]) -> None:
        super().__init__()
        self.part = part
        self._call, self._places = call, places

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter([value.to(dtype) for value, dtype in zip(tensors, self._call.dtypes, strict=True)])
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self._call.leaves]
        args, kwargs = tree_unflatten(leaves, self._call.spec)
        results = tree_flatten(played(self.part, args, kwargs))[0]
        return tuple(as_float32(results[place]) for place in self._places)


def as_float32(value: Tensor) -> Tensor:
    """Return floating tensors as float32, others as they are."""
    return value.float() if value.is_floating_point() else value


def least_cosine(got: Any, results: Results) -> float:
    """Least cosine between the tensors of ``got`` and of ``results``, 0 where there are NaNs.

    Tensors of zeros have no cosine and are left out.
    """
    cosines = [1.0]
    for ours, theirs in zip(Results.of(got, "").tensors, results.tensors, strict=True):
        a, b = ours.double().flatten(), theirs.double().flatten()
        if b.norm() > 0:
            cosines.append(float(a @ b / (a.norm() * b.norm()).clamp(min=1e-300)))
    return 0.0 if any(math.isnan(cosine) for cosine in cosines) else min(cosines)  # min() passes over a NaN


def _require_constants(leaves: Sequence[Any], part: str, does: str) -> None:
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, *_CONSTANTS)):
            kind = type(leaf).__name__
            raise UserError(f"'{part}' {does} a {kind}, and an engine knows tensors only: take a part without it")
