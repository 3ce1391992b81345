"""Every treatment that can be written down: in ``--variant``, in a recipe, and by ``strobe optimize``.

A treatment is a file with an `Entry` at its end, and its words in the table. Other packages bring theirs through the
entry-point group ``strobe.treatments``: what it names is an `Entry`, or a tuple of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points

from strobe.core import slices
from strobe.core.errors import UserError
from strobe.core.treatments import words as text
from strobe.core.treatments.spec import table
from strobe.core.treatments.treatment import Entry, Spec, Treatment


@cache
def own_entries() -> tuple[Entry, ...]:
    """Return the entries of slices, without those that need LeRobot where it is not installed."""
    found: list[Entry] = []
    for words in table().values():
        try:
            found.append(slices.load(words.at if ":" in words.at else f"{words.at}:ENTRY"))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "strobe":
                raise
    return tuple(found)


# What `--variant` reads before it looks here.
_TAKEN = ("recipe", "exported", "rtc")


def entries() -> tuple[Entry, ...]:
    """Return all entries: those of this package, then those that other packages bring."""
    return (*own_entries(), *plug_in_entries())


@cache
def plug_in_entries() -> tuple[Entry, ...]:
    """Return the entries of other packages. One that cannot be loaded costs a warning, and nothing else."""
    taken = {*_TAKEN, *(_root(entry.key) for entry in own_entries())}
    brought: list[Entry] = []
    owners: dict[str, str] = {}
    for point in entry_points(group="strobe.treatments"):
        try:
            loaded = point.load()
            entries_of_package = loaded if isinstance(loaded, list | tuple) else (loaded,)
            if others := {type(entry).__name__ for entry in entries_of_package if not isinstance(entry, Entry)}:
                raise TypeError(f"an Entry or a tuple of them, not {others.pop()}")
        except Exception as error:
            _warn(point.value, f"{type(error).__name__}: {error}")
            continue
        for entry in entries_of_package:
            if _root(entry.key) in taken:
                whose = owners.get(_root(entry.key), "Strobe")
                _warn(point.value, f"{whose} has a treatment '{_root(entry.key)}' already")
                continue
            taken.add(_root(entry.key))
            owners[_root(entry.key)] = point.dist.name if point.dist else point.value
            brought.append(entry)
    return tuple(brought)


def _root(key: str) -> str:
    return key.split(".")[0]


def _warn(source: str, why: str) -> None:
    warnings.warn(f"the treatment of {source} is left out: {' '.join(why.split())}", stacklevel=2)


def find_entry(key: str) -> Entry:
    """Return the entry that ``key`` begins. Raises UserError."""
    return text.find_entry(key, entries())


def make(spec: Spec) -> Treatment:
    """Return the treatment that ``spec`` writes down. Raises UserError for a key or a value that means nothing."""
    if not spec:
        raise UserError("a treatment is written KEY=VALUE: here is none")
    first, *others = spec
    entry = find_entry(first)
    for key in others:
        if not text.belongs(key, entry):
            raise UserError(f"'{key}' is no option of '{first}': write it as a treatment of its own")
    return entry.make(spec)


def sort_specs(specs: Iterable[Spec]) -> list[Spec]:
    """Return ``specs`` in the order in which they are applied, which is no matter of how they were written."""
    return sorted(specs, key=spec_rank)


def spec_rank(spec: Spec) -> int:
    """Return where ``spec`` stands among those that are applied together."""
    return find_entry(next(iter(spec))).rank


def compose(specs: Iterable[Spec]) -> tuple[Treatment, ...]:
    """Return the treatments of ``specs``, in the order in which they are applied. Raises UserError."""
    return tuple(make(spec) for spec in sort_specs(specs))


def parse(string: str) -> list[Spec]:
    """Return the specs of ``'precision=bf16, precision.part=model.backbone, channels_last=true'``. Raises UserError.

    An option belongs to the treatment before it; settings of the policy are one treatment. A value holds no comma.
    """
    return text.parse(string, entries())


def format_spec(spec: Spec) -> str:
    """Return ``spec`` as written on a command line."""
    return ", ".join(f"{key}={'true' if value is True else value}" for key, value in spec.items())
