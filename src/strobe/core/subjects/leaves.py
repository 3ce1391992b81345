"""The arrays, numbers, texts and objects in a value, each with its path, in an order of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from typing import Any

import numpy as np

from strobe.core.torch_there import is_tensor

PLAIN = (str, bytes, bool, int, float, complex, type(None))
_DEEPEST = 32  # levels that are looked into
_MOST = 10_000  # leaves of one value: a call returns fewer, and an object that is handed in may hold a world
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
    if isinstance(value, (Enum, *PLAIN)) or is_tensor(value) or describe_unfinished(value):
        return None
    if isinstance(value, memoryview) or (hasattr(value, "__array_interface__") and not hasattr(value, "dtype")):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return _array_parts(value)
    if isinstance(value, Mapping):
        return sorted(((str(key), entry) for key, entry in value.items()), key=lambda entry: entry[0])
    if isinstance(value, _CONTAINERS) and not hasattr(value, "__array__"):
        entries = sorted(value, key=repr) if isinstance(value, Set) else list(value)
        array = _numbers(entries)
        return array if array is not None else [(f"[{index}]", entry) for index, entry in enumerate(entries)]
    computed = hasattr(value, "__array__") or hasattr(value, "block_until_ready")
    return None if computed or callable(value) else _fields(value) or None


def describe_unfinished(leaf: object) -> str | None:
    """Return in words why ``leaf`` is no result yet, and what gives one.

    A coroutine, a generator and other iterators have not run when they are returned, and a future may not have.
    """
    kind = type(leaf).__name__
    if all(callable(getattr(leaf, name, None)) for name in ("done", "result")):
        return f"a {kind}, which may not be done: return its result()"
    if isinstance(leaf, Awaitable):
        return f"a {kind}, which has not run: call it by asyncio.run, or wait for it, inside the function"
    if isinstance(leaf, Iterator | AsyncIterator):
        return f"a {kind}, which has not run: take all its values inside the function"
    return None


def _array_parts(array: np.ndarray) -> list[tuple[str, object]] | None:
    """Return the parts of an array of objects, or of one with named fields; None for any other."""
    if array.dtype.names:
        return [(name, array[name]) for name in array.dtype.names]
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
