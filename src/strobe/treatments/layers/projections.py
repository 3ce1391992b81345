"""Projections of one input as one matrix product: query, key and value of an attention, gate and up of an MLP.

One product over the stacked weights reads the input once and is one launch instead of three; on a small batch it also
fills the device better. The sums are the same, their order may not be.

Models call the projections one after another, and some call them from outside the attention (SmolVLA). So none of their
code is replaced: the first projection that is called computes all, and the others hand out their share where they are
given the very same tensor. One that is given another tensor (cross-attention) computes on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Layer, peel_layers, rewrap_layers
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.room import require_room
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import ANY_PHASE, Spec, Undo
from strobe.treatments.parts import named_parts

# The names of projections that get the same input, as models call them.
TOGETHER = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("to_q", "to_k", "to_v"),
    ("gate_proj", "up_proj"),
)

_MISSES = 2  # times in a row that nobody took the other shares, until a group computes separately

Call = Callable[[Tensor], Tensor]


@dataclass
class FusedProjections(Switch, key="projections"):
    """Each group's weights stacked in one tensor, which is kept for as long as the treatment lives.

    The price is a second copy of these weights. They could be views of the stack only if their own storage were given
    up, which could not be brought back when the treatment is reverted. Where gradients are recorded the projections
    run separately, because they have to reach the weights.
    """

    _groups: list[Group] = field(default_factory=list, init=False, repr=False)
    _module: nn.Module | None = field(default=None, init=False, repr=False)
    phases = ANY_PHASE

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return next(groups(subject.module), None) is not None

    def apply(self, subject: Subject) -> Undo:
        if self._module is not subject.module:
            fusable = [Group(linears) for _, linears in groups(subject.module)]
            weights = [child.weight for group in fusable for child in group.linears]
            stacks = sum(weight.nbytes for weight in weights)
            require_room(stacks, "a stack of the projections that get the same input", subject)
            self._module, self._groups = subject.module, fusable
        if not self._groups:
            raise UserError(
                f"{subject.info.name} has no projections with the same input: projections=fused changes nothing"
            )
        patches = Patches()
        try:
            fused = [group for group in self._groups if group.install(patches)]
        except BaseException:
            patches.undo()
            raise
        if not fused:
            raise UserError(
                f"{subject.info.name}: its projections are quantised, hooked or of different dtypes: they cannot fuse"
            )
        for group in fused:
            patches.register_undo(group.forget)
        return patches.undo


def computing_group(linear: nn.Linear) -> Group | None:
    """Return the group that computes ``linear`` now; None if it computes on its own."""
    return getattr(vars(linear).get("forward"), "group", None)


def groups(module: nn.Module) -> Iterator[tuple[str, list[nn.Linear]]]:
    """Paths of modules that hold projections of one size of input, with these projections."""
    for path, owner in module.named_modules():
        for names in TOGETHER:
            children = [owner._modules.get(name) for name in names]
            linears = [child for child in children if type(child) is nn.Linear]  # not LoRA's, not a quantised one
            if (
                len(linears) == len(names)
                and len({child.in_features for child in linears}) == 1
                and len({child.bias is None for child in linears}) == 1
            ):
                yield path, linears


class Group:
    """Projections of one input, and where their results wait to be fetched."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self.linears = linears
        self.sizes = [child.out_features for child in linears]
        self.weight: Tensor | None = None  # the stack, (sum of the sizes, in); none while it is spared
        self.bias: Tensor | None = None
        self.trained = False
        self.product: Call = self.together
        self.leader = -1  # the one that is called first
        self.separate = False
        self.missed = 0
        self.given: Tensor | None = None
        self.shares: list[Tensor | None] = []
        self._sources: list[Tensor] = []
        self._key: Hashable = None
        self._spared = self._wanted = False
        self._before: list[Any] = []
        self.own: list[Call] = []  # each projection's, for when it computes separately
        self._calls: list[Call] = []

    def install(self, patches: Patches) -> bool:
        """Put the group's calls in the place of its projections' ``forward``; false where they do not fit together."""
        calls = [vars(child).get("forward") for child in self.linears]
        if not self._calls or any(a is not b for a, b in zip(calls, self._before, strict=True)):
            if (layers := self._layers()) is None:
                return False
            self.product = rewrap_layers(layers, self.together)
            self._before = calls
            # Made once, so that compiled regions meet the same functions again.
            self.own = [child.forward for child in self.linears]
            self._calls = [self._call(index) for index in range(len(self.linears))]
        if not self._stack():
            return False
        for child, call in zip(self.linears, self._calls, strict=True):
            patches.put(child, "forward", call)
        return True

    def forget(self) -> None:
        """Hold on to no activations."""
        self.given, self.shares, self.missed = None, [], 0

    def together(self, input: Tensor) -> Tensor:
        """Return all projections of ``input``, side by side in the last dimension."""
        return self.times(input)

    def times(self, input: Tensor) -> Tensor:
        """`together` from the stack. Another treatment may put its own here."""
        if self.weight is None:
            self._spared, self._wanted = False, True
            self._lay()
        assert self.weight is not None
        return linear(input, self.weight, self.bias)

    def spare(self) -> None:
        """Let the stack go, as somebody else has these weights in another form, unless it turned out to be wanted."""
        if not self._wanted:
            self._spared, self.weight = True, None

    @property
    def dtype(self) -> torch.dtype:
        """That of all the projections' weights when they were put together."""
        return self._sources[0].dtype

    def _layers(self) -> Sequence[Layer] | None:
        """Return the casts and probes around the projections, if they are alike; None if something else computes."""
        layers_of_each: list[Sequence[Layer]] = []
        for child in self.linears:
            bottom, layers = peel_layers(child.forward)
            plain = getattr(bottom, "__func__", None) is nn.Linear.forward
            if not plain or child._forward_hooks or child._forward_pre_hooks:
                return None
            layers_of_each.append(layers)
        kinds = [[_kind(layer) for layer in layers if not layer.probe] for layers in layers_of_each]
        return layers_of_each[0] if all(kind == kinds[0] for kind in kinds) else None

    def _stack(self) -> bool:
        tensors = [tensor for child in self.linears for tensor in (child.weight, child.bias) if tensor is not None]
        if any(type(tensor.data) is not Tensor for tensor in tensors):
            return False
        if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
            return False
        key = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
        if key != self._key or tensors[0].dtype != self._sources[0].dtype:
            # Held, so that no other tensor comes to their addresses.
            self._key, self._sources = key, [tensor.data for tensor in tensors]
            self.weight = None
            biases = [child.bias.data for child in self.linears if child.bias is not None]
            self.bias = torch.cat(biases) if biases else None
        if self.weight is None and not self._spared:
            self._lay()
        self.trained = any(tensor.requires_grad for tensor in tensors)
        return True

    def _lay(self) -> None:
        self.weight = torch.cat([child.weight.data for child in self.linears])

    def _call(self, index: int) -> Call:
        weight = self.linears[index].weight

        def forward(input: Tensor) -> Tensor:
            if self.given is input and self.shares[index] is not None:
                return self._fetched_share(index)
            if self.separate or (self.trained and torch.is_grad_enabled()) or weight.dtype != self.dtype:
                return self.own[index](input)
            if self.leader < 0:
                self.leader = index
            if self.leader != index:
                return self.own[index](input)
            if self.given is not None:
                self.given, self.shares = None, []
                self.missed += 1
                self.separate = self.missed == _MISSES
                return self.own[index](input)
            shares: list[Tensor | None] = list(self.product(input).split(self.sizes, dim=-1))
            share, shares[index] = shares[index], None
            self.given, self.shares = input, shares
            assert share is not None
            return share

        forward.group = self  # type: ignore[attr-defined]
        return forward

    def _fetched_share(self, index: int) -> Tensor:
        share = self.shares[index]
        self.shares[index] = None
        if all(other is None for other in self.shares):
            self.given, self.shares = None, []
            if self.missed:
                self.missed = 0
        assert share is not None
        return share


def _kind(layer: Layer) -> Any:
    return getattr(layer.around, "func", layer.around)  # a cast to its own weight's dtype is the same for all


def _parts(subject: Subject, _: Spec) -> Sequence[str]:
    return named_parts(subject, [path for path, _ in groups(subject.module)])


ENTRY = FusedProjections.entry(parts=_parts)
