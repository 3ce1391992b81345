"""A CUDA graph played on the CPU: the operators of a capture are kept, and replayed on the tensors they had.

No Python runs in a replay, as none does on a card. So a value that a treatment kept from a warm-up, a mask of another
prompt, a copy that was not captured: all come out wrong. What would wait for the device in a capture raises, and so
does a replay that reads memory which was freed since: a graph knows addresses, and keeps nothing alive.

A graph holds work of its device alone. A tensor of another device is a number that was read once, in the capture.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from strobe.core.devices.accelerators import Pool
from strobe.core.timeline.layers import Call
from strobe.treatments.graphs.graph import Run

# Operators that read a number of the device on the host, which no capture allows.
_WAITS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal", "aten::is_nonzero"}


class Replayed:
    """A `Capture`: ``recorded`` counts the captures, ``operators`` those of the last one."""

    def __init__(self, warmups: int = 3) -> None:
        self.warmups = warmups
        self.recorded = self.operators = 0
        self.pools: list[Pool] = []

    def require(self, device: torch.device, what: str) -> None: ...

    def record(self, warm: Run, run: Run, device: torch.device) -> tuple[Run, object]:
        for _ in range(self.warmups):
            warm()
        tape = _Tape(device)
        with tape:
            made = run()
        self.recorded += 1
        self.operators = len(tape.steps)
        return tape.replay, made


class _Tape(TorchDispatchMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.steps: list[tuple[Call, tuple[object, ...], dict[str, object], list[Tensor]]] = []
        self._device = device.type
        self._own: set[int] = set()  # memory that the capture took, which the graph keeps
        self._numbers: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        named = dict(kwargs or {})
        given = [tensor for tensor in tree_leaves((args, named)) if isinstance(tensor, Tensor)]
        here = any(self._is_on_device(tensor) for tensor in given)
        if here and func._schema.name in _WAITS:
            raise RuntimeError(f"{func._schema.name} waits for the device: operation not permitted in a capture")
        if func._schema.name == "aten::lift_fresh":  # made of Python's numbers just now, by no operator
            self._numbers += given
            self._own.update(_place(tensor) for tensor in given)
        recorded: Any = tree_map(self._recorded_value, (args, named)) if here else (args, named)
        made = func(*args, **named)
        places = {_place(tensor) for tensor in given}
        # Views, and what was written in place, share memory with what was given: the operator itself writes there.
        fresh = [tensor for tensor in tree_leaves(made) if isinstance(tensor, Tensor) and _place(tensor) not in places]
        if (fresh and any(self._is_on_device(tensor) for tensor in fresh)) or (here and func._schema.is_mutable):
            self._own.update(_place(tensor) for tensor in fresh)
            self.steps.append((func, recorded[0], recorded[1], fresh))
        return made

    def replay(self) -> None:
        """Run the operators again, each on the very memory that it had, into the very tensors that it made.

        Casts by autocast are among them. Raises RuntimeError where that memory was freed.
        """
        with torch.autocast("cpu", enabled=False):
            for func, args, kwargs, fresh in self.steps:
                args, kwargs = tree_map(_resolve_address, (args, kwargs))
                results = [tensor for tensor in tree_leaves(func(*args, **kwargs)) if isinstance(tensor, Tensor)]
                for place, new in zip(fresh, results[-len(fresh) :] if fresh else [], strict=True):
                    place.copy_(new)

    def _is_on_device(self, tensor: Tensor) -> bool:
        return tensor.device.type == self._device

    def _recorded_value(self, value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        if not self._is_on_device(value):
            return value.clone()
        return value if _place(value) in self._own else _Address(value)


class _Address:
    """Memory that is not the graph's own, and how a tensor lies in it."""

    def __init__(self, tensor: Tensor) -> None:
        self._storage = weakref.ref(tensor.untyped_storage())
        self._dtype = tensor.dtype
        self._layout = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()

    def tensor(self) -> Tensor:
        """Return the tensor. Raises RuntimeError where its memory was freed."""
        storage = self._storage()
        if storage is None:
            raise RuntimeError("a replay reads memory that was freed since the capture")
        return torch.empty(0, dtype=self._dtype, device=storage.device).set_(storage, *self._layout)


def _resolve_address(value: object) -> object:
    return value.tensor() if isinstance(value, _Address) else value


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
