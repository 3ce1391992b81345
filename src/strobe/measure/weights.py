"""Bytes of the weights that each part holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from strobe.timeline.probe import Hook


def weight_bytes(*modules: nn.Module) -> int:
    """Parameters and buffers below ``modules``, as they are now; shared ones count once."""
    tensors = {id(tensor): tensor for module in modules for tensor in chain(module.parameters(), module.buffers())}
    return sum(map(_bytes, tensors.values()))


def _bytes(tensor: Tensor) -> int:
    # Quantised weights say that they are of the dtype they stand for; what they hold is inside.
    if is_traceable_wrapper_subclass(tensor):
        return sum(_bytes(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return tensor.numel() * tensor.element_size()


class Weights:
    """The weights of the modules that probes are on, in the dtypes that they have when this is made."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._owners: dict[str, list[nn.Module]] = {}
        self._others: set[str] = set()  # names that stand for a method or a function, at least in one place
        for hook in hooks:
            if isinstance(hook.owner, nn.Module) and hook.attribute == "forward":
                self._owners.setdefault(hook.name, []).append(hook.owner)
            else:
                self._others.add(hook.name)
        owners = {id(owner): owner for named in self._owners.values() for owner in named}
        self._bytes = {key: weight_bytes(owner) for key, owner in owners.items()}

    def of(self, path: Sequence[str]) -> int | None:
        """Bytes below the part's module; None for a method, a function, or what could be one of several modules.

        Parts of one name (the attention of every block) are distinguished by the modules that they are in.
        """
        owner = self._owner(path)
        return None if owner is None else self._bytes[id(owner)]

    def _owner(self, path: Sequence[str]) -> nn.Module | None:
        if not path or path[-1] in self._others:
            return None
        named = {id(owner): owner for owner in self._owners.get(path[-1], [])}
        for depth in range(len(path) - 1, 0, -1):
            if len(named) <= 1:
                break
            if (around := self._owner(path[:depth])) is not None:
                inside = set(map(id, around.modules()))
                named = {key: owner for key, owner in named.items() if key in inside}
        return next(iter(named.values())) if len(named) == 1 else None
