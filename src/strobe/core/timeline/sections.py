"""Sections: named intervals of work, recorded on whichever thread does the work.

Recording is one tuple appended when a section ends; nesting is rebuilt afterwards, from containment in each thread, and
in each coroutine and generator (see `strands`). That keeps a section below a microsecond, lets exceptions pass through
unchanged, and needs no state per thread.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

from strobe.core.timeline.layers import Call
from strobe.core.torch_there import has_torch

F = TypeVar("F", bound=Callable[..., Any])

Opener = Callable[[str], AbstractContextManager[Any]]

# The recorder in force, as the function that opens a section on it; None switches every section off.
_open: Opener | None = None
# All that were applied and not reverted, the one in force last. A list for each, so that two of the same are two.
_put_on: list[list[Opener | None]] = []
# Sections that were reached but cannot be timed → why, each reason once: variants of one policy may hide a part in
# different ways. Kept for good: a region is traced once and run many times.
_unseen: dict[str, list[str]] = {}

COMPILED = "runs inside a torch.compile region, where only the region as a whole can be timed"
CAPTURED = "captured in a CUDA graph, which replays without running this code again"
STOPPED = "a generator yields inside it, where other code runs: open it between two yields"


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


def timed(name: str | Call | None = None) -> Any:
    """Decorate a function so that each call is a section, under ``name`` or else the function's qualified name.

    The section of a coroutine function lasts until the coroutine is done, with all that it waits for. Raises TypeError
    for a generator function.

    >>> @timed("load images")
    ... def load(path): ...
    """
    if callable(name):
        return timed(None)(name)

    def decorate(function: F) -> F:
        label = name or function.__qualname__
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{label} is a generator, whose call runs nothing of it: open sections between its yields")

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waiting(*args: object, **kwargs: object) -> Any:
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
    reasons = _unseen.setdefault(name, [])
    if reason not in reasons:
        reasons.append(reason)


if has_torch():
    from torch.compiler import assume_constant_result, substitute_in_graph

    # Run by the compiler while it traces, its result taken for a constant: the only side effect that leaves no graph
    # break.
    @assume_constant_result
    def _note_compiled(name: str) -> bool:
        note_unseen(name, COMPILED)
        return True

    # What torch.compile traces in place of `section`. A test inside `section` would do the same for a third of its
    # cost.
    @substitute_in_graph(section)
    def _traced_section(name: str) -> AbstractContextManager[Any]:
        _note_compiled(name)
        return contextlib.nullcontext()


def unseen() -> dict[str, str]:
    """Names of sections reached where they cannot be timed → the reason."""
    return {name: "; or ".join(reasons) for name, reasons in _unseen.items()}


@contextlib.contextmanager
def recording(opener: Opener | None) -> Any:
    """Put ``opener`` in force for every thread of this process, and remove it afterwards."""
    remove = apply_opener(opener)
    try:
        yield
    finally:
        remove()


def apply_opener(opener: Opener | None) -> Callable[[], None]:
    """Put ``opener`` in force; return what takes it off, in whatever order openers are reverted, and once at most."""
    openers = [opener]
    _put_on.append(openers)
    _choose()

    def revert_opener() -> None:
        _put_on[:] = [other for other in _put_on if other is not openers]
        _choose()

    return revert_opener


def replace_openers(opener: Opener | None) -> None:
    """Put ``opener`` in force and forget all others: in a worker process, they are its parent's."""
    _put_on[:] = [[opener]]
    _choose()


def _choose() -> None:
    global _open
    _open = _put_on[-1][0] if _put_on else None


# Threads: the system gives the ident of one that has ended to the next one, whose sections are none of its.

MAIN = 0
thread_names: dict[int, str] = {}  # number of a thread → its name when it opened its first section
_thread_numbers = itertools.count(1)


class _Own(threading.local):
    """The calling thread: by a number that no other thread of this process ever has."""

    def __init__(self) -> None:
        ident = threading.get_ident()
        # Not `current_thread`, which makes a thread of Python of one that is none, such as autograd's.
        known = next((thread.name for thread in threading.enumerate() if thread.ident == ident), "")
        self.number = MAIN if ident == threading.main_thread().ident else next(_thread_numbers)
        thread_names[self.number] = "main" if self.number == MAIN else known or f"thread {self.number}"


own = _Own()


# Strands: code that stops in the middle and goes on later, a coroutine or a generator, has sections of its own.
#
# While it is suspended other code runs on its thread, whose sections lie within its open ones in time and do not
# belong to them. So a section that is opened in such a frame begins a strand: what is called from that frame belongs
# to the strand, what runs meanwhile does not. Sections of one strand nest by containment, and the strand's first ones
# lie in the section that its caller had open. Where no such frame has a section open, nearly always, nobody looks
# through the stack.

STOPS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Place(NamedTuple):
    """Where a section was opened: its thread's number, its strand, and the strand around it. 0: the thread itself."""

    thread: int
    strand: int = 0
    around: int = 0
    stopped: bool = False  # a generator gave a value away in it, so it lasted while other code ran


class Strand:
    """One frame that can stop, while sections are open in it."""

    __slots__ = ("frame", "open", "place")

    def __init__(self, frame: FrameType, place: Place) -> None:
        self.frame, self.place, self.open = frame, place, 0


# Thread → its frames that have sections open. Empty, nearly always: a section looks at that first.
strands: dict[int, dict[FrameType, Strand]] = {}
_numbers = itertools.count(1)


def enter_strand(frame: FrameType) -> tuple[Strand, int] | None:
    """A section is opened in ``frame``; return its strand and where it is, for `leave_strand`; None for the thread."""
    # A generator that is a context manager stops for the sake of the block in its caller, whose section it is.
    while frame.f_code.co_flags & STOPS and (back := frame.f_back) and back.f_code.co_filename == contextlib.__file__:
        if back.f_back is None:
            break
        frame = back.f_back
    thread = own.number
    strand = _innermost_strand(frame, thread)
    if frame.f_code.co_flags & STOPS and (strand is None or strand.frame is not frame):
        around = strand.place.strand if strand is not None else 0
        strand = Strand(frame, Place(thread, next(_numbers), around))
        strands.setdefault(thread, {})[frame] = strand
    if strand is None:
        return None
    strand.open += 1
    return strand, strand.frame.f_lasti


def leave_strand(entered: tuple[Strand, int]) -> Place:
    """A section is closed that was ``entered``; return where it was."""
    strand, since = entered
    strand.open -= 1
    frame, place = strand.frame, strand.place
    # Nothing tells when a generator goes on, so such a section cannot be timed. A coroutine's holds what it waits for.
    if frame.f_lasti != since and any(since < at <= frame.f_lasti for at in _yields(frame.f_code)):
        place = place._replace(stopped=True)
    if strand.open == 0:
        frames = strands.get(place.thread, {})
        frames.pop(strand.frame, None)
        if not frames:
            strands.pop(place.thread, None)
    return place


@functools.cache
def _yields(code: CodeType) -> list[int]:
    """Return the places at which a generator gives a value away; none of a coroutine, which waits."""
    if code.co_flags & (STOPS & ~inspect.CO_GENERATOR):
        return []
    return [step.offset for step in dis.get_instructions(code) if step.opname in ("YIELD_VALUE", "YIELD_FROM")]


def _innermost_strand(frame: FrameType | None, thread: int) -> Strand | None:
    """The innermost strand that runs on this thread's stack from ``frame`` down."""
    frames = strands.get(thread)
    while frames and frame is not None:
        if (strand := frames.get(frame)) is not None:
            return strand
        frame = frame.f_back
    return None
