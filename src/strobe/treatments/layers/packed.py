"""Weights packed: laid out once as the CPU's matrix kernels read them, and not anew in every call.

oneDNN multiplies 16-bit matrices in blocks (AMX tiles, AVX-512), and every call of a linear layer copies the weight as
torch holds it into such blocks. Inductor packs weights once where it freezes a graph; here it is done without
compiling, by the same operators. Measured with 2 cores with AMX, bfloat16: 50 rows, 1024 to 4096 features 0.82 → 0.55
ms, 600 rows, 2048 to 16384 features 41.6 → 25.1 ms. float32 gains nothing, and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from strobe.errors import UserError
from strobe.subjects.subject import Subject
from strobe.timeline.layers import peeled, within
from strobe.treatments.layers.projections import Group, group_of
from strobe.treatments.patch import Patches
from strobe.treatments.room import numbers, require_room
from strobe.treatments.treatment import FOR_INFERENCE, STRUCTURE, Effect, Entry, Spec, Treatment, Undo

Call = Callable[[Tensor], Tensor]

SMALLEST = 64 * 64  # numbers; below, a call costs more than its product


@dataclass
class PackedWeights(Treatment):
    """A packed copy of the weight of each linear layer in bfloat16, made at the layer's first call.

    Left to torch: layers in other dtypes, quantised ones, and calls under which gradients are recorded. The copies are
    kept for as long as the treatment lives.
    """

    effect: Effect = "rounding"  # sums are taken in another order
    _places: dict[int, _Place] = field(default_factory=dict, init=False, repr=False)
    _fits: bool = field(default=False, init=False, repr=False)
    key = "weights"
    phases = FOR_INFERENCE
    dtypes = ("bfloat16",)
    copies_weights = True

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"weights": "packed"}

    def apply(self, subject: Subject) -> Undo:
        require_packing(subject.device)
        if not self._fits:
            weights = [layer.weight.data for layer in _layers(subject.module)]
            narrow = [one for one in weights if type(one) is Tensor and one.dtype == torch.bfloat16]
            require_room(2 * numbers(narrow), "a packed copy of the weights", subject)
            self._fits = True
        patches = Patches()
        try:
            put = [self._put(owner, patches) for owner in _owners(subject.module)]
        except BaseException:
            patches.undo()
            raise
        if not any(put):
            raise UserError(
                f"{subject.info.name} has no linear layers in bfloat16, and only those gain by being packed: add "
                "precision=bf16"
            )
        return patches.undo

    def _put(self, owner: nn.Linear | Group, patches: Patches) -> bool:
        """Whether ``owner`` runs packed now."""
        place = self._place(owner)
        if not isinstance(owner, Group):
            call = place.call(owner.forward)
            if call is not None:
                patches.put(owner, "forward", call)
            return call is not None
        fits = place.fits()
        if fits:
            owner.spare()
            patches.put(owner, "times", place.times)
        calls = [self._place(each).call(own) or own for each, own in zip(owner.linears, owner.own, strict=True)]
        patches.put(owner, "own", calls)
        return fits

    def _place(self, owner: nn.Linear | Group) -> _Place:
        place = self._places.get(id(owner))
        if place is None or place.owner is not owner:
            place = self._places[id(owner)] = _Place(owner)
        return place


def _owners(module: nn.Module) -> list[nn.Linear | Group]:
    """The linear layers of ``module``; in the place of those whose projections are fused, their group."""
    return list(dict.fromkeys(group_of(layer) or layer for layer in _layers(module)))


def _layers(module: nn.Module) -> list[nn.Linear]:
    return [child for child in module.modules() if type(child) is nn.Linear]


def require_packing(device: torch.device) -> None:
    """Raises UserError where ``device`` has no kernels that want packed weights."""
    require_bfloat16(device, "weights=packed")


def require_bfloat16(device: torch.device, what: str) -> None:
    """Raises UserError where ``device`` is no CPU with oneDNN's products in bfloat16, which ``what`` is for."""
    if device.type != "cpu":
        raise UserError(f"{what} is for CPUs: on {device.type} kernels do that by themselves")
    if not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        raise UserError(f"{what} needs torch with oneDNN, and a CPU with AVX-512")


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

    def __init__(self, owner: nn.Linear | Group) -> None:
        self.owner = owner
        self._linears = owner.linears if isinstance(owner, Group) else [owner]
        self._columns = sum(linear.out_features for linear in self._linears)
        self._number = next(_NUMBERS)
        _PLACES[self._number] = self
        self._packed: Tensor | None = None
        self._sources: list[Tensor] = []  # held, so that no other weights come to their addresses
        self._key: Any = None
        self._before: Any = None
        self._call: Callable[[Tensor], Tensor] | None = None

    def fits(self) -> bool:
        """Whether the owner's weights can be packed; the packed copy of others is let go."""
        weights = [linear.weight for linear in self._linears]
        if any(type(weight.data) is not Tensor or weight.dtype != torch.bfloat16 for weight in weights):
            return False
        key = [(weight.data_ptr(), weight._version) for weight in weights]
        if key != self._key:
            self._packed, self._key, self._sources = None, key, [weight.data for weight in weights]
        return sum(weight.numel() for weight in weights) >= SMALLEST

    def call(self, own: Call) -> Call | None:
        """``own``, a linear layer's forward, by the packed weight; None where something else computes it."""
        if not self.fits():
            return None
        if own != self._before:  # bound methods are made anew each time they are asked for
            bottom, layers = peeled(own)
            plain = getattr(bottom, "__func__", None) is nn.Linear.forward
            self._before, self._call = own, within(layers, self.times) if plain else None
        return self._call

    def times(self, input: Tensor) -> Tensor:
        """The layer's or the group's result for ``input`` (..., in)."""
        if torch.is_grad_enabled() or input.dtype != torch.bfloat16:
            return self._plain(input)
        if torch.compiler.is_dynamo_compiling():
            return torch.ops.strobe.packed_linear(input, self._number, self._columns)
        if torch.compiler.is_compiling():  # torch.export, for an engine, which packs weights by itself
            return self._plain(input)
        return self.product(input)

    def product(self, input: Tensor) -> Tensor:
        """`times` from the packed weight, which is made at the first call."""
        if self._packed is None:
            rows = max(1, input.numel() // input.shape[-1])
            weight = self._sources[0] if len(self._sources) == 1 else torch.cat(self._sources)
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        return torch.ops.mkldnn._linear_pointwise(input, self._packed, self.owner.bias, "none", [], "")

    def _plain(self, input: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # what is traced is no weight to keep
            weights = [linear.weight for linear in self._linears]
            return linear(input, torch.cat(weights) if len(weights) > 1 else weights[0], self.owner.bias)
        if isinstance(self.owner, Group):
            return Group.times(self.owner, input)
        return linear(input, self.owner.weight, self.owner.bias)


def _make(spec: Spec) -> PackedWeights:
    if spec["weights"] != "packed":
        raise UserError(f"weights={spec['weights']}: write weights=packed")
    return PackedWeights()


def _candidates(subject: Subject) -> Sequence[Spec]:
    try:
        require_packing(subject.device)
    except UserError:
        return ()
    return [{"weights": "packed"}] if _layers(subject.module) else []


ENTRY = Entry(
    "weights",
    "packed: linear layers in bfloat16 keep their weights as the CPU's matrix kernels read them (CPU, AVX-512)",
    "rounding",
    STRUCTURE + 1,  # after projections are fused: what they compute together is packed together
    _make,
    candidates=_candidates,
)
