"""The names by which packages written for the entry-point group ``strobe.anatomies`` know a family's record."""

from __future__ import annotations

from strobe.core.families.family import Family, blocks
from strobe.core.families.registry import register

Anatomy = Family

__all__ = ["Anatomy", "blocks", "register"]
