"""The files that a rollout leaves in its run folder: its events, packed, and its observations where they were kept."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

from strobe.errors import NotKeptError, UserError, in_words

EVENTS = "events.jsonl.gz"
OBSERVATIONS = "observations"


def beside(events: Path) -> Path:
    """The folder for observations of the run whose events go to ``events``, while it runs."""
    return events.with_suffix(".observations")


def leave(events: Path, folder: Path, *, remove: bool = True) -> Iterator[tuple[Path, str]]:
    """Pack ``events`` into the run's ``folder`` and move the observations beside them there.

    Args:
        remove: delete the file of events, once it is packed.

    Yields:
        Each file or folder that is there now, and what it is.

    Raises:
        NotKeptError: they could not be written there; they stay where they were.
    """
    packed = folder / EVENTS
    try:
        if events.suffix != ".gz":
            with events.open("rb") as plain, gzip.open(packed, "xb", compresslevel=5) as file:
                shutil.copyfileobj(plain, file)
        else:
            shutil.copyfile(events, packed)
        yield packed, "events"
        if beside(events).is_dir():
            shutil.move(beside(events), folder / OBSERVATIONS)
            yield folder / OBSERVATIONS, "seen"
    except FileNotFoundError:  # they could not be written: the answer says so
        packed.unlink(missing_ok=True)
        return
    except OSError as error:
        packed.unlink(missing_ok=True)
        raise NotKeptError(f"cannot write {packed}: {in_words(error)}; the events are in {events}") from None
    if remove:
        events.unlink(missing_ok=True)


def events_of(run: Path) -> Path:
    """The events of a kept rollout, given its folder, its ``result.json``, or a killed run's file of events.

    Raises:
        UserError: there is no such run, or it kept none.
    """
    if run.is_file() and run.suffix in (".events", ".gz"):
        return run
    folder = run.parent if run.is_file() else run
    if not folder.is_dir():
        raise UserError(f"no run at {run}: name the folder of a rollout that was kept")
    if not (folder / EVENTS).is_file():
        raise UserError(f"{folder} holds no {EVENTS}: it is no rollout, or an older Strobe kept none: run it again")
    return folder / EVENTS


def observations_of(events: Path) -> Path | None:
    """The folder of observations that belongs to ``events``; None where none were kept."""
    folder = events.parent / OBSERVATIONS if events.name == EVENTS else beside(events)
    return folder if folder.is_dir() else None
