"""The words of all treatments: Strobe's own from the tables of slices, those of other packages from their entries.

A package's entry is loaded for its words, with what it imports; without such a package nothing is.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import entry_points

from strobe.core.errors import UserError
from strobe.core.treatments.spec import HelpWords, require_only, table
from strobe.core.treatments.words import Spec, belongs, find_entry


def known_words() -> tuple[HelpWords, ...]:
    """Return the words of all treatments, those of other packages last, in the order of `catalogue.entries`."""
    if "strobe.core.treatments.catalogue" not in sys.modules and not has_plug_ins():
        return tuple(table().values())
    from strobe.core.treatments.catalogue import plug_in_entries

    fields = ("key", "effect", "rank", "help", "only", "options", "untried")
    return (
        *table().values(),
        *(HelpWords(at="", **{name: getattr(entry, name) for name in fields}) for entry in plug_in_entries()),
    )


@cache
def has_plug_ins() -> bool:
    """Return whether another package brings treatments. A look through all installed packages takes 60 ms."""
    return bool(entry_points(group="strobe.treatments"))


def check_words(spec: Spec) -> None:
    """Check the keys of a spec, and its value where its treatment takes one value. Raises UserError."""
    if not spec:
        return  # refused where it is made
    first, *others = spec
    entry = find_entry(first, known_words())
    for key in others:
        if not belongs(key, entry):
            raise UserError(f"'{key}' is no option of '{first}': write it as a treatment of its own")
    require_only(entry, spec)
