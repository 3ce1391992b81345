"""FLOP and live tensor memory per section, from one pass that is counted instead of timed.

The pass runs under a dispatch mode that sees every operator, so its times mean nothing and are not kept. The formulas
are torch's own (``torch.utils.flop_counter``): matrix products, convolutions and attention, forward and backward;
a multiply-add counts as two.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from strobe.timeline.sections import recording


@dataclass
class Account:
    """What one part did in the counted pass."""

    flop: Counter[str] = field(default_factory=Counter)  # dtype → FLOP
    peak_bytes: int = 0  # highest live tensor memory above that at the part's start, over its calls
    calls: int = 0

    @property
    def gflop(self) -> float:
        return sum(self.flop.values()) / 1e9


class Accounting(TorchDispatchMode):
    """Counts while it is entered; sections open meanwhile get an account each, by their path.

    Tensors that existed before, weights and inputs, are not counted as live memory. Nor is what an operator uses and
    frees inside itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accounts: dict[tuple[str, ...], Account] = {}
        self.flop: Counter[str] = Counter()
        self.live = 0
        self._path: tuple[str, ...] = ()
        self._peaks: list[int] = [0]
        self._storages: dict[Any, int] = {}

    @property
    def total(self) -> Account:
        """The whole pass."""
        return Account(self.flop, self._peaks[0], 1)

    def run(self, call: Callable[[], Any]) -> Any:
        """Run ``call`` counted, with sections going to accounts."""
        with recording(self._open), self:
            return call()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._know(tensor, 0)
        out = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            operand = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)), None)
            dtype = str(operand.dtype).removeprefix("torch.") if operand is not None else "unknown"
            self.flop[dtype] += formula(*args, **kwargs, out_val=out)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._know(tensor, 1)
        return out

    def _know(self, tensor: torch.Tensor, counted: int) -> None:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
            return
        key = storage._cdata
        if key in self._storages:
            return
        size = storage.nbytes() * counted
        self._storages[key] = size
        weakref.finalize(storage, self._forget, key)
        self.live += size
        self._peaks[-1] = max(self._peaks[-1], self.live)

    def _forget(self, key: Any) -> None:
        self.live -= self._storages.pop(key, 0)

    def _open(self, name: str) -> Any:
        return _Counted(self, name)


class _Counted:
    __slots__ = ("accounting", "flop", "live", "name", "outer")

    def __init__(self, accounting: Accounting, name: str) -> None:
        self.accounting, self.name = accounting, name

    def __enter__(self) -> None:
        counting = self.accounting
        self.outer = counting._path
        counting._path = (*self.outer, self.name)
        self.flop = Counter(counting.flop)
        self.live = counting.live
        counting._peaks.append(counting.live)

    def __exit__(self, *exception: object) -> None:
        counting = self.accounting
        peak = counting._peaks.pop()
        counting._peaks[-1] = max(counting._peaks[-1], peak)
        account = counting.accounts.setdefault(counting._path, Account())
        account.flop.update(counting.flop - self.flop)
        account.peak_bytes = max(account.peak_bytes, peak - self.live)
        account.calls += 1
        counting._path = self.outer
