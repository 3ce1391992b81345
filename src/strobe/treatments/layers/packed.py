"""Weights packed: laid out once as the CPU's matrix kernels read them, not in every call.

A matrix product copies the weight as torch holds it into blocks of its own in every call: oneDNN that of 16 bits (AMX
tiles, AVX-512), MKL that of float32. Inductor packs weights once where it freezes a graph; here it is done without
compiling, by the same operators. Measured in bfloat16 with 2 cores with AMX: 50 rows, 1024 to 4096 features 0.82 →
0.55 ms, 600 rows, 2048 to 16384 features 41.6 → 25.1 ms; in float32 with 2 cores without: 2.11 → 1.68 and 134 → 121
ms, and 256 rows, 1152 to 4304 features 9.1 → 7.4 ms (packed by oneDNN 1.81, 134 and 8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from strobe.core.errors import UserError
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import peel_layers, rewrap_layers
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.room import Promised, fits, numbers, require_room
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Spec, Undo
from strobe.treatments.layers.projections import Group, computing_group
from strobe.treatments.parts import dominant, find_part, named_parts

Call = Callable[[Tensor], Tensor]

SMALLEST = 64 * 64  # numbers; below, a call costs more than its product
_AGAIN = 8  # calls in a row with other rows than those it was packed for, until it is packed for them


@dataclass
class PackedWeights(Switch, key="weights"):
    """A packed copy of the weight of each linear layer, of the whole or of the module at the path ``part``.

    Each copy is made at the layer's first call, and kept for as long as the treatment lives. Left to torch: quantised
    layers, those in other dtypes than `packable`, calls under which gradients are recorded, and in float32 those with
    another number of rows than the first.
    """

    part: str = ""
    _places: dict[int, _Place] = field(default_factory=dict, init=False, repr=False)
    _promised: Promised | None = field(default=None, init=False, repr=False)

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.value, part=self.part)

    def check_device(self, device: torch.device) -> None:
        require_packing(device)

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        dtypes, part = packable(subject.device), find_part(subject.module, self.part)
        if self._promised is None:
            needed = _bytes(part, dtypes)
            require_room(needed, "a packed copy of the weights", subject)
            self._promised = Promised(needed)
        patches = Patches()
        try:
            put = [self._install(owner, patches) for owner in _owners(part)]
        except BaseException:
            patches.undo()
            raise
        if not any(put):
            names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            what = f"'{self.part}'" if self.part else subject.info.name
            raise UserError(f"{what} has no linear layers in {names}, and only these gain from packing")
        return patches.undo

    def _install(self, owner: nn.Linear | Group, patches: Patches) -> bool:
        place = self._place(owner)
        if not isinstance(owner, Group):
            call = place.call(owner.forward)
            if call is not None:
                patches.put(owner, "forward", call)
            return call is not None
        packs = place.fits()
        if packs:
            owner.spare()
            patches.put(owner, "times", place.times)
        calls = [self._place(each).call(own) or own for each, own in zip(owner.linears, owner.own, strict=True)]
        patches.put(owner, "own", calls)
        return packs

    def _place(self, owner: nn.Linear | Group) -> _Place:
        place = self._places.get(id(owner))
        if place is None or place.owner is not owner:
            assert self._promised is not None
            place = self._places[id(owner)] = _Place(owner, self._promised)
        return place


def _owners(module: nn.Module) -> list[nn.Linear | Group]:
    return list(dict.fromkeys(computing_group(layer) or layer for layer in _layers(module)))


def _layers(module: nn.Module) -> list[nn.Linear]:
    return [child for child in module.modules() if type(child) is nn.Linear]


def _bytes(part: nn.Module, dtypes: Sequence[torch.dtype]) -> int:
    """Return the bytes of a packed copy of the weights in ``part``."""
    weights = [layer.weight.data for layer in _layers(part)]
    plain = [[weight for weight in weights if type(weight) is Tensor and weight.dtype == dtype] for dtype in dtypes]
    return sum(dtype.itemsize * numbers(held) for dtype, held in zip(dtypes, plain, strict=True))


@cache  # called for each layer, whenever the treatment is applied
def packable(device: torch.device) -> tuple[torch.dtype, ...]:
    """Return the dtypes whose products on ``device`` gain by packed weights."""
    if device.type != "cpu":
        return ()
    able = {torch.bfloat16: _multiplies_bfloat16(), torch.float32: torch.backends.mkl.is_available()}
    return tuple(dtype for dtype, there in able.items() if there)


def require_packing(device: torch.device) -> None:
    """Raise UserError if no products on ``device`` gain by packed weights."""
    _require_cpu(device, "weights=packed")
    if not packable(device):
        raise UserError("weights=packed needs torch with MKL, or with oneDNN and a CPU with AVX-512")


def require_bfloat16(device: torch.device, what: str) -> None:
    """Raise UserError if ``device`` is no CPU with oneDNN's products in bfloat16, which ``what`` is for."""
    _require_cpu(device, what)
    if not _multiplies_bfloat16():
        raise UserError(f"{what} needs torch with oneDNN, and a CPU with AVX-512")


