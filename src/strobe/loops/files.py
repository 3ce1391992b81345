"""The files of a rollout in its run folder: its packed events, and its observations if they were saved."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

from strobe.core.errors import NotKeptError, UserError, os_error_reason

EVENTS = "events.jsonl.gz"
OBSERVATIONS = "observations"


def observations_folder(events: Path) -> Path:
    """Return the folder for observations of a run in progress whose events go to ``events``."""
    return events.with_suffix(".observations")


def leave(events: Path, folder: Path, *, remove: bool = True) -> Iterator[tuple[Path, str]]:
    """Pack ``events`` into the run's ``folder`` and move the observations next to them there.

    Args:
        remove: delete the file of events, once it is packed.

    Yields:
        Each new file or folder, and its meaning.

    Raises:
        NotKeptError: they could not be written there. They stay in place.
    """
    packed = folder / EVENTS
    try:
        if events.suffix != ".gz":
            with events.open("rb") as plain, gzip.open(packed, "xb", compresslevel=5) as file:
                shutil.copyfileobj(plain, file)
        else:
            shutil.copyfile(events, packed)
        yield packed, "events"
        if observations_folder(events).is_dir():
            shutil.move(observations_folder(events), folder / OBSERVATIONS)
            yield folder / OBSERVATIONS, "seen"
    except FileNotFoundError:  # there are no events; the answer reports it
        packed.unlink(missing_ok=True)
        return
    except OSError as error:
        packed.unlink(missing_ok=True)
        raise NotKeptError(f"cannot write {packed}: {os_error_reason(error)}; the events are in {events}") from None
    if remove:
        events.unlink(missing_ok=True)


def events_path(run: Path) -> Path:
    """Return the events of a saved rollout, given its folder, its ``result.json``, or a killed run's file of events.

    Raises:
        UserError: there is no such run, or it has no events.
    """
    if run.is_file() and run.suffix in (".events", ".gz"):
        return run
    folder = run.parent if run.is_file() else run
    if not folder.is_dir():
        raise UserError(f"no run at {run}: name the folder of a saved rollout")
    if not (folder / EVENTS).is_file():
        raise UserError(f"{folder} has no {EVENTS}: it is not a rollout, or an older Strobe recorded it; run it again")
    return folder / EVENTS


def saved_observations(events: Path) -> Path | None:
    """Return the folder of observations that belongs to ``events``; None if none were saved."""
    folder = events.parent / OBSERVATIONS if events.name == EVENTS else observations_folder(events)
    return folder if folder.is_dir() else None
