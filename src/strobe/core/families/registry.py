"""Find the family of a type, Strobe's own record or an installed package's, and do with it what the record says."""

from __future__ import annotations

import importlib.metadata
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any

from strobe.core import slices
from strobe.core.errors import UserError
from strobe.core.families.capabilities import Capability, Construction, Unregistered
from strobe.core.families.family import Family
from strobe.core.families.family import blocks as blocks
from strobe.core.families.modules import build_module_family

GROUP = "strobe.families"  # group of entry points


def _own_families() -> Iterator[Family]:
    """Yield the records that slices bring: ``FAMILY`` of each file of their packages of families.

    A file that imports a library which is not installed is left out, with the policies that need it.
    """
    for package in [slices.load(name) for each in slices.slices().values() for name in each.families]:
        for entry in iter_modules(package.__path__):
            try:
                family = getattr(import_module(f"{package.__name__}.{entry.name}"), "FAMILY", ())
            except ModuleNotFoundError as error:
                if not _lacks_library(error, "strobe"):
                    raise
                continue
            yield from family if isinstance(family, tuple) else (family,)


def _lacks_library(error: Exception, *own: str) -> bool:
    """Return whether a library is not installed, as opposed to a module of one of the packages ``own``."""
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] not in own


@cache
def records() -> dict[str, Family]:
    """Return type → record: those of slices, then what is registered. Made on first use: a record imports torch."""
    return {kind: family for family in _own_families() for kind in family.types}


_brought: dict[str, EntryPoint] = {}  # type → what brought its record, where another package did


def register(family: Family) -> Family:
    """Make ``family`` the one for its types; the last one registered for a type wins."""
    for kind in family.types:
        records()[kind] = family
    return family


def find_family(kind: str) -> Family | None:
    """Return the record for this type, Strobe's own or an installed package's; None without one.

    A package whose record cannot be loaded causes a warning and does not stop the run; one whose library is not
    installed is left out, as Strobe's own are. Raises UserError where several packages bring a record of this type.
    """
    if kind not in records() and (entries := _family_entry_points().get(kind)):
        entry = _sole_entry(kind, entries)
        del _family_entry_points()[kind]
        try:
            _brought.update(dict.fromkeys(register(entry.load()).types, entry))
        except Exception as error:
            if not _lacks_library(error, "strobe", entry.module.partition(".")[0]):
                text = f"{type(error).__name__}: {error}"
                warnings.warn(f"the family '{kind}' that '{entry.value}' offers cannot be loaded: {text}", stacklevel=2)
    return records().get(kind)


def record_entry(kind: str) -> EntryPoint | None:
    """Return the entry point that brought the record for this type; None for Strobe's own."""
    find_family(kind)
    return _brought.get(kind)


def record_package(kind: str) -> dict[str, str]:
    """Return name → version of the package that brought the record for this type; empty for Strobe's own."""
    entry = record_entry(kind)
    return {entry.dist.name: entry.dist.version} if entry is not None and entry.dist is not None else {}


def _sole_entry(kind: str, entries: Sequence[EntryPoint]) -> EntryPoint:
    """Return the record's entry point. Raises UserError where ``entries`` are of several packages."""
    packages = sorted({f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value for entry in entries})
    if len(packages) > 1:
        raise UserError(
            f"{' and '.join(packages)} each bring a record of the policy type '{kind}' (entry points of "
            f"{GROUP}): uninstall one of them"
        )
    return entries[0]


def policy_family(policy: Any, kind: str | None = None) -> Family:
    """Return the record for this policy's type; without one, or without parts in it, one along the policy's modules.

    ``kind``: its type; None to read it from the policy's config.
    """
    family = find_family(kind if kind is not None else policy.config.type)
    if family is None:
        return build_module_family(policy)
    if family.probes is None:
        return replace(family, name="modules", probes=build_module_family(policy).probes)
    return family


def unregistered_modules(policy: object) -> Sequence[Any]:
    """Return the modules that ``policy`` holds but does not register."""
    return Unregistered.from_family(policy_family(policy)).outside(policy)


def list_types_having(has: type[Capability] | Callable[[Family], object]) -> list[str]:
    """Return the types whose record ``has`` a capability, or something else, sorted, for messages."""
    having = asking(has)
    return sorted({kind for family in known_families() if having(family) for kind in family.types})


def asking(has: type[Capability] | Callable[[Family], object]) -> Callable[[Family], object]:
    """Return the function that says whether a family has a capability, or what ``has`` itself says."""
    if isinstance(has, type):
        kind: type[Capability] = has
        return lambda family: family.get(kind)
    return has


def known_families() -> Iterator[Family]:
    """Yield all records: those that are loaded, Strobe's own among them, and only then those of installed packages."""
    loaded = dict.fromkeys(records().values())
    yield from loaded
    for kind, entries in list(_family_entry_points().items()):
        with suppress(UserError):  # two packages bring it: said where a policy of this type is named
            _sole_entry(kind, entries)
            find_family(kind)
    yield from dict.fromkeys(family for family in records().values() if family not in loaded)


def building(config: Any, tiny: bool) -> AbstractContextManager[Sequence[str] | None]:
    """Return the context in which the policy of ``config`` is made with random weights; it may give notes."""
    building = Construction.from_family(find_family(config.type)).building
    return building(config, tiny) if building is not None else nullcontext()


@cache
def _family_entry_points() -> dict[str, list[EntryPoint]]:
    """Return type → the entry points that bring its record, of all installed packages."""
    offered: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        offered.setdefault(entry.name, []).append(entry)
    return offered


# Packages of others that a policy, its record or a treatment comes from: which distribution, in which version.

OURS = frozenset({"strobe", "lerobot", "__main__"})  # in a result's versions, or in no package


@cache
def find_package(module: str) -> tuple[str, str] | None:
    """Return name and version of the distribution that brings ``module``.

    None for a module of Strobe, of LeRobot or of Python, and for one that no distribution has.

    >>> find_package("strobe.core.subjects.act")
    """
    top = module.partition(".")[0]
    if top in OURS or top in sys.stdlib_module_names:
        return None
    try:  # LeRobot's plug-ins have their module's name; a look through all distributions takes a second
        return top, importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(top, [])
        return (names[0], importlib.metadata.version(names[0])) if names else None
