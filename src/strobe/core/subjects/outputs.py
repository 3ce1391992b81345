"""The numbers in whatever a call returns, and the wait for those that are still computed."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.core.subjects.leaves import PLAIN, leaves
from strobe.core.torch_there import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

    from strobe.core.results.agreement import Agreement

_SHOWN = 4  # arrays that are described by themselves
_A_TIME = " (a time)"
_VALUES = ("datetime", "decimal", "fractions", "uuid", "torch")  # packages whose objects say by `repr` what they are
_EXACT = 2**53  # float64 holds each whole number up to this one
# dtypes all of whose values float32 holds, by torch's and NumPy's names.
_SMALL = ("float32", "float16", "bfloat16", "bool", "uint8", "int8", "int16", "uint16")
# Paths of single numbers that are another time's: openpi's servers answer with how long the call took.
_TIMES = re.compile(r"(^|\.)((policy|server)_timing|timings?|timestamp)(\.|$)|_(ms|us|ns|seconds)$")


@dataclass(frozen=True)
class Numbers:
    """The parts of one output, or of one input, that can be compared.

    Args:
        values: an array of floats that shares memory with nothing: one array in its own shape, several in a row. A
            number is an array without dimensions. None if there are none.
        shapes: path → shape, in the order of the paths.
        texts: path → text, of what must be the same and is no number.
        unseen: what is not compared, in words, with the function, class or package that it is, else None.
        kind: type of an output without numbers.
    """

    values: np.ndarray | None
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    kind: str = ""
    texts: tuple[tuple[str, str], ...] = ()
    unseen: tuple[tuple[str, object], ...] = ()

    @property
    def words(self) -> str:
        """The shapes in words, such as '(1, 50, 7)' or 'actions (50, 7), state (8)'."""
        shown = [f"{path} ({', '.join(map(str, shape))})".strip() for path, shape in self.shapes[:_SHOWN]]
        more = len(self.shapes) - _SHOWN
        return ", ".join(shown) + (f" and {more} more" if more > 0 else "")

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a number nor a text: what was called may not have ended."""
        return not self.shapes and all(text == "None" for _, text in self.texts)

    def unlike(self, found: Numbers) -> str | None:
        """Return in words which form of ``found`` differs from this; None if their numbers can be compared."""
        if self.shapes != found.shapes:
            other = f"of {found.words}" if found.shapes else f"without numbers ({found.kind})"
            return f"an output {other} in place of {self.words}"
        if self.texts != found.texts:
            before, after = dict(self.texts), dict(found.texts)
            path = next(path for path in (*before, *after) if before.get(path) != after.get(path))
            there = f"{after[path][:40]!r}" if path in after else "nothing"
            here = f"{before[path][:40]!r}" if path in before else "nothing"
            return f"{there} in place of {here}" + (f" at {path}" if path else "")
        return None


def extract_numbers(output: object) -> Numbers:
    """Return the numbers, the texts, and what else is in ``output``."""
    read: list[tuple[str, np.ndarray]] = []
    texts: list[tuple[str, str]] = []
    unseen: list[tuple[str, object]] = []
    for path, leaf in leaves(output):
        if isinstance(leaf, int | float | complex) and _TIMES.search(path):
            unseen.append((f"{path}{_A_TIME}", None))
            continue
        exact = _array(leaf)
        array = _floats(exact) if exact is not None else None
        if array is None and (isinstance(leaf, (*PLAIN, Enum, PurePath)) or type(leaf).__module__ in _VALUES):
            texts.append((path, repr(leaf)))
        elif array is None and exact is not None and exact.dtype.kind != "V":
            texts.append((path, repr(exact.tolist())))
        elif array is None:
            code = leaf if inspect.isroutine(leaf) or inspect.isclass(leaf) or inspect.ismodule(leaf) else None
            unseen.append((f"{path} ({type(leaf).__name__})".strip(), code))
        elif array.size:
            read.append((path, array))
        else:
            texts.append((path, f"empty {array.shape}"))
    kind = "" if read else type(output).__name__
    shapes = tuple((path, array.shape) for path, array in read)
    values = None
    if len(read) == 1:
        values = read[0][1]
    elif read:
        values = np.concatenate([array.ravel().astype(np.float64) for _, array in read])
    return Numbers(values, shapes, kind, tuple(texts), tuple(unseen))


