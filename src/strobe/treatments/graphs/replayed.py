"""A CUDA graph played on the CPU: the operators of a capture are kept, and replayed on the tensors they had.

No Python runs in a replay, as none does on a card. So a value that a treatment kept from a warm-up, a mask of another
prompt, a copy that was not captured: all come out wrong. What would wait for the device in a capture raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strobe.devices.memory import Pool
from strobe.subjects.subject import Subject

# Operators that read a number of the device on the host, which no capture allows.
_WAITS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal", "aten::is_nonzero"}


class Replayed:
    """A `Capture`: ``recorded`` counts the captures, ``operators`` those of the last one."""

    def __init__(self, warmups: int = 3) -> None:
        self.warmups = warmups
        self.recorded = self.operators = 0
        self.pools: list[Pool] = []

    def require(self, subject: Subject, what: str) -> None: ...

    def record(self, warm: Callable[[], Any], run: Callable[[], Any], device: torch.device) -> tuple[Any, Any]:
        for _ in range(self.warmups):
            warm()
        tape = _Tape()
        with tape:
            made = run()
        self.recorded += 1
        self.operators = len(tape.steps)
        return tape.replay, made


class _Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.name in _WAITS:
            raise RuntimeError(f"{func._schema.name} waits for the device: operation not permitted in a capture")
        named = dict(kwargs or {})
        made = func(*args, **named)
        given = {_place(one) for one in tree_leaves((args, named)) if isinstance(one, Tensor)}
        # Views, and what was written in place, share memory with what was given: the operator itself writes there.
        fresh = [one for one in tree_leaves(made) if isinstance(one, Tensor) and _place(one) not in given]
        writes = func._schema.is_mutable
        if fresh or writes:
            self.steps.append((func, args, named, fresh))
        return made

    def replay(self) -> None:
        """Run the operators again, each on the very tensors that it had, into the very tensors that it made."""
        for func, args, kwargs, fresh in self.steps:
            again = [one for one in tree_leaves(func(*args, **kwargs)) if isinstance(one, Tensor)]
            for place, new in zip(fresh, again[-len(fresh) :] if fresh else [], strict=True):
                place.copy_(new)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
