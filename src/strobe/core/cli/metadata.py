"""Which distribution brings which package, asked once and quickly.

transformers and diffusers each ask ``importlib.metadata.packages_distributions`` when they are imported. It looks
whether every file of every distribution is there, tens of thousands of them, which takes a second each time. The
distributions' own lists say the same in a twentieth of that.
"""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import inspect
import re
from collections.abc import Iterable, Mapping

importlibs = importlib.metadata.packages_distributions  # its own, before `quicken`
_NAME = re.compile(r"^Name:\s*(\S+)", re.MULTILINE)


def quicken() -> None:
    """Let this process ask `packages_distributions` from now on."""
    importlib.metadata.packages_distributions = packages_distributions


@functools.cache
def packages_distributions() -> Mapping[str, list[str]]:
    """Importable top-level name → the distributions that bring it, as importlib's function of that name has them.

    Files that a distribution lists and that are not there count, too.
    """
    names: dict[str, list[str]] = {}
    for distribution in importlib.metadata.distributions():
        written = _NAME.search(distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "")
        name = written[1] if written is not None else distribution.metadata["Name"]
        for package in _top_level(distribution):
            names.setdefault(package, []).append(name)
    return names


def _top_level(distribution: importlib.metadata.Distribution) -> Iterable[str]:
    declared = (distribution.read_text("top_level.txt") or "").split()
    if declared:
        return declared
    record = distribution.read_text("RECORD")
    if record is None:
        files = [str(file) for file in distribution.files or ()]
    else:
        lines = record.splitlines()
        files = [next(csv.reader([line]))[0] if line.startswith('"') else line.partition(",")[0] for line in lines]
    heads = {file.partition("/")[0] if "/" in file else inspect.getmodulename(file) or file for file in files if file}
    return sorted(head for head in heads if "." not in head)
