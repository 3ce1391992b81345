"""FLOP, memory and memory traffic per section, from one pass that is counted instead of timed.

The pass runs under a dispatch mode that sees every operator, so its times mean nothing and are not kept. Matrix
products, convolutions, attention and recurrent layers count, forward and backward; a multiply-add counts as two. An
operator that seems to multiply and has no formula is named. Memory is that of live tensors, or what the device's
allocator says.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from strobe.core.devices.accelerators import DeviceMemory, find_device_memory
from strobe.core.measure.flop import Operators, operator_name, products
from strobe.core.measure.memory import weight_bytes
from strobe.core.measure.traffic import Traffic, counted_dtype_name, find_storage
from strobe.core.results.measurement import MemorySource
from strobe.core.timeline.probe import Hook
from strobe.core.timeline.sections import recording

# Operators whose result, or its shape, the host must know before it can go on.
_WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::_unique2"}


@dataclass
class Account:
    """FLOP and memory of one part in the counted pass.

    Memory counts from what was in use when a call of the part began; of several calls the highest counts.
    """

    flop: Counter[str] = field(default_factory=Counter)  # dtype → FLOP
    moved_bytes: int = 0  # the least that it must read and write, over all calls
    peak_bytes: int | None = 0  # None if FLOP alone were counted
    kept_bytes: int | None = None  # at the call's end: outputs, and what autograd keeps; negative if it freed more
    calls: int = 0

    @property
    def gflop(self) -> float:
        """GFLOP of all dtypes together."""
        return sum(self.flop.values()) / 1e9


class LiveTensors:
    """Memory of the tensors made since the beginning, counted by their storages."""

    source: MemorySource = "live tensors"

    def __init__(self) -> None:
        self.live = self._highest = 0
        self._storages: dict[Any, tuple[int, int]] = {}  # bytes that count, and bytes in all

    def peak(self) -> int:
        """The most bytes in use since this was last asked, or since the beginning."""
        highest, self._highest = self._highest, self.live
        return highest

    def know(self, tensor: torch.Tensor, *, made: bool) -> None:
        """Count the tensor's storage until it is freed; of one that was not ``made`` just now, what it grows by."""
        if (storage := find_storage(tensor)) is None:
            return
        key, size = storage._cdata, storage.nbytes()
        found = self._storages.get(key)
        if found is None:
            weakref.finalize(storage, self._forget, key)
            found = (0, 0 if made else size)
        counted, before = found
        self._storages[key] = (counted + size - before, size)  # ``resize_`` and ``out=`` change a storage's size
        self.live += size - before
        self._highest = max(self._highest, self.live)

    def _forget(self, key: object) -> None:
        self.live -= self._storages.pop(key, (0, 0))[0]


class DeviceAllocator:
    """Memory that an accelerator's allocator has handed out, including what operators use internally.

    Its peak is reset whenever it is asked for.
    """

    source: MemorySource

    def __init__(self, memory: DeviceMemory, source: MemorySource) -> None:
        self.memory, self.source = memory, source
        memory.reset_peak()

    @property
    def live(self) -> int:
        return self.memory.allocated_bytes() or 0

    def peak(self) -> int:
        highest = self.memory.peak() or 0
        self.memory.reset_peak()
        return highest


def find_allocator(device: torch.device) -> DeviceAllocator | None:
    """Return the allocator of ``device``; None for the CPU, and for MPS, whose allocator tells no peak."""
    memory, source = find_device_memory(device), _SOURCES.get(device.type)
    return None if memory is None or source is None else DeviceAllocator(memory, source)


_SOURCES: dict[str, MemorySource] = {"cuda": "CUDA allocator", "xpu": "XPU allocator"}