def note_uncompared(agreement: Agreement, pairs: Iterable[tuple[Numbers, Numbers]]) -> None:
    """Name the parts of outputs that are not compared. Other parts than times leave the agreement not judged."""
    unseen: dict[str, None] = {}
    for before, after in pairs:
        both = [part for part in before.unseen if part[1] is not None and part in after.unseen]
        unseen |= {part[0]: None for part in (*before.unseen, *after.unseen) if part not in both}
    more = f" and {len(unseen) - _SHOWN} more" if len(unseen) > _SHOWN else ""
    agreement.uncompared = f"{', '.join(list(unseen)[:_SHOWN])}{more}" if unseen else None
    if strange := [words for words in unseen if not words.endswith(_A_TIME)]:
        agreement.unjudged = f"{strange[0]} cannot be compared: return numbers, texts, arrays and tensors alone"


def iter_tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in ``value``."""
    for _, leaf in leaves(value):
        if is_tensor(leaf):
            yield leaf


def may_be_computing(output: object) -> bool:
    """Return whether something in ``output`` may still be computed, as JAX's arrays are: `await_output` waits."""
    known = (np.ndarray, np.generic, *PLAIN)
    strange = [leaf for _, leaf in leaves(output) if not isinstance(leaf, known) and not is_tensor(leaf)]
    return any(callable(getattr(leaf, "block_until_ready", None)) for leaf in strange) or (
        bool(strange) and "jax" in sys.modules
    )


def await_output(output: object) -> None:
    """Wait for what has a `block_until_ready`, as JAX's arrays have."""
    strange = False
    for _, leaf in leaves(output):
        block = getattr(leaf, "block_until_ready", None)
        if callable(block):
            block()
        else:
            strange = True
    # A container that only JAX knows how to look into.
    if strange and (jax := sys.modules.get("jax")) is not None:
        jax.block_until_ready(output)


def list_unfinished_arrays() -> list[object]:
    """Return the arrays of JAX, wherever they are kept, whose work goes on."""
    jax = sys.modules.get("jax")
    return [] if jax is None else [array for array in jax.live_arrays() if not array.is_ready()]


def copy_containers(value: Any) -> Any:
    """Return ``value`` with new dicts, lists, tuples, arrays and tensors, and all else unchanged.

    What a policy puts into its observation, or does to its numbers in place, is then not there at the next call; nor is
    an array of JAX gone that a function donated.
    """
    if type(value) is dict:
        return {key: copy_containers(entry) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(copy_containers, value))
    if is_tensor(value) and type(value) is sys.modules["torch"].Tensor:  # a subclass may be more than its numbers
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) is np.ndarray:
        return value.copy(order="K")
    if (jax := sys.modules.get("jax")) is not None:  # which looks into containers that only it knows
        return jax.tree_util.tree_map(_copy_jax_array, value)
    return value


def _copy_jax_array(leaf: Any) -> Any:
    return leaf.copy().block_until_ready() if isinstance(leaf, sys.modules["jax"].Array) else leaf


def _array(leaf: Any) -> np.ndarray | None:
    """Return a number, a tensor or an array as NumPy has it; None of what may be more than that, as a table."""
    if is_tensor(leaf):
        return _tensor_to_numpy(leaf)
    if isinstance(leaf, int | float | complex | np.ndarray | np.generic):
        return np.asarray(leaf)
    of_device = hasattr(leaf, "__array__") and (hasattr(leaf, "__dlpack__") or hasattr(leaf, "block_until_ready"))
    if of_device and str(leaf.dtype).startswith("key<"):  # of jax.random.key
        leaf = sys.modules["jax"].random.key_data(leaf)
    return np.asarray(leaf) if of_device else None


def _floats(array: np.ndarray) -> np.ndarray | None:
    """Return a copy of an array as floats that hold all its values; None where float64 cannot hold them.

    A complex number is two, along a last dimension.
    """
    kind = array.dtype.kind
    if kind in "iu" and array.size and max(int(array.max()), -int(array.min())) > _EXACT:
        return None
    try:
        if kind == "c":
            wide = np.ascontiguousarray(array, np.complex128)
            return wide.view(np.float64).reshape(*array.shape, 2).copy()
        if array.dtype.char == "g" and not np.array_equal(array, array.astype(np.float64), equal_nan=True):
            return None
        if kind in "fiub":
            return array.astype(np.float32 if array.dtype.name in _SMALL else np.float64)
        if kind == "V":  # JAX's bfloat16 and float8
            return array.astype(np.float32)
    except (TypeError, ValueError):
        pass
    return None


def _tensor_to_numpy(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    if tensor.is_complex():
        import torch

        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.is_floating_point():
        tensor = tensor.float() if str(tensor.dtype).removeprefix("torch.") in _SMALL else tensor.double()
    return tensor.cpu().numpy()
