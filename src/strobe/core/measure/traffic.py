"""The least bytes that a section must move: what was there before it and is read, once, and what it leaves behind.

That is the compulsory traffic of the roofline model: weights and inputs are read once a call, outputs are written once,
and what a section makes and frees inside itself may stay in the cache. Of a table that is looked up, only the rows that
are taken count.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from strobe.core.measure.flop import operator_name

# They read as much as they give; of their first operand the rest is not touched.
_LOOK_UPS = frozenset({"embedding", "index", "gather", "index_select", "take", "_embedding_bag"})
# Of their second operand, a weight that MKL packed, those bytes alone are read that the third has: it has more room.
_PACKED_BY_MKL = frozenset({"_mkl_linear"})
# They look at no value of what they are given.
_VALUELESS = ("empty", "new_", "zeros", "ones", "full", "resize")

_STANDS_IN: ContextVar[torch.dtype | None] = ContextVar("strobe_counted_as", default=None)


@contextmanager
def counted_as(dtype: torch.dtype) -> Iterator[None]:
    """Count what runs inside as if it were in ``dtype``: it stands in for an engine, whose inside cannot be seen."""
    token = _STANDS_IN.set(dtype)
    try:
        yield
    finally:
        _STANDS_IN.reset(token)


def counted_dtype_name() -> str | None:
    """Torch's name of the dtype that is counted now, whatever the operands are; None for the operands' own."""
    dtype = _STANDS_IN.get()
    return str(dtype).removeprefix("torch.") if dtype is not None else None


_Key = tuple[int, int]  # a storage's address, and the number of its birth: an address is used again


@dataclass
class _Storage:
    bytes: int
    views: dict[tuple[int, int], int] = field(default_factory=dict)  # offset and size → bytes

    @property
    def read(self) -> int:
        return min(self.bytes, sum(self.views.values()))


@dataclass
class _Open:
    begun: int
    read: dict[_Key, _Storage] = field(default_factory=dict)


class Traffic:
    """Follows the storages that operators read and make, and adds them up for each section that is open."""

    def __init__(self) -> None:
        self._births = 0
        self._made: dict[int, tuple[int, int, int]] = {}  # address → birth, bytes that count, bytes held; while alive
        self._sections: list[_Open] = []

    def open(self) -> None:
        """A section begins."""
        self._sections.append(_Open(self._births))

    def close(self) -> int:
        """End the innermost section; return its bytes."""
        inner = self._sections.pop()
        if self._sections:
            outer = self._sections[-1]
            for key, storage in inner.read.items():
                if key[1] < outer.begun:
                    outer.read.setdefault(key, _Storage(storage.bytes)).views.update(storage.views)
        remaining = sum(size for birth, size, _ in self._made.values() if birth >= inner.begun)
        return sum(storage.read for storage in inner.read.values()) + remaining

    def record_operator(self, operator: Any, given: Any, out: Any) -> None:
        """Take account of one operator, its arguments and its results."""
        name = operator_name(operator).partition("::")[2]
        if getattr(operator, "is_view", False) or not self._sections:
            return
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        operands = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        if not name.startswith(_VALUELESS):
            for index, tensor in enumerate(operands):
                most = _size(results[0]) if index == 0 and name in _LOOK_UPS and results else None
                if index == 1 and name in _PACKED_BY_MKL:
                    most = _size(operands[2])
                self._read(tensor, most)
        # What is changed in place, or shares an operand's memory, was not made here.
        known = {storage._cdata for tensor in operands if (storage := find_storage(tensor)) is not None}
        for tensor in results:
            storage = find_storage(tensor)
            if storage is None:
                continue
            held = storage.nbytes()
            made = self._made.get(storage._cdata)
            if made is not None and made[2] != held:  # ``resize_`` and ``out=`` change a storage's size
                self._made[storage._cdata] = (made[0], round(held * _scale(tensor)), held)
            elif made is None and storage._cdata not in known:
                self._made[storage._cdata] = (self._births, round(held * _scale(tensor)), held)
                self._births += 1
                weakref.finalize(storage, self._made.pop, storage._cdata, None)

    def _read(self, tensor: torch.Tensor, most: int | None) -> None:
        storage = find_storage(tensor)
        if storage is None:
            if tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]  a packed weight, which stays
                size = tensor.numel() * tensor.dtype.itemsize if most is None else most
                self._sections[-1].read.setdefault((id(tensor), -1), _Storage(size)).views[0, tensor.numel()] = size
            return
        address, section = storage._cdata, self._sections[-1]
        birth = self._made.get(address, (-1, 0, 0))[0]
        if birth >= section.begun:
            return
        size = _size(tensor) if most is None else min(most, _size(tensor))
        held = max(1, round(storage.nbytes() * _scale(tensor)))
        found = section.read.setdefault((address, birth), _Storage(held))
        # A view with its dimensions in another order is the same bytes.
        found.views[int(tensor.storage_offset()), tensor.numel()] = size


def find_storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of ``tensor``; None if it has none."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
        return None


def _size(tensor: torch.Tensor) -> int:
    return round(tensor.numel() * tensor.element_size() * _scale(tensor))


def _scale(tensor: torch.Tensor) -> float:
    stands_for = _STANDS_IN.get()
    if stands_for is None or not tensor.is_floating_point():
        return 1.0
    return min(1.0, stands_for.itemsize / tensor.element_size())
