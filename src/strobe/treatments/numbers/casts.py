"""Wrappers of a policy's modules in another precision: casts where weights meet data, and the same noise.

Models cast on their own in places (pi0.5 goes back to float32 before its last projection), and neighbours disagree
("mat1 and mat2 must have the same dtype, but got Half and BFloat16"). A wrapper around ``forward`` brings what a module
is given to the dtype of its weights, also where ``.forward`` is called directly.

They are plain closures for the same reason as probes are, and cost a fraction of a microsecond where nothing is cast.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode
from torch.utils._pytree import tree_map

from strobe.treatments.graphs.host_work import Stepping, stepped_aside

Call = Callable[..., Any]

# Modules that refuse data of another dtype than their weights; others, norms above all, take both on purpose.
STRICT = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)


def to_weights(inner: Call, weight: Tensor) -> Call:
    """Return ``inner`` of a module that holds ``weight``: every floating tensor it is given is cast to its dtype."""

    def forward(*args: object, **kwargs: object) -> object:
        dtype = weight.dtype  # as it is now: treatments of several parts may be on
        return inner(*[_cast(a, dtype, 0) for a in args], **{k: _cast(v, dtype, 0) for k, v in kwargs.items()})

    return forward


def wrap_container(inner: Call, dtype: torch.dtype) -> Call:
    """Return ``inner`` of a module whose weights are its children's.

    What has one dimension stays: timesteps are turned into angles first, which needs their bits. A mask is kept clear
    of the dtype's least number, so that adding it to a score does not overflow.
    """
    low = torch.finfo(dtype).min / 2

    def one(name: str, value: object) -> object:
        if name.endswith("mask") and isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype:
            value = value.clamp(min=low)
        return _cast(value, dtype, 2)

    def forward(*args: object, **kwargs: object) -> object:
        return inner(*[_cast(a, dtype, 2) for a in args], **{k: one(k, v) for k, v in kwargs.items()})

    return forward


class Border:
    """Around a part, wherever it is entered: some models call a part's layers and never the part itself."""

    def __init__(self, inside: torch.dtype) -> None:
        self.inside = self.outside = inside
        self._entered = False

    def wrap_call(self, inner: Call) -> Call:
        """Return ``inner``: on the way in key-value caches are cast, on the way out all it returns."""

        def forward(*args: object, **kwargs: object) -> object:
            if self._entered:
                return inner(*args, **kwargs)
            self._entered = True
            try:
                for value in (*args, *kwargs.values()):
                    _cast_cache(value, self.inside)
                return _leaving(inner(*args, **kwargs), self.outside)
            finally:
                self._entered = False

        return forward


def returning(inner: Call, dtype: torch.dtype) -> Call:
    """Return ``inner`` with every floating tensor that it returns cast to ``dtype``."""

    def call(*args: object, **kwargs: object) -> object:
        return _leaving(inner(*args, **kwargs), dtype)

    return call


def _cast(value: Any, dtype: torch.dtype, dimensions: int) -> object:
    if isinstance(value, Tensor):
        if value.dtype is dtype or not value.is_floating_point() or value.dim() < dimensions:
            return value
        return value.to(dtype)
    if type(value) in (tuple, list):  # position embeddings come in pairs
        return type(value)(_cast(item, dtype, dimensions) for item in value)
    return value


def _leaving(value: object, dtype: torch.dtype) -> object:
    def one(leaf: object) -> object:
        if isinstance(leaf, Tensor):
            return leaf.to(dtype) if leaf.is_floating_point() else leaf
        _cast_cache(leaf, dtype)
        return leaf

    return tree_map(one, value)


def _cast_cache(value: object, dtype: torch.dtype) -> None:
    # transformers' caches are filled in place and handed from part to part.
    layers = getattr(value, "layers", None)
    if isinstance(value, nn.Module) or not isinstance(layers, Sequence):
        return
    for layer in layers:
        for name in ("keys", "values"):
            held = getattr(layer, name, None)
            if isinstance(held, Tensor) and held.is_floating_point() and held.dtype != dtype:
                setattr(layer, name, held.to(dtype))


# The same noise in every precision. A policy that draws noise in its weights' dtype (Diffusion) would be given other
# noise in 16 bits, because torch's CPU generator uses other bits for each dtype, and the actions could not be compared.
# So such noise is drawn in float32 and rounded, by a mode of torch's function overrides that is in force on this thread
# and inside the policy's own calls only: whoever else draws in the process draws as ever.
#
# Under a mode every function of torch costs a microsecond more. So what was seen to draw no such noise runs without it:
# the networks of a policy whose loop draws, and all of one that draws in float32.

_DRAWING = {torch.randn, torch.randn_like, torch.rand, torch.rand_like}


class SameNoise(Stepping):
    """The mode of one policy, with what is known of its modules."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn = 0
        self._draws: dict[Hashable, bool] = {}  # what was called, and how → whether it drew noise in 16 bits

    def entry(self, inner: Call, name: str) -> Call:
        """Return ``inner``, a method by which the policy is called: inside it the mode is in force."""

        def call(*args: object, **kwargs: object) -> object:
            key = (name, len(args), *kwargs)
            if torch.compiler.is_compiling() or self._is_active() or self._draws.get(key) is False:
                return inner(*args, **kwargs)
            with self:
                return self._record_draws(key, inner, args, kwargs)

        return call

    def wrap_forward(self, inner: Call, module: Any) -> Call:
        """Return the forward pass ``inner`` of a module, without the mode if it was seen to draw nothing."""

        def forward(*args: object, **kwargs: object) -> object:
            if torch.compiler.is_compiling() or not self._is_active():
                return inner(*args, **kwargs)
            key = (id(module), module.training, len(args), *kwargs)
            if self._draws.get(key) is False:
                with stepped_aside():
                    return inner(*args, **kwargs)
            return self._record_draws(key, inner, args, kwargs)

        return forward

    def _is_active(self) -> bool:
        return _get_current_function_mode() is self

    def _record_draws(self, key: Hashable, inner: Call, args: Sequence[object], kwargs: dict[str, object]) -> object:
        before = self._drawn
        made = inner(*args, **kwargs)
        self._draws[key] = self._drawn > before or self._draws.get(key, False)
        return made

    def __torch_function__(
        self, func: Call, types: Sequence[type], args: Sequence[object] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _DRAWING:
            return func(*args, **kwargs)
        like = args[0] if args and isinstance(args[0], Tensor) else kwargs.get("input")
        wanted = kwargs.get("dtype") or getattr(like, "dtype", None)
        if wanted not in (torch.bfloat16, torch.float16):
            return func(*args, **kwargs)
        self._drawn += 1
        return func(*args, **{**kwargs, "dtype": torch.float32}).to(wanted)
