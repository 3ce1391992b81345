"""Packages of others that a policy, its record or a treatment comes from: which distribution, in which version."""

from __future__ import annotations

import importlib.metadata
import sys
from functools import cache

OURS = frozenset({"strobe", "lerobot", "__main__"})  # in a result's versions, or in no package


@cache
def package_of(module: str) -> tuple[str, str] | None:
    """Return name and version of the distribution that brings ``module``.

    None for a module of Strobe, of LeRobot or of Python, and for one that no distribution has.

    >>> package_of("strobe.core.subjects.act")
    """
    top = module.partition(".")[0]
    if top in OURS or top in sys.stdlib_module_names:
        return None
    try:  # LeRobot's plug-ins have their module's name; a look through all distributions takes a second
        return top, importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(top, [])
        return (names[0], importlib.metadata.version(names[0])) if names else None


def packages_of(*parts: type) -> dict[str, str]:
    """Return distribution → version of the packages that ``parts``, classes, come from."""
    return dict(sorted({found for part in parts if (found := package_of(part.__module__)) is not None}))
