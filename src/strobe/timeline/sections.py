"""Sections: named intervals of work, recorded on whichever thread does the work.

Recording is one tuple appended when a section ends; nesting is rebuilt afterwards, from containment in each thread, and
in each coroutine and generator (see `strands`). That keeps a section below a microsecond, lets exceptions pass through
untouched, and needs no state per thread.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from torch.compiler import assume_constant_result, substitute_in_graph

F = TypeVar("F", bound=Callable[..., Any])

Opener = Callable[[str], AbstractContextManager[Any]]

# The recorder in force, as the function that opens a section on it; None switches every section off.
_open: Opener | None = None
# All that were put on and not taken off, the one in force last. A list for each, so that two of the same are two.
_put_on: list[list[Opener | None]] = []
# Sections that were reached but cannot be timed → why. Kept for good: a region is traced once and run many times.
_unseen: dict[str, str] = {}

COMPILED = "runs inside a torch.compile region, where only the region as a whole can be timed"
CAPTURED = "captured in a CUDA graph, which replays without running this code again"


class _Off:
    """The section that is opened while sections are off.

    Its methods are C functions that take anything and return a false value: half the cost of two Python functions
    that do nothing.
    """

    __slots__ = ()
    __enter__ = staticmethod("".format)
    __exit__ = staticmethod("".format)


_OFF: Any = _Off()


def section(name: str) -> AbstractContextManager[Any]:
    """Time a block under ``name`` on the timeline in force; free of effect, and nearly of cost, without one.

    Inside a region that torch.compile traces the section cannot exist: it is left out of the graph, without a graph
    break, and its name goes to ``Timeline.unseen``.

    >>> with section("preprocessing"):
    ...     pass
    """
    if _open is None:
        return _OFF
    return _open(name)


def timed(name: str | Callable[..., Any] | None = None) -> Any:
    """Decorate a function so that each call is a section, under ``name`` or else the function's qualified name.

    The section of a coroutine function lasts until the coroutine is done, with all that it waits for.

    >>> @timed("load images")
    ... def load(path): ...
    """
    if callable(name):
        return timed(None)(name)

    def decorate(function: F) -> F:
        label = name or function.__qualname__

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waiting(*args: Any, **kwargs: Any) -> Any:
                with section(label):
                    return await function(*args, **kwargs)

            return waiting  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with section(label):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def note_unseen(name: str, reason: str) -> None:
    """Remember that the section ``name`` was reached where it cannot be timed."""
    _unseen[name] = reason


# Run by the compiler while it traces, its result taken for a constant: the only side effect that leaves no graph break.
@assume_constant_result
def _note_compiled(name: str) -> bool:
    note_unseen(name, COMPILED)
    return True


# What torch.compile traces in place of `section`. A test inside `section` would do the same for a third of its cost.
@substitute_in_graph(section)
def _traced_section(name: str) -> AbstractContextManager[Any]:
    _note_compiled(name)
    return contextlib.nullcontext()


def unseen() -> dict[str, str]:
    """Names of sections reached where they cannot be timed → the reason."""
    return dict(_unseen)


@contextlib.contextmanager
def recording(opener: Opener | None) -> Any:
    """Put ``opener`` in force for every thread of this process, and take it off afterwards."""
    take_off = put_on(opener)
    try:
        yield
    finally:
        take_off()


def put_on(opener: Opener | None) -> Callable[[], None]:
    """Put ``opener`` in force; return what takes it off, in whatever order openers are taken off, and once at most."""
    one = [opener]
    _put_on.append(one)
    _choose()

    def take_off() -> None:
        _put_on[:] = [other for other in _put_on if other is not one]
        _choose()

    return take_off


def put_on_alone(opener: Opener | None) -> None:
    """Put ``opener`` in force and forget all others: in a worker process, they are its parent's."""
    _put_on[:] = [[opener]]
    _choose()


def _choose() -> None:
    global _open
    _open = _put_on[-1][0] if _put_on else None


def in_force() -> Opener | None:
    """The opener in force, None when sections are off."""
    return _open
