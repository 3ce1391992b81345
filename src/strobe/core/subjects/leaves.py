"""The arrays, numbers, texts and objects in a value, each with its path, in an order of their own."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import UserDict, UserList
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np

from strobe.core.torch_there import is_tensor

PLAIN = (str, bytes, bool, int, float, complex, slice, type(None))
_DEEPEST = 32  # levels that are looked into
_MOST = 10_000  # leaves of one value: a call returns fewer, and an object that is handed in may hold a world
_WAITS = ("result", "get", "wait", "join")  # what gives the result of work that goes on
_CONTAINERS = (Sequence, Set, ValuesView)


def leaves(value: object) -> Iterator[tuple[str, Any]]:
    """Yield what ``value`` holds, as (path, leaf).

    A leaf is an array, a tensor, a number, a text, or an object that cannot be looked into. Two values that hold the
    same give the same paths in the same order: the keys of mappings are sorted, and so are the elements of sets. Lists
    of numbers are one array. Of an object the public fields are looked into. What is deeper than 32 levels, inside
    itself, or past 10,000 leaves is a leaf as a whole.
    """
    for count, leaf in enumerate(_walk(value, "", ())):
        yield leaf
        if count >= _MOST:
            yield f"what comes after {leaf[0]}", _Rest()
            return


class _Rest:
    """The leaves past the last one that is looked at."""


def _walk(value: object, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, object]]:
    inside = None if len(above) >= _DEEPEST or id(value) in above else _inside(value)
    if inside is None:
        yield path, value
    elif isinstance(inside, np.ndarray):
        yield path, inside
    else:
        for name, entry in inside:
            joined = name if not path or name.startswith("[") else f".{name}"
            yield from _walk(entry, path + joined, (*above, id(value)))


def _inside(value: Any) -> list[tuple[str, object]] | np.ndarray | None:
    """Return the entries of ``value`` by name, or an array that is as good; None for a leaf."""
    if isinstance(value, (Enum, ModuleType, *PLAIN)) or is_tensor(value) or describe_unfinished(value):
        return None
    if isinstance(value, memoryview) or (hasattr(value, "__array_interface__") and not hasattr(value, "dtype")):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return _array_parts(value)
    computed = hasattr(value, "__array__") or hasattr(value, "block_until_ready")
    fields = [] if computed or callable(value) or isinstance(value, UserDict | UserList) else _fields(value)
    if isinstance(value, Mapping):
        keyed = sorted(((str(key), entry) for key, entry in value.items()), key=lambda entry: entry[0])
        return [*keyed, *(field for field in fields if field[0] not in dict(keyed))]
    if isinstance(value, _CONTAINERS) and not computed:
        entries = sorted(value, key=repr) if isinstance(value, Set) else list(value)
        array = None if fields else _numbers(entries)
        return array if array is not None else [*((f"[{at}]", entry) for at, entry in enumerate(entries)), *fields]
    return fields or None


def describe_unfinished(leaf: object) -> str | None:
    """Return in words why ``leaf`` is no result yet, and what gives one.

    A coroutine, a generator and other iterators have not run when they are returned, and a future may not have.
    """
    kind = type(leaf).__name__
    if isinstance(leaf, functools.partial):
        return f"a {kind}, which has not run: call it inside the function"
    for name in _WAITS if not isinstance(leaf, (Mapping, *_CONTAINERS)) and not hasattr(leaf, "__dlpack__") else ():
        if hasattr(type(leaf), name) and takes_nothing(getattr(leaf, name)):
            return f"a {kind}, which may not be done: return what its {name}() gives"
    if isinstance(leaf, Awaitable):
        return f"a {kind}, which has not run: call it by asyncio.run, or wait for it, inside the function"
    if isinstance(leaf, Iterator | AsyncIterator):
        return f"a {kind}, which has not run: take all its values inside the function"
    return None


def takes_nothing(function: Any) -> bool:
    """Return whether something can be called without arguments, as far as it says."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _array_parts(array: np.ndarray) -> list[tuple[str, object]] | None:
    """Return the parts of an array of objects, with named fields or with a mask; None for any other."""
    if array.dtype.names:
        return [(name, array[name]) for name in array.dtype.names]
    if np.ma.is_masked(array):
        return [("data", np.ma.filled(array, array.dtype.type())), ("mask", np.ma.getmaskarray(array))]
    if array.dtype == object:
        return [(f"[{index}]", entry) for index, entry in enumerate(array.reshape(-1).tolist())]
    return None


def _numbers(entries: Sequence[object]) -> np.ndarray | None:
    """Return lists of numbers, and lists of such lists of equal length, as one array; None for any other."""
    first: Any = entries
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if not isinstance(first, int | float):
        return None
    try:
        array = np.asarray(entries)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None
    return array if array.dtype.kind in "biuf" else None


def _fields(value: object) -> list[tuple[str, object]]:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        slots = getattr(type(value), "__slots__", ())
        names = [*getattr(value, "__dict__", {}), *([slots] if isinstance(slots, str) else slots)]
    return [(name, getattr(value, name, None)) for name in names if not name.startswith("_")]
