"""Channels last: images, and the weights of 2-D and 3-D convolutions, with the channels innermost in memory.

Where its input is in the other format, a convolution works in the format of its weights. So whatever a policy does to
its images before they get there costs a conversion and nothing else. Convolution libraries have their fastest kernels
for channels last on tensor cores and on CPUs with wide vectors; elsewhere it makes no difference, or costs conversions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Parts
from strobe.core.subjects.subject import ActingSubject, Subject
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import ANY_PHASE, Spec, Undo

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d  # of four dimensions, and of five


@dataclass
class ChannelsLast(Switch, key="channels_last"):
    """``.data`` of convolution weights, and of the optimizer's state, in another memory format.

    Both formats are kept, so that captured graphs find the weights where they left them. What a step changed in one is
    copied to the other when the treatment is reverted: the values are the same to the bit.
    """

    _pairs: dict[int, _Pair] = field(default_factory=dict, init=False, repr=False)
    phases = ANY_PHASE

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        # A single convolution is a transformer's patch embedding, too little to try.
        return len(_convolutions(subject.module)) > 1

    def apply(self, subject: Subject) -> Undo:
        weights = _convolutions(subject.module)
        if not weights:
            raise UserError(f"{subject.info.name} has no 2-D or 3-D convolution: channels_last changes nothing")
        tensors = list(weights)
        if isinstance(subject, ActingSubject):
            tensors += _moments(subject, weights)
        pairs = [self._pair(tensor) for tensor in tensors]
        for pair in pairs:
            pair.to_last()
        before = None
        if isinstance(subject, ActingSubject):
            before, subject.training.image_format = subject.training.image_format, LAST

        def undo() -> None:
            if isinstance(subject, ActingSubject):
                subject.training.image_format = before
                known = {id(pair.tensor) for pair in pairs}
                for moment in _moments(subject, weights):
                    if id(moment) not in known:  # made by a first step in between, in the format of its weight
                        moment.data = moment.data.contiguous()
            for pair in pairs:
                pair.to_own()

        return undo

    def _pair(self, tensor: Tensor) -> _Pair:
        pair = self._pairs.get(id(tensor))
        if pair is None or pair.tensor is not tensor:
            pair = self._pairs[id(tensor)] = _Pair(tensor)
        return pair


@dataclass(eq=False)
class _Pair:
    """A tensor's own storage, and one of the same values with the channels last."""

    tensor: Tensor

    def __post_init__(self) -> None:
        self._own = self.tensor.data
        self._last = self._to_channels_last()

    def _to_channels_last(self) -> Tensor:
        return self._own.clone(memory_format=LAST if self._own.dim() == 4 else LAST_3D)

    def to_last(self) -> None:
        self._own = self.tensor.data
        if (self._last.dtype, self._last.device) != (self._own.dtype, self._own.device):
            self._last = self._to_channels_last()
        self._last.copy_(self._own)
        self.tensor.data = self._last

    def to_own(self) -> None:
        self._own.copy_(self._last)
        self.tensor.data = self._own


def _convolutions(module: nn.Module) -> list[Tensor]:
    weights = [child.weight for child in module.modules() if isinstance(child, nn.Conv2d | nn.Conv3d)]
    return list({id(weight): weight for weight in weights}.values())


def _moments(subject: ActingSubject, weights: list[Tensor]) -> list[Tensor]:
    """Return the tensors of a weight's shape that the optimizer keeps for it; none before the optimizer exists."""
    if not subject.training.has_begun:
        return []
    state = subject.training.optimizer.state
    return [
        moment
        for weight in weights
        for moment in state.get(weight, {}).values()
        if isinstance(moment, Tensor) and moment.shape == weight.shape
    ]


def _parts(subject: Subject, _: Spec) -> tuple[str, ...]:
    modules, weights = dict(subject.module.named_modules()), set(map(id, _convolutions(subject.module)))
    parts: list[str] = []
    for name, path in Parts.from_family(subject.family).seeing.items():
        inside = {id(weight) for weight in _convolutions(modules[path])} if path in modules else set[int]()
        parts += [name] if inside else []
        weights -= inside
    return () if weights else tuple(parts)


ENTRY = ChannelsLast.entry(parts=_parts)
