"""Work that `strobe rollout` and `strobe rehearse` share: LeRobot's loop, the events, the bench, the files of a run."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from strobe.cli.flags import OutputFlags
from strobe.cli.live import Live
from strobe.cli.runner import Studied
from strobe.errors import UserError
from strobe.runs.rollout_files import leave


def choose_loop(theirs: Sequence[str], observations: bool) -> tuple[str, list[str]]:
    """Return the loop that the arguments after ``--`` name, and its own arguments.

    Args:
        observations: whether observations are recorded, which only a replay of lerobot-rollout reads.

    Raises:
        UserError: an unknown loop, or observations of another one.
    """
    from strobe.loops.registry import ROLLOUT, chosen

    command, arguments = chosen(theirs)
    if observations and command != ROLLOUT:
        raise UserError(f"--observations is for a replay of {ROLLOUT}: {command} leaves none to replay")
    return command, arguments


def events_file(output_dir: Path) -> Path:
    """Return where the events of this process's rollout go while it runs."""
    return output_dir / f"rollout-{os.getpid()}-{time.time_ns() // 1_000_000_000}.events"


def measure_on_bench(watched: Any, live: Live) -> None:
    """Call the run's policy on the bench, if it is still loaded. An interrupt ends that, and not the command."""
    if watched.calls is None:
        return
    from strobe.studies.rollout.bench import bench

    with contextlib.suppress(KeyboardInterrupt), live:  # the run's own answer is there already
        bench(watched, live)


def studied_rollout(
    name: str, config: OutputFlags, watched: Any, theirs: Sequence[str], events: Path, *, remove: bool = True
) -> Studied:
    """Return the answer of a watched rollout, whose folder gets its ``events``.

    Args:
        name: the command's.
        remove: whether the file of events is deleted once they are in the folder.
    """

    def save_events(folder: Path | None) -> Iterator[str]:
        assert folder is not None
        if watched.result.rollout.engine not in ("sync", "rtc"):  # nothing to replay
            if remove:
                events.unlink(missing_ok=True)
            return
        saved = list(leave(events, folder, remove=remove))
        yield from (f"{what:<7}  {file}" for file, what in saved)
        if saved:
            yield f"again    strobe replay {folder}"

    sys.stderr.flush()
    print()
    options = {name: config, "lerobot-rollout": list(theirs)}
    return Studied(watched.result, options, config.output_dir, config.thresholds, [watched.sections], after=save_events)