def _require_cpu(device: torch.device, what: str) -> None:
    if device.type != "cpu":
        raise UserError(f"{what} is for CPUs: kernels on {device.type} do that by themselves")


def _multiplies_bfloat16() -> bool:
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


# A packed weight has no strides, so torch.compile cannot look at it: compiled regions know a place by its number.
_NUMBERS = count()
_PLACES: WeakValueDictionary[int, _Place] = WeakValueDictionary()


# Not torch.library.custom_op, whose own Python costs more than a small product.
_LIBRARY = torch.library.Library("strobe", "DEF")
_LIBRARY.define("packed_linear(Tensor input, int number, int columns) -> Tensor")


@torch.library.impl(_LIBRARY, "packed_linear", "CPU")
def _product(input: Tensor, number: int, columns: int) -> Tensor:
    return _PLACES[number].product(input)


@torch.library.register_fake("strobe::packed_linear", lib=_LIBRARY)
def _(input: Tensor, _number: int, columns: int) -> Tensor:
    return input.new_empty(*input.shape[:-1], columns)


class _Place:
    """A linear layer, or projections fused to one product, and the packed weight."""

    def __init__(self, owner: nn.Linear | Group, promised: Promised) -> None:
        self.owner = owner
        self._promised = promised
        self._linears = owner.linears if isinstance(owner, Group) else [owner]
        self._columns = sum(linear.out_features for linear in self._linears)
        self._number = next(_NUMBERS)
        _PLACES[self._number] = self
        self._packed: Tensor | None = None
        self._rows = 0  # that it was packed for
        self._missed = 0  # calls in a row with other rows
        self._dtype: torch.dtype | None = None
        self._shape = torch.empty(1).expand(self._columns, self._linears[0].in_features)  # holds one number
        self._sources: list[Tensor] = []  # held, so that no other weights come to their addresses
        self._key: object = None
        self._before: Any = None
        self._call: Callable[[Tensor], Tensor] | None = None

    def fits(self) -> bool:
        """Return whether the owner's weights can be packed; the packed copy of others is let go."""
        weights = [linear.weight for linear in self._linears]
        dtype = weights[0].dtype
        if any(type(weight.data) is not Tensor or weight.dtype != dtype for weight in weights):
            return False
        if dtype not in packable(weights[0].device):
            return False
        key = [(weight.data_ptr(), weight._version) for weight in weights]
        if key != self._key or dtype != self._dtype:
            self._packed, self._key, self._dtype = None, key, dtype
            self._sources = [weight.data for weight in weights]
        return sum(weight.numel() for weight in weights) >= SMALLEST

    def call(self, own: Call) -> Call | None:
        """Return ``own``, a linear layer's forward, by the packed weight; None if something else computes it."""
        if not self.fits():
            return None
        if own != self._before:  # each access makes a new bound method
            bottom, layers = peel_layers(own)
            plain = getattr(bottom, "__func__", None) is nn.Linear.forward
            self._before, self._call = own, rewrap_layers(layers, self.times) if plain else None
        return self._call

    def times(self, input: Tensor) -> Tensor:
        """Return the layer's or the group's result for ``input`` (..., in)."""
        if torch.is_grad_enabled() or input.dtype != self._dtype or torch.is_autocast_enabled("cpu"):
            return self._plain(input)
        if torch.compiler.is_dynamo_compiling():
            return torch.ops.strobe.packed_linear(input, self._number, self._columns)
        if torch.compiler.is_compiling():  # torch.export, for an engine, which packs weights by itself
            return self._plain(input)
        return self.product(input)

    def product(self, input: Tensor) -> Tensor:
        """`times` from the packed weight, which is made at the first call."""
        rows = max(1, input.numel() // input.shape[-1])
        self._missed = 0 if rows == self._rows else self._missed + 1
        if self._packed is None or (self._dtype is torch.float32 and self._missed >= _AGAIN):
            self._pack(rows)
        if self._dtype is not torch.float32:
            return torch.ops.mkldnn._linear_pointwise(input, self._packed, self.owner.bias, "none", [], "")
        # MKL allows a packed weight for the rows alone that it was packed for. Others are computed without the stack of
        # a group, which the packed copy spared.
        if rows != self._rows:
            shares = [linear(input, layer.weight, layer.bias) for layer in self._linears]
            return torch.cat(shares, -1) if len(shares) > 1 else shares[0]
        # Only the weight's shape and dtype are used here; it would be read only with other rows.
        return torch.ops.mkl._mkl_linear(input, self._packed, self._shape, self.owner.bias, rows)

    def _pack(self, rows: int) -> None:
        weight = self._sources[0] if len(self._sources) == 1 else torch.cat(self._sources)
        if self._dtype is torch.float32:
            self._packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
        else:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self._rows, self._missed = rows, 0
        self._promised.bytes = max(0, self._promised.bytes - weight.nbytes)

    def _plain(self, input: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # what is traced is no weight to keep
            weights = [linear.weight for linear in self._linears]
            return linear(input, torch.cat(weights) if len(weights) > 1 else weights[0], self.owner.bias)
        if isinstance(self.owner, Group):
            return Group.times(self.owner, input)
        return linear(input, self.owner.weight, self.owner.bias)


def _candidates(subject: Subject) -> Sequence[Spec]:
    dtypes = packable(subject.device)
    whole = _bytes(subject.module, dtypes)
    if whole and not fits(whole, subject):
        parts = [path for path, size in _costly(subject, dtypes).items() if fits(size, subject)]
        if parts:
            return [{"weights": "packed", "weights.part": path} for path in parts]
    return [{"weights": "packed"}] if whole else ()


def _costly(subject: Subject, dtypes: Sequence[torch.dtype]) -> dict[str, int]:
    """Return the costly parts that hold layers to pack, with the bytes of these."""
    sizes = {path: _bytes(find_part(subject.module, path), dtypes) for path in dominant(subject)}
    return {path: size for path, size in sizes.items() if size}


def _parts(subject: Subject, spec: Spec) -> tuple[str, ...]:
    path = spec.get("weights.part")
    return named_parts(subject, [path] if path else _costly(subject, packable(subject.device)))


ENTRY = PackedWeights.entry(
    make=lambda spec: PackedWeights(str(spec.get("weights.part", ""))),
    candidates=_candidates,
    parts=_parts,
    of_parts=0.3,  # pi0.5's vision tower 13 %, its expert 17 % in float32; all of it in bfloat16 29 %, with memory=kept
)
