"""The request of an evaluation: its variants (denoising steps, recipes), and how it shares the machine's cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.errors import UserError
from strobe.runs import episode_log

if TYPE_CHECKING:
    from strobe.policies.policy_subject import PolicySubject
    from strobe.treatments.treatment import Variant

FIRST = "as it is"


@dataclass(frozen=True)
class Candidate:
    """A variant, and what it is.

    Args:
        written: its treatments as on a command line; '' for the policy as it is.
        steps: denoising steps; None where the policy has none, or the variant is of another setting.
        recipe: the recipe's file; '' where it has none.
    """

    variant: Variant
    written: str = ""
    steps: int | None = None
    recipe: str = ""

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.variant.name


@dataclass(frozen=True)
class Candidates:
    """All variants, the policy as it is first; ``notes`` on requested ones that are not among them."""

    all: list[Candidate]
    notes: list[str] = field(default_factory=list)


def parse_steps(text: str) -> tuple[int, ...]:
    """``'10,5,2'`` as numbers of denoising steps. Raises UserError."""
    return _counts("--steps", text, "denoising steps", "10,5,2")


def parse_executed(text: str) -> tuple[int, ...]:
    """``'10,25,50'`` as numbers of actions that are executed of a chunk. Raises UserError."""
    return _counts("--n_action_steps", text, "actions", "10,25,50")


def _counts(flag: str, text: str, what: str, example: str) -> tuple[int, ...]:
    def read(part: str) -> int | None:
        return int(part) if part.isdecimal() and int(part) else None

    return parse_numbers(flag, text, read, f"is not a number of {what}: write {flag}={example}")


def parse_numbers[N](flag: str, text: str, read: Callable[[str], N | None], wrong: str) -> tuple[N, ...]:
    """Return the numbers of ``'10,5,2'``, each given once.

    Args:
        read: makes a number of a part; None where it is none.
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


def candidates(
    subject: PolicySubject, steps: Sequence[int], recipes: Sequence[Path], executed: Sequence[int] = ()
) -> Candidates:
    """Make the variants, and put each on ``subject`` once to see that it applies.

    Args:
        executed: numbers of actions of a chunk that are executed before the next call, LeRobot's ``n_action_steps``.

    Raises:
        UserError: the policy has no denoising steps or no queue of actions, or a recipe does not apply.
    """
    from strobe.policies.families.registry import steps_field, steps_of
    from strobe.treatments.recipe import rungs_of
    from strobe.treatments.settings import Settings
    from strobe.treatments.treatment import Variant

    config: Any = subject.policy.config
    own, name = steps_of(config), steps_field(config)
    if steps and not name:
        raise UserError(f"--steps: the policy type '{config.type}' has no denoising steps: leave it out")
    made, notes = [Candidate(Variant(FIRST), steps=own)], list[str]()
    for count in steps:
        if count == own:
            notes.append(f"{_steps(count)} are the policy's own: they are played once")
            continue
        setting = Settings({name: count})
        made.append(Candidate(Variant(_steps(count), (setting,)), f"policy.{name}={count}", count))
    for count in executed:
        if not hasattr(config, "n_action_steps"):
            raise UserError(f"--n_action_steps: the policy type '{config.type}' has no such setting: leave it out")
        if count == config.n_action_steps:
            notes.append(f"n_action_steps={count} is the policy's own: it is played once")
            continue
        setting = Settings({"n_action_steps": count})
        made.append(Candidate(Variant(f"n_action_steps={count}", (setting,)), f"policy.n_action_steps={count}"))
    for path in recipes:
        rungs = rungs_of(subject, path)
        made.append(Candidate(Variant(path.name, rungs), "; ".join(rung.written for rung in rungs), own, path.name))
    names = [candidate.name for candidate in made]
    for candidate in made:
        if names.count(candidate.name) > 1:
            raise UserError(f"--recipe: rename the recipe '{candidate.name}': a variant has that name already")
        candidate.variant.require("inference")
        _try(candidate, subject)
    return Candidates(made, notes)


def _try(candidate: Candidate, subject: PolicySubject) -> None:
    try:
        candidate.variant.apply(subject)()
    except UserError as error:
        raise UserError(f"'{candidate.name}' does not apply: {error}") from None


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


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
