"""Noise of one's own: random numbers of this thread from generators that nothing else draws from.

torch's generators belong to the whole process. A policy that is run beside another one would take numbers from it, and
the program's next action would be another.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strobe.devices.which import numbered

# Operators that older versions of torch give no generator: what fills an empty tensor to the same bits.
_FILLED = {"aten::randn_like": "normal_", "aten::rand_like": "uniform_"}


class OwnNoise(TorchDispatchMode):
    """Inside, on this thread, random numbers come from generators that start in ``states``.

    The numbers are those that the process's generators would give from there.

    Args:
        states: name of a device → state of its generator (`strobe.devices.random_state.states`). A device that is not
            among them draws from the process's generator.
    """

    def __init__(self, states: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}
        for name, state in states.items():
            generator = torch.Generator(torch.device(name))
            generator.set_state(state)
            self._generators[torch.device(name)] = generator

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if not _random(func):
            return func(*args, **named)
        given = named.get("generator")
        generator = self._generators.get(_device(args, named)) if given is None else None
        if generator is None:
            return func(*args, **named)
        if "generator" in _arguments(func):
            at = _arguments(func).index("generator")
            if at < len(args):
                return func(*args[:at], generator, *args[at + 1 :], **named)
            return func(*args, **{**named, "generator": generator})
        other = _with_generator(func)
        if other is not None:
            return other(*args, **named, generator=generator)
        filled = _FILLED.get(func._schema.name)
        if filled is None:
            raise NotImplementedError(f"{func} draws random numbers and takes no generator")
        return getattr(torch.empty_like(*args, **named), filled)(generator=generator)


@functools.cache
def _random(func: Any) -> bool:
    # Attention and dropout are among them for the sake of training: a policy that acts drops nothing out.
    names = [func._schema.name, *_arguments(func)]
    return torch.Tag.nondeterministic_seeded in func.tags and not any("dropout" in name for name in names)


@functools.cache
def _arguments(func: Any) -> list[str]:
    return [argument.name for argument in func._schema.arguments]


@functools.cache
def _with_generator(func: Any) -> Any:
    """Return the overload of ``func`` that takes its arguments and a generator as well; None where there is none."""
    wanted = sorted([*_arguments(func), "generator"])
    for name in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, name)
        types = {argument.name: str(argument.type) for argument in func._schema.arguments}
        alike = all(types.get(argument.name, "") in ("", str(argument.type)) for argument in other._schema.arguments)
        if sorted(_arguments(other)) == wanted and alike:
            return other
    return None


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    device = kwargs.get("device")
    if device is None:
        device = next((leaf.device for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)), None)
    if device is None:
        device = torch.get_default_device()
    return numbered(device)
