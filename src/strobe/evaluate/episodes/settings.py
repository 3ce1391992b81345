"""The request of episodes: a variant and what it is, flags as numbers, and how players share the machine's cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from strobe.core.errors import UserError
from strobe.evaluate import episode_log

if TYPE_CHECKING:
    from strobe.core.treatments.treatment import Variant

N = TypeVar("N")

FIRST = "as it is"


@dataclass(frozen=True)
class Candidate:
    """A variant, and what it is.

    Args:
        written: its treatments as on a command line; '' for the policy as it is.
        steps: denoising steps; None if the policy has none, or the variant is of another setting.
        recipe: the recipe's file; '' if it has none.
    """

    variant: Variant
    written: str = ""
    steps: int | None = None
    recipe: str = ""

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.variant.name


def parse_steps(text: str) -> tuple[int, ...]:
    """``'10,5,2'`` as numbers of denoising steps. Raises UserError."""
    return parse_counts("--steps", text, "denoising steps", "10,5,2")


def parse_counts(flag: str, text: str, what: str, example: str) -> tuple[int, ...]:
    """Return the numbers of ``text``, of ``what`` in words, each given once. Raises UserError with the ``example``."""

    def read(part: str) -> int | None:
        return int(part) if part.isdecimal() and int(part) else None

    return parse_numbers(flag, text, read, f"is not a number of {what}: write {flag}={example}")


def parse_numbers(flag: str, text: str, read: Callable[[str], N | None], wrong: str) -> tuple[N, ...]:
    """Return the numbers of ``'10,5,2'``, each given once.

    Args:
        read: makes a number of a part; None if it is none.
        wrong: what such a part is, in words, for the message.

    Raises:
        UserError: a part that is no such number, or one that is given twice.
    """
    numbers: list[N] = []
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        number = read(part)
        if number is None:
            raise UserError(f"{flag}={text}: '{part}' {wrong}")
        if number in numbers:
            raise UserError(f"{flag}={text}: give each number once")
        numbers.append(number)
    return tuple(numbers)


def parse_recipes(text: str) -> tuple[Path, ...]:
    """``'a.yaml,b.yaml'`` as files of different names, by which the answer tells them apart. Raises UserError."""
    paths = tuple(Path(part.strip()) for part in text.split(",") if part.strip())
    for path in paths:
        if [other.name for other in paths].count(path.name) > 1:
            raise UserError(f"--recipe={text}: two recipes called {path.name}: give each a name of its own")
    return paths


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


def threads_of(requested: int | None, processes: int, resumed: Path | None) -> int | None:
    """Return torch's threads where an episode is played; None: as torch chooses.

    Sums may differ in their last bits with the number of threads, so a resumed run keeps its own.

    Args:
        requested: by the user; None: not given.
        resumed: the run that --resume continues.

    Raises:
        UserError: there is no such run.
    """
    if requested is not None:
        return requested
    if resumed is not None:
        folder = resumed if resumed.is_dir() else resumed.parent
        before, _, _ = episode_log.read(folder / episode_log.NAME)
        if before.threads is not None:
            return before.threads
    return max(1, _cores() // processes) if processes > 1 else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
