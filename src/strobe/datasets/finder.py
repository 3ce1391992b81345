"""Looks for what is wrong with a dataset: the one place that every command which reads one asks."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from strobe.datasets import recording, tables, videos
from strobe.datasets.fault import Broken, Fault, sentence, together
from strobe.errors import UserError
from strobe.lerobot.refusals import first_line, ran_out

LOG = logging.getLogger(__name__)
TOLERANCE_S = 1e-4  # LeRobot's own
GLANCE_S = 2.0  # that a look takes at most where nothing has failed
SEARCH_S = 20.0  # and where something has


def look(
    root: str | Path,
    named: str | None = None,
    episodes: Sequence[int] | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
    seconds: float = GLANCE_S,
    decode: bool = False,
) -> list[tuple[Fault, str]]:
    """Find what is wrong with the dataset at ``root``: each fault with its sentence, the worst first.

    Reads ``meta/``, the numbers in ``data/`` and the headers of videos.

    Args:
        named: its name on the Hub.
        episodes: those that are to be read; all by default.
        tolerance_s: how far a frame may be from its time, in seconds.
        seconds: after which no further file is opened.
        decode: also decode the videos, if nothing else is found that LeRobot cannot read.
    """
    where, found, chosen = Path(root), [], list(episodes or ())
    until = time.monotonic() + seconds
    try:
        read = recording.read(where, named or "", episodes)
        chosen = read.chosen
        found += tables.statistics(read)
        found += tables.data(read, until)
        if any(fault.kind in ("rate", "timestamps") for fault in found):
            return _with_sentences(found, chosen)  # which explain whatever videos lack
        found += videos.videos(read, tolerance_s, until)
        if decode and not any(fault.stops for fault in found):
            found += videos.undecodable(read, tolerance_s, until)
    except Broken as error:
        found.append(error.fault)
    except Exception:  # what makes no sense to Strobe may do to LeRobot, which says so if not
        LOG.debug("the dataset at %s could not be looked at", where, exc_info=True)
    return _with_sentences(found, chosen)


def _with_sentences(faults: Sequence[Fault], chosen: Sequence[int]) -> list[tuple[Fault, str]]:
    return [(fault, sentence(fault, chosen)) for fault in together(faults)]


def checked(
    root: str | Path,
    named: str | None = None,
    episodes: Sequence[int] | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
) -> list[str]:
    """Return, for the notes of an answer, what is wrong with a dataset that can be read all the same.

    Raises:
        UserError: a glance finds what LeRobot cannot read. It would fail later, at whichever frame comes up.
    """
    found = look(root, named, episodes, tolerance_s=tolerance_s)
    if found and found[0][0].stops:
        raise UserError(f"the dataset at {root} is broken: {found[0][1]}")
    return [f"the dataset at {root}: {told}" for _, told in found]


def stopping(
    root: str | Path,
    named: str | None = None,
    episodes: Sequence[int] | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
    about: int | None = None,
) -> str:
    """Return in a line what LeRobot cannot read of the dataset; '' where nothing of that kind is found.

    Looks longer than `look`, and decodes videos where nothing else is found.

    Args:
        about: the episode that could not be read, where that is known.
    """
    found = look(root, named, episodes, tolerance_s=tolerance_s, seconds=SEARCH_S, decode=True)
    told = [one for one in found if one[0].stops]
    told.sort(key=lambda one: about is not None and about not in one[0].episodes)
    return f"the dataset at {root} is broken: {told[0][1]}" if told else ""


@contextlib.contextmanager
def reading(
    root: str | Path,
    named: str | None = None,
    episodes: Sequence[int] | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
) -> Iterator[None]:
    """Read the dataset at ``root`` inside.

    Raises:
        UserError: reading failed, with what is wrong with the dataset; one that was raised inside passes.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if ran_out(error):
            raise
        found = stopping(root, named, episodes, tolerance_s=tolerance_s)
        raise UserError(found or f"the dataset at {root} cannot be read: {first_line(error)}") from error
