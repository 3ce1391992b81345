"""Flags of every command that answers: where the answer goes, and the limits of its findings."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import custom_bound
from strobe.core.findings.thresholds import Thresholds

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass
class OutputFlags:
    """Where a run goes, and the limits of its findings."""

    # Folder for run folders.
    output_dir: Path = Path("runs")
    # Limits at which findings fire, e.g. --thresholds.control_hz=50
    thresholds: Thresholds = field(default_factory=Thresholds)


def _non_page_reason(file: Path) -> str | None:
    return None if file.suffix.lower() in (".html", ".htm", ".md") else "name a file that ends in .html or .md"


@dataclass
class PageFlags:
    """Where an answer about saved runs goes; it is shown alone unless one of them is given."""

    # Also write a page there: .html, or .md for Markdown.
    output: Path | None = field(default=None, metadata=custom_bound(_non_page_reason))
    # Also save the answer there, in a run folder of its own.
    output_dir: Path | None = None


def flag_values(config: DataclassInstance) -> dict[str, object]:
    """Return the flags of a config by name, without what its command made of the arguments besides."""
    return {item.name: getattr(config, item.name) for item in fields(config) if item.init}