class Accounting(Operators):
    """Counts FLOP and memory while it is entered. Each section that opens meanwhile gets an account, by its path.

    Args:
        meter: where memory is read; by default live tensors. Those that existed before, weights and inputs, are not
            counted, nor is what an operator uses and frees inside itself.
    """

    def __init__(self, meter: LiveTensors | DeviceAllocator | None = None) -> None:
        super().__init__()
        self.accounts: dict[tuple[str, ...], Account] = {}
        self.flop: Counter[str] = Counter()
        self.uncounted: Counter[str] = Counter()  # operator that seems to multiply and has no formula → its calls
        self.waits: Counter[str] = Counter()  # operator, file and line where the host waits for a device → its calls
        self.traffic = Traffic()
        self.meter = meter or LiveTensors()
        self._path: tuple[str, ...] = ()
        self._start = self.meter.live
        self._peaks: list[int] = [self._start]

    @property
    def live(self) -> int:
        """Bytes in use above those at the start."""
        return self.meter.live - self._start

    @property
    def peak(self) -> int:
        """The most bytes in use since the start, as the meter counts them: the allocator's include the weights."""
        self._look()
        return max(self._peaks)

    @property
    def total(self) -> Account:
        """The whole pass."""
        return Account(self.flop, peak_bytes=self.peak - self._start, calls=1)

    def run(self, call: Callable[[], Any]) -> Any:
        """Run ``call`` counted, with sections going to accounts."""
        with recording(self._open), self:
            return call()

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._know((args, kwargs), made=False)
        out = operator(*args, **kwargs)
        name = operator_name(operator)
        masked = name == "aten::index" and any(getattr(index, "dtype", None) is torch.bool for index in args[1])
        if (masked or name in _WAITS) and args[0].device.type != "cpu":
            self.waits[f"{name} at {_line()}"] += 1
        multiplied = products(operator, args, kwargs, out)
        if multiplied.flop is None:
            self.uncounted[name] += 1
        elif multiplied.flop:
            self.flop[counted_dtype_name() or multiplied.dtype] += multiplied.flop
        self.traffic.record_operator(operator, (args, kwargs), out)
        self._know(out, made=True)
        return out

    def _know(self, tree: object, *, made: bool) -> None:
        if isinstance(self.meter, LiveTensors):
            for leaf in tree_leaves(tree):
                if isinstance(leaf, torch.Tensor):
                    self.meter.know(leaf, made=made)

    def _look(self) -> None:
        self._peaks[-1] = max(self._peaks[-1], self.meter.peak())

    def _open(self, name: str) -> Any:
        # What other threads do is not counted, but for autograd's, which take over the modes of their caller.
        return _Counted(self, name) if self in _get_current_dispatch_mode_stack() else nullcontext()


def _line() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "strobe"):
        frame = frame.f_back
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{frame.f_lineno}"


class _Counted:
    __slots__ = ("accounting", "flop", "live", "name", "outer")

    def __init__(self, accounting: Accounting, name: str) -> None:
        self.accounting, self.name = accounting, name

    def __enter__(self) -> None:
        counting = self.accounting
        self.outer = counting._path
        counting._path = (*self.outer, self.name)
        self.flop = Counter(counting.flop)
        counting._look()  # what came before belongs to the part around this one
        self.live = counting.meter.live
        counting._peaks.append(self.live)
        counting.traffic.open()

    def __exit__(self, *exception: object) -> None:
        counting = self.accounting
        counting._look()
        peak, remaining = counting._peaks.pop(), counting.meter.live - self.live
        counting._peaks[-1] = max(counting._peaks[-1], peak)
        account = counting.accounts.setdefault(counting._path, Account())
        account.flop.update(counting.flop - self.flop)
        account.moved_bytes += counting.traffic.close()
        account.peak_bytes = max(account.peak_bytes or 0, peak - self.live)
        account.kept_bytes = remaining if account.kept_bytes is None else max(account.kept_bytes, remaining)
        account.calls += 1
        counting._path = self.outer


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

    def module_bytes(self, path: Sequence[str]) -> int | None:
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
