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
    "strobe.policies": "strobe.core.subjects",
    "strobe.policies.families": "strobe.core.families",
    "strobe.policies.policy_subject": "strobe.lerobot.policies.policy_subject",
    "strobe.policies.lerobot_policies": "strobe.lerobot.policies.lerobot_policies",
    "strobe.subjects": "strobe.core.subjects",
    "strobe.subjects.anatomy": "strobe.core.families.former",
    "strobe.subjects.families": "strobe.core.families",
}


class _Former:
    """A finder and loader. It finds a module under its former name, where nothing has that name now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        present = _present(fullname)
        if present is None:
            return None
        return ModuleSpec(fullname, self, origin=present)  # pyright: ignore[reportArgumentType]  # no base class to import

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        import importlib
        import warnings

        present = str(spec.origin)
        warnings.warn(
            f"{spec.name} is called {present} now; the former name goes with the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        return importlib.import_module(present)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module ran under its present name."""


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
        sys.meta_path.append(_Former())  # pyright: ignore[reportArgumentType]
