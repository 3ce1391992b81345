"""Strands: code that stops in the middle and goes on later, a coroutine or a generator, has sections of its own.

While it is suspended other code runs on its thread, whose sections lie within its open ones in time and do not belong
to them. So a section that is opened in such a frame begins a strand: what is called from that frame belongs to the
strand, what runs meanwhile does not. Sections of one strand nest by containment, and the strand's first ones lie in the
section that its caller had open. Where no such frame has a section open, nearly always, nobody looks through the stack.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from threading import get_ident
from types import FrameType
from typing import NamedTuple

STOPS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Place(NamedTuple):
    """Where a section was opened: its thread, its strand, and the strand around that one. 0: the thread itself."""

    ident: int
    strand: int = 0
    around: int = 0


class Strand:
    """One frame that can stop, while sections are open in it."""

    __slots__ = ("frame", "open", "place")

    def __init__(self, frame: FrameType, place: Place) -> None:
        self.frame, self.place, self.open = frame, place, 0


# Thread → its frames that have sections open. Empty, nearly always: a section looks at that first.
strands: dict[int, dict[FrameType, Strand]] = {}
_numbers = itertools.count(1)


def entered(frame: FrameType) -> Strand | None:
    """A section is opened in ``frame``; return its strand, for `left`, and None for the thread itself."""
    # A generator that is a context manager stops for the sake of the block in its caller, whose section it is.
    while frame.f_code.co_flags & STOPS and _is_contextlib(frame.f_back):
        assert frame.f_back is not None
        if frame.f_back.f_back is None:
            break
        frame = frame.f_back.f_back
    ident = get_ident()
    strand = _strand_of(frame, ident)
    if frame.f_code.co_flags & STOPS and (strand is None or strand.frame is not frame):
        around = strand.place.strand if strand is not None else 0
        strand = Strand(frame, Place(ident, next(_numbers), around))
        strands.setdefault(ident, {})[frame] = strand
    if strand is not None:
        strand.open += 1
    return strand


def left(strand: Strand) -> Place:
    """A section of ``strand`` is closed; return where it was."""
    strand.open -= 1
    place = strand.place
    if strand.open == 0:
        frames = strands.get(place.ident, {})
        frames.pop(strand.frame, None)
        if not frames:
            strands.pop(place.ident, None)
    return place


def _strand_of(frame: FrameType | None, ident: int) -> Strand | None:
    """The innermost strand that runs on this thread's stack from ``frame`` down."""
    frames = strands.get(ident)
    while frames and frame is not None:
        if (found := frames.get(frame)) is not None:
            return found
        frame = frame.f_back
    return None


def _is_contextlib(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename == contextlib.__file__
