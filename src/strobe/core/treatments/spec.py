"""The entry of a treatment, without torch: its key, its effect, its rank, its line of help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from strobe.core import slices
from strobe.core.devices.untried import Feature
from strobe.core.errors import UserError
from strobe.core.results.agreement import Effect
from strobe.core.treatments.words import Spec

# Ranks. What changes weights comes before what is built of them, then what is compiled or captured. The process comes
# last: copies of the weights are made before its heap keeps what it has, and what is built does not depend on it.
SETTING, DTYPE, QUANTISED, STRUCTURE, GUIDANCE, TRAINING, COMPILED, CAPTURED, PROCESS = range(0, 90, 10)

# What holds a device up: launches that it waits for, bytes that it moves, products that it computes.
Limited = Literal["launches", "memory", "compute"]


@dataclass(frozen=True)
class HelpWords:
    """The words of an entry, which `treatment.entry` completes.

    Args:
        key: stands before the ``=``. One that ends in a dot stands for all keys that begin with it.
        at: the module that the entry is in, as ``ENTRY`` where no name follows a colon.
        effect: the most it does to the actions.
        rank: treatments are applied in this order, whatever the order in which they are written.
        help: one line: what it does, which values it takes.
        only: the one value that it takes, True for a key without a value; None where it takes others.
        options: the keys that may follow, written ``key.option``.
        untried: what of it may not have run on the hardware that it is for; help says so where it has not.
        eases: what a device is limited by where this helps most; none where its dtype says so, or nobody knows.
    """

    key: str
    at: str
    effect: Effect
    rank: int
    help: str
    only: str | bool | None = None
    options: tuple[str, ...] = ()
    untried: tuple[Feature, ...] = ()
    eases: tuple[Limited, ...] = ()


def require_only(words: HelpWords, spec: Spec) -> None:
    """Raise UserError where ``spec`` gives the key another value than the only one that it takes."""
    given = spec.get(words.key)
    if words.only is True and given is not True:
        raise UserError(f"{words.key}={given}: {words.key} takes no value")
    if isinstance(words.only, str) and given != words.only:
        raise UserError(f"{words.key}={given}: '{words.only}' is the only value")


@cache
def table() -> Mapping[str, HelpWords]:
    """Return key → words of the treatments that the slices bring, in the order of help."""
    tables = [slices.load(name) for each in slices.slices().values() for name in each.treatments]
    return {words.key: words for table in tables for words in table}
