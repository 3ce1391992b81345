"""Backbones: the records of their families, and rules on their breakdowns."""

from __future__ import annotations

from strobe.core.slices import Slice

SLICE = Slice(
    rules={"breakdown": ("strobe.vision.findings:RULES",), "compare": ("strobe.vision.findings:RULES",)},
    families=("strobe.vision.families",),
)
