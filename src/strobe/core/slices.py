"""The slices: one folder for each question, next to the core. Each declares in its ``slice.py`` what it adds.

The core imports no slice. It finds them where they lie, reads what they say, and imports what is behind a name only
when that is needed: a name is written ``module`` or ``module:attribute``. So a slice is there if its folder is there.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, TypeVar

from strobe.core.errors import UserError

T = TypeVar("T")
FOLDER = Path(__file__).parents[1]  # src/strobe

# The headings of `strobe --help`.
START = "Start: can this machine be trusted?"
UNDERSTAND = "Understand: where does the time go?"
SPEED_UP = "Speed up: what makes it fast enough?"
PROVE = "Prove: does it act the same?"
ROBOT = "Robot: does it get its actions in time?"
DATA = "Data: does it come fast enough?"
SHARE = "Share: over settings, machines and people"
GROUPS = (START, UNDERSTAND, SPEED_UP, PROVE, ROBOT, DATA, SHARE)
# What comes first in its group; the others follow by name.
_FIRST = (
    "doctor", "breakdown", "compare", "train", "optimize", "budget", "batch", "verify", "evaluate", "tune", "trials",
    "diff", "preflight", "rollout", "rehearse", "replay", "dataloader", "report",
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Args:
        name: what stands behind ``strobe``.
        group: the heading in `strobe --help`, one of `GROUPS`.
        answers: the line in `strobe --help`.
        module: holds the command's ``run``.
    """

    name: str
    group: str
    answers: str
    module: str


@dataclass(frozen=True)
class Kind:
    """One kind of answer: how it is read, judged and shown.

    Args:
        answer: the name of its class, an `Answer` whose ``study`` is the kind's.
        page: the module of its page; see `strobe.core.report.frame.Page`.
        rules: names of tuples of rules, or of rules.
        plausible: whether rules see it without figures that they must not divide by; see `findings.view.plausible`.
    """

    answer: str
    page: str
    rules: tuple[str, ...] = ()
    plausible: bool = False


@dataclass(frozen=True)
class Source:
    """Where commands get other subjects than policies and backbones of LeRobot's and transformers'.

    A command may take them in a form of its own, with the flags and the help that these subjects need.

    Args:
        forms: name of a command that takes them → the name of its form, a `strobe.core.cli.runner.Command`; '' for a
            command that takes them itself.
        otherwise: what any other command does, in words.
        flags: those that name such a subject; one that ends in a dot stands for all that begin so.
        keys: of a ``--variant``, those that name one.
    """

    forms: Mapping[str, str]
    otherwise: str
    flags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def find_flag(self, argv: Sequence[str]) -> str | None:
        """Return the flag among a command's arguments that names such a subject; None if none does."""
        prefixes = tuple(flag for flag in self.flags if flag.endswith("."))
        for name, value in _iter_flags(argv):
            if name in self.flags or (prefixes and name.startswith(prefixes)):
                return name
            if name == "--variant" and any(key in self.keys for key, _ in variant_settings(value)):
                return name
        return None


@dataclass(frozen=True)
class Slice:
    """What a folder adds to the core.

    Args:
        kinds: study → its kind of answer.
        records: name of a record in the answers of the core → its class.
        rules: study of another slice → names of rules on it.
        shows: study of another slice → names of modules with more of its page; see `strobe.core.report.frame.Part`.
        looks: study → names of functions of its answer and its command's config, which add to the answer.
        offers: what others can do only with this slice → the name of what does it; see `Offer`.
        sources: where commands get other subjects.
        families: names of packages, each file of which has a ``FAMILY``.
        environments: names of modules that register environments with LeRobot.
        treatments: names of tables of treatments; see `strobe.core.treatments.spec.Words`.
    """

    commands: tuple[Command, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    looks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offers: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    families: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    treatments: tuple[str, ...] = ()


@cache
def slices() -> dict[str, Slice]:
    """Return name → slice: the core's own first, then those whose folders are there, by name."""
    names = sorted(file.parent.name for file in FOLDER.glob("*/slice.py") if file.parent.name != "core")
    return {name: _slice(name) for name in ("core", *names)}


@cache
def _slice(name: str) -> Slice:
    return importlib.import_module(f"strobe.{name}.slice").SLICE


def load(name: str) -> Any:
    """Return the module or the attribute that ``name`` names."""
    module, _, attribute = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def commands() -> dict[str, Command]:
    """Return name → command of all slices."""
    return {command.name: command for each in slices().values() for command in each.commands}


def group_commands() -> dict[str, list[Command]]:
    """Return heading → its commands, in the order of help."""
    place = {name: number for number, name in enumerate(_FIRST)}
    ordered = sorted(commands().values(), key=lambda command: (place.get(command.name, len(place)), command.name))
    return {group: [command for command in ordered if command.group == group] for group in GROUPS}


def command(name: str) -> Command | None:
    """Return the command called ``name``. Of a folder with that name no other slice is read."""
    if name.isidentifier() and (FOLDER / name / "slice.py").is_file():
        for found in _slice(name).commands:
            if found.name == name:
                return found
    return commands().get(name)


@cache
def kinds() -> dict[str, Kind]:
    """Return study → the kind of its answer."""
    return {study: kind for each in slices().values() for study, kind in each.kinds.items()}


@cache
def sources() -> tuple[Source, ...]:
    """Return the sources of all slices; those with flags of their own first, which say more than keys of a variant."""
    return tuple(
        sorted((source for each in slices().values() for source in each.sources), key=lambda one: bool(one.keys))
    )


def variant_settings(text: str) -> list[tuple[str, str]]:
    """Return the keys and values after the name of a variant, ``'NAME: key=value, key=value'``."""
    given = [pair.partition("=") for pair in text.partition(":")[2].split(",") if pair.strip()]
    return [(key.strip(), value.strip()) for key, _, value in given]


def _iter_flags(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags before a ``--`` with their values; '' for one that has none."""
    ours = list(argv[: argv.index("--")] if "--" in argv else argv)
    for argument, after in zip_longest(ours, ours[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            yield f"--{name[2:].replace('-', '_')}", value if equals or after.startswith("--") else after


def record_class(name: str) -> type[Any] | None:
    """Return the class of a record that a slice adds to an answer of the core; None without that slice."""
    return next((load(each.records[name]) for each in slices().values() if name in each.records), None)


@dataclass(frozen=True)
class Offer(Generic[T]):
    """A ``T`` that only a slice has, under its name among the `Slice.offers`."""

    name: str

    def find(self) -> T | None:
        """Return what a slice offers; None without that slice."""
        return next((load(each.offers[self.name]) for each in slices().values() if self.name in each.offers), None)

    def require(self) -> T:
        """Return what a slice offers. Raises UserError without that slice."""
        if (offered := self.find()) is None:
            raise UserError(f"this installation of Strobe has no {self.name}")
        return offered
