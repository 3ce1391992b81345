"""How an evaluation shares the machine's cores: how many processes, and torch's threads in each."""

from __future__ import annotations

import os
from pathlib import Path

from strobe.errors import UserError
from strobe.runs import episode_log


def parse_parallel(text: str) -> int:
    """``'auto'``, one process for each core that may be used, or a number of processes. Raises UserError."""
    if text == "auto":
        return _cores()
    if not text.isdecimal() or not int(text):
        raise UserError(f"--parallel={text}: write a number of processes from 1 on, or auto")
    return int(text)


def parse_each(text: str) -> int | None:
    """The same on a cluster: a number on each device of it; None for 'auto', one on each core. Raises UserError."""
    return None if text == "auto" else parse_parallel(text)


def threads_of(asked: int | None, processes: int, resumed: Path | None) -> int | None:
    """Return torch's threads where an episode is played; None: as torch chooses.

    Sums may differ in their last bits with the number of threads, so a run that is gone on with keeps its own.

    Args:
        asked: by the user.
        resumed: the run that is gone on with.

    Raises:
        UserError: there is no such run.
    """
    if asked is not None:
        return asked
    if resumed is not None:
        folder = resumed if resumed.is_dir() else resumed.parent
        before, _, _ = episode_log.read(folder / episode_log.NAME)
        if before.threads is not None:
            return before.threads
    return max(1, _cores() // processes) if processes > 1 else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
