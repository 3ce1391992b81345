"""Room for what a treatment is about to hold: what does not fit is refused in a line.

On a CPU the system would end the process instead, and with it all that was measured. Other devices refuse by
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

import psutil

from strobe.core.errors import UserError
from strobe.core.measure.memory import available_bytes, peak_process
from strobe.core.subjects.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor, nn

SHARE = 0.95  # usable share of the free memory
# What a call was seen to take and to give back again, at the most: it must stay free, besides what treatments hold.
_PASSING: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


@dataclass(eq=False)
class Promised:
    """Bytes that a treatment takes in calls to come; they are spoken for until it took them, or is let go."""

    bytes: int

    def __post_init__(self) -> None:
        _PROMISED.add(self)


_PROMISED: WeakSet[Promised] = WeakSet()


@contextmanager
def record_call_memory(subject: Subject) -> Iterator[None]:
    """Around a call of ``subject``: remember how much memory it takes and gives back again."""
    if subject.device.type != "cpu":
        yield
        return
    with peak_process() as peak:
        yield
    passing = peak.bytes - psutil.Process().memory_info().rss
    _PASSING[subject.module] = max(_PASSING.get(subject.module, 0), passing)


def fits(needed: float, subject: Subject) -> bool:
    """Return whether ``needed`` bytes more can be held for a treatment of ``subject``."""
    return subject.device.type != "cpu" or needed <= _free(subject)


def require_room(needed: float, what: str, subject: Subject) -> None:
    """Raise UserError where ``needed`` bytes more do not fit in this machine's memory.

    Args:
        what: what takes them, for the message.
    """
    if not fits(needed, subject):
        passing = _PASSING.get(subject.module, 0)
        during_calls = f" in addition to the {passing / 2**30:.1f} GiB that a call takes" if passing > 2**28 else ""
        raise UserError(
            f"{what} takes {needed / 2**30:.1f} GiB more, and {max(_free(subject), 0) / 2**30:.1f} GiB are free on "
            f"this machine{during_calls}"
        )


def numbers(tensors: Iterable[Tensor]) -> int:
    """Return how many numbers ``tensors`` hold, each storage once."""
    return sum({(tensor.data_ptr(), tuple(tensor.shape)): tensor.numel() for tensor in tensors}.values())


def _free(subject: Subject) -> float:
    promised = sum(promise.bytes for promise in _PROMISED)
    return SHARE * available_bytes() - _PASSING.get(subject.module, 0) - promised
