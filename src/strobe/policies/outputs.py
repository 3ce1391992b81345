"""The numbers in whatever a call returns, and the wait for those that are still computed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_DEEPEST = 8  # levels of containers that are looked into
_SHOWN = 4  # arrays that are described by themselves
_PLAIN = (str, bytes, bool, int, float, complex, type(None))
# dtypes all of whose values float32 holds.
_SMALL = (torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16)


@dataclass(frozen=True)
class Numbers:
    """The numbers of one output, or of one input.

    Args:
        values: a float tensor on the CPU that shares memory with nothing: of one array in its own shape, of several
            in a row. None where there are none.
        shapes: path in the output → shape, in their order.
        kind: type of an output without numbers.
    """

    values: Tensor | None
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    kind: str = ""

    @property
    def words(self) -> str:
        """The shapes in words, such as '(1, 50, 7)' or 'actions (50, 7), state (8)'."""
        shown = [f"{path} {_shape(shape)}".strip() for path, shape in self.shapes[:_SHOWN]]
        more = len(self.shapes) - _SHOWN
        return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def numbers_of(output: object) -> Numbers:
    """Return the numbers of ``output``: its tensors and arrays; where it holds none, its plain numbers."""
    found = list(_leaves(output, "", 0))
    arrays = [(path, leaf) for path, leaf in found if not isinstance(leaf, _PLAIN)]
    arrays = arrays or [(path, np.asarray(leaf)) for path, leaf in found if isinstance(leaf, int | float)]
    read = [(path, tensor) for path, leaf in arrays if (tensor := _floats(leaf)) is not None and tensor.numel()]
    if not read:
        return Numbers(None, (), type(output).__name__)
    shapes = tuple((path, tuple(tensor.shape)) for path, tensor in read)
    if len(read) == 1:
        return Numbers(read[0][1], shapes)
    return Numbers(torch.cat([tensor.double().flatten() for _, tensor in read]), shapes)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in ``value``."""
    for _, leaf in _leaves(value, "", 0):
        if isinstance(leaf, Tensor):
            yield leaf


def computes_on(output: object) -> bool:
    """Return whether something in ``output`` may still be computed, as JAX's arrays are: `wait_for` waits for it."""
    known = (Tensor, np.ndarray, np.generic, *_PLAIN)
    strange = [leaf for _, leaf in _leaves(output, "", 0) if not isinstance(leaf, known)]
    return any(callable(getattr(leaf, "block_until_ready", None)) for leaf in strange) or (
        bool(strange) and "jax" in sys.modules
    )


def wait_for(output: object) -> None:
    """Wait for what has a `block_until_ready`, as JAX's arrays have."""
    strange = False
    for _, leaf in _leaves(output, "", 0):
        block = getattr(leaf, "block_until_ready", None)
        if callable(block):
            block()
        else:
            strange = True
    # A container that only JAX knows how to look into.
    if strange and (jax := sys.modules.get("jax")) is not None:
        jax.block_until_ready(output)


def unfinished(output: object) -> str:
    """Return in words why ``output`` is no result yet, and what gives one; '' where it is one.

    A coroutine, a generator and other iterators have not run when they are returned, and a future may not have.
    """
    for _, leaf in _leaves(output, "", 0):
        if isinstance(leaf, (Tensor, np.ndarray, *_PLAIN)):
            continue
        kind = type(leaf).__name__
        if all(callable(getattr(leaf, name, None)) for name in ("done", "result")):
            return f"a {kind}, which may not be done: return its result()"
        if isinstance(leaf, Awaitable):
            return f"a {kind}, which has not run: call it by asyncio.run, or wait for it, inside the function"
        if isinstance(leaf, Iterator | AsyncIterator):
            return f"a {kind}, which has not run: take all its values inside the function"
    return ""


def copied(value: Any) -> Any:
    """Return ``value`` with new dicts, lists and tuples, and all else as it is.

    What a policy puts into its observation is then not there at the next call.
    """
    if type(value) is dict:
        return {key: copied(entry) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    return value


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth < _DEEPEST and isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _leaves(entry, f"{path}.{key}" if path else str(key), depth + 1)
    elif depth < _DEEPEST and isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from _leaves(entry, f"{path}[{index}]", depth + 1)
    elif depth < _DEEPEST and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            name = f"{path}.{each.name}" if path else each.name
            yield from _leaves(getattr(value, each.name, None), name, depth + 1)
    else:
        yield path, value


def _floats(leaf: Any) -> Tensor | None:
    """Return a copy of a tensor or an array as floats on the CPU that hold all its values; None of anything else."""
    if isinstance(leaf, Tensor):
        tensor = leaf.detach()
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    elif hasattr(leaf, "__array__") and hasattr(leaf, "dtype"):
        tensor = _of_array(np.asarray(leaf))
        if tensor is None:
            return None
    else:
        return None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    wanted = torch.float32 if tensor.dtype in _SMALL else torch.float64
    return tensor.to("cpu", wanted, copy=True)


def _of_array(array: np.ndarray) -> Tensor | None:
    kind, size = array.dtype.kind, array.dtype.itemsize
    try:
        match kind:
            case "f" if 2 <= size <= 8:
                return torch.from_numpy(np.array(array))
            case "f" | "c" | "i" | "u" | "b":
                wide = np.complex128 if kind == "c" else np.float64 if size > 2 else np.float32
                return torch.from_numpy(array.astype(wide))
            case "V":  # JAX's bfloat16 and float8
                return torch.from_numpy(array.astype(np.float32))
    except (TypeError, ValueError):
        pass
    return None


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
