"""A program of `scripts/` as a module, for the tests that call its functions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[3] / "scripts"


def load_script(name: str, folder: Path = SCRIPTS) -> ModuleType:
    """Return `scripts/NAME.py`, or a program of another ``folder``, imported for this caller."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
