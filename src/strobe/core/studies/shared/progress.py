"""The progress of a study: its stages, and how far each is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from strobe.core.measure.sampling import Progress


class Reporter(Protocol):
    """Shows what a study is doing."""

    def stage(self, what: str) -> None:
        """Show that a new piece of work begins."""

    def progress(self, progress: Progress) -> None:
        """Show how far the sampling in this stage has come."""


class Silent(Reporter):
    """A reporter that shows nothing."""


@dataclass
class Inner:
    """Passes on how far a part of a study is; its stages after ``words``, without any not at all: the study's stand."""

    reporter: Reporter
    words: str = ""

    def stage(self, what: str) -> None:
        """Show it if there are words."""
        if self.words:
            self.reporter.stage(f"{self.words}: {what}")

    def progress(self, progress: Progress) -> None:
        """Show it unchanged."""
        self.reporter.progress(progress)


class Steps:
    """Passes on how many steps of a stage are done, with the time that remains: the others take as long as these.

    Args:
        unit: the steps' name, in the plural.
    """

    def __init__(self, reporter: Reporter, unit: str) -> None:
        self._reporter, self._unit, self._began = reporter, unit, time.perf_counter()

    def __call__(self, done: int, planned: int) -> None:
        """Show that ``done`` steps of ``planned`` are done."""
        took = time.perf_counter() - self._began
        remaining = took / done * (planned - done) if done else None
        self._reporter.progress(Progress(done, planned, took, remaining, self._unit))
