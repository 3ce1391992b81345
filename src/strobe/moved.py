"""Former names of modules, for packages of others: they work for one version, with one warning for each."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # whatever imports Strobe pays for these
    from collections.abc import Sequence
    from types import ModuleType

# Former name → its present name. What is not here lies in the core, where it has the name that it had.
_NAMES = {
    "strobe.advice": "strobe.core.findings.rules",
    "strobe.findings.cadence": "strobe.core.findings.machine",
    "strobe.policies": "strobe.core.subjects",
    "strobe.policies.families": "strobe.core.families",
    "strobe.policies.families.common": "strobe.core.families.family",
    "strobe.policies.policy_subject": "strobe.lerobot.policies.policy_subject",
    "strobe.policies.lerobot_policies": "strobe.lerobot.policies.lerobot_policies",
    "strobe.subjects": "strobe.core.subjects",
    "strobe.subjects.anatomy": "strobe.core.families.registry",
    "strobe.subjects.families": "strobe.core.families",
}


class _Former:
    """A finder and loader of modules under their former names.

    Two are at work. The first finds what lies in a room that is gone: such a room's name is an alias of a package,
    whose modules Python would otherwise load a second time. The last finds a former name in a folder that is there.
    """

    def __init__(self, *, of_rooms: bool) -> None:
        self.of_rooms = of_rooms
        self._specs: dict[int, ModuleSpec | None] = {}  # id of a module → its own spec

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how the module with that former name is loaded; None for any other name."""
        if not fullname.startswith("strobe.") or fullname.startswith("strobe.core."):
            return None
        if self.of_rooms and fullname.split(".")[1] in _present_folders():
            return None
        present = _present(fullname)
        if present is None:
            return None
        return ModuleSpec(fullname, self, origin=present)  # pyright: ignore[reportArgumentType]  # no base class to import

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under its present name, with a warning."""
        import importlib
        import warnings

        present = str(spec.origin)
        warnings.warn(
            f"{spec.name} is called {present} now; the former name goes with the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        module = importlib.import_module(present)
        self._specs[id(module)] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own spec: it ran under its present name."""
        module.__spec__ = self._specs.pop(id(module), module.__spec__)


def _present_folders() -> set[str]:
    import os

    if not _FOLDERS:
        _FOLDERS.update(name.partition(".")[0] for name in os.listdir(os.path.dirname(__file__)))
    return _FOLDERS


_FOLDERS: set[str] = set()


def _present(former: str) -> str | None:
    """Return the present name of a module; None where it has no other."""
    if not former.startswith("strobe.") or former.startswith("strobe.core."):
        return None
    if former in _NAMES:
        return _NAMES[former]
    from importlib.util import find_spec

    parent, _, last = former.rpartition(".")
    beside = _NAMES.get(
        parent, f"strobe.core.{parent.removeprefix('strobe.')}" if parent != "strobe" else "strobe.core"
    )
    present = f"{beside}.{last}"
    try:
        return present if find_spec(present) is not None else None
    except ModuleNotFoundError:
        return None


def install() -> None:
    """Have former names found, after all others."""
    if not any(isinstance(finder, _Former) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Former(of_rooms=True))  # pyright: ignore[reportArgumentType]
        sys.meta_path.append(_Former(of_rooms=False))  # pyright: ignore[reportArgumentType]
