"""Run a sweep's cells on this machine, one at a time: two would disturb each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from strobe.sweeps.execute import Job, Outcome, execute
from strobe.sweeps.server import Server


class Watch(Protocol):
    """Where a launcher says what it is doing."""

    def began(self, job: Job, node: str = "") -> None:
        """A cell's process is about to start."""

    def said(self, job: Job, line: str) -> None:
        """The last thing that a running cell said."""

    def lost(self, job: Job, why: str) -> None:
        """A cell was lost with its node and waits to run again."""


def run_here(jobs: Sequence[Job], watch: Watch) -> Iterator[tuple[Job, Outcome]]:
    """Run ``jobs`` in their order; each is given back when it has ended, whatever became of it."""
    with Server() as server:
        for job in jobs:
            watch.began(job)
            yield job, execute(job, lambda line, job=job: watch.said(job, line), server=server)
