"""Find the faults of a dataset, for every command that reads one."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError, error_line
from strobe.lerobot.datasets import images, recording, tables, videos
from strobe.lerobot.datasets.fault import DatasetError, Fault, merge, sentence
from strobe.lerobot.refusals import first_line, ran_out

LOG = logging.getLogger(__name__)
TOLERANCE_S = 1e-4  # LeRobot's own
GLANCE_S = 2.0  # longest search before anything has failed
SEARCH_S = 20.0  # longest search after a failure


@dataclass(frozen=True)
class Search:
    """What a search found.

    Args:
        faults: the worst first, one of each kind.
        chosen: the episodes that were to be read.
        unread: what was not looked at, and why.
    """

    faults: list[Fault]
    chosen: list[int]
    unread: list[str]

    @property
    def sentences(self) -> list[tuple[Fault, str]]:
        """The faults, each with its sentence."""
        return [(fault, sentence(fault, self.chosen)) for fault in self.faults]


def search(
    root: str | Path,
    named: str | None = None,
    episodes: Sequence[int] | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
    seconds: float = GLANCE_S,
    decode: bool = False,
    step: Callable[[], None] = lambda: None,
) -> Search:
    """Return the faults of the dataset at ``root``, and what was not looked at.

    Reads ``meta/``, the numbers in ``data/`` and the headers of videos.

    Args:
        named: its name on the Hub.
        episodes: the episodes to read; all by default.
        tolerance_s: seconds by which a frame may miss its time.
        seconds: time after which no further file is opened.
        decode: also decode the videos, if no other fault stops LeRobot.
        step: called after each file.
    """
    where, faults, chosen, unread = Path(root), [], list(episodes or ()), []
    until = time.monotonic() + seconds
    try:
        dataset = recording.read(where, named, episodes)
        chosen = dataset.chosen
        faults += tables.statistics(dataset)
        faults += images.dark(dataset)
        faults += tables.data(dataset, until, step)
        if any(fault.kind in ("rate", "timestamps") for fault in faults):
            unread.append("the videos' frames, because the timestamps are wrong")  # these explain faults of videos
            return Search(merge(faults), chosen, unread)
        faults += videos.videos(dataset, tolerance_s, until, step)
        if decode and not any(fault.stops for fault in faults):
            faults += videos.undecodable(dataset, tolerance_s, until)
        if time.monotonic() > until:
            unread.append(f"files of the dataset that were not read in {seconds:g} s")
    except DatasetError as error:
        faults.append(error.fault)
        unread.append("the rest of the dataset")
    except Exception as error:  # LeRobot may still read it, and else reports the error itself
        LOG.debug("the dataset at %s could not be checked", where, exc_info=True)
        unread.append(f"the dataset's files: {type(error).__name__}: {error_line(error, 120)}")
    return Search(merge(faults), chosen, unread)


def note_dataset_faults(
    root: str | Path,
    named: str | None = None,
    episodes: Sequence[int] | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
) -> list[str]:
    """Return, as notes of an answer, the faults of a dataset that can still be read.

    Raises:
        UserError: a fault stops LeRobot. The run would fail later, at the first affected frame.
    """
    faults = search(root, named, episodes, tolerance_s=tolerance_s).sentences
    if faults and faults[0][0].stops:
        raise UserError(f"the dataset at {root} is broken: {faults[0][1]}")
    return [f"the dataset at {root}: {text}" for _, text in faults]


def stopping(
    root: str | Path,
    named: str | None = None,
    episodes: Sequence[int] | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
    about: int | None = None,
) -> str | None:
    """Return in a line why LeRobot cannot read the dataset, if such a fault is found.

    It searches for `SEARCH_S`, and decodes videos if no other fault is found.

    Args:
        about: the episode that could not be read, if known.
    """
    found = search(root, named, episodes, tolerance_s=tolerance_s, seconds=SEARCH_S, decode=True)
    stops = [(fault, text) for fault, text in found.sentences if fault.stops]
    stops.sort(key=lambda entry: about is not None and about not in entry[0].episodes)
    return f"the dataset at {root} is broken: {stops[0][1]}" if stops else None


@contextlib.contextmanager
def reading(root: str | Path, named: str | None = None, episodes: Sequence[int] | None = None) -> Iterator[None]:
    """Read the dataset at ``root`` inside.

    Raises:
        UserError: reading failed; the text names the fault. A UserError that was raised inside passes.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if ran_out(error):
            raise
        reason = stopping(root, named, episodes)
        raise UserError(reason or f"the dataset at {root} cannot be read: {first_line(error)}") from error
