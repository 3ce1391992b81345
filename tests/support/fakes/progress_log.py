"""A reporter for studies, that keeps what it is given."""

from __future__ import annotations

from strobe.core.measure.sampling import Progress


class ProgressSeen:
    """Keeps, of each stage, its progress."""

    def __init__(self) -> None:
        self.stages: dict[str, list[Progress]] = {}

    def stage(self, what: str) -> None:
        self.stages[what] = self.latest = []

    def progress(self, progress: Progress) -> None:
        self.latest.append(progress)
