"""From an argument list to a command's config, in LeRobot's spelling.

draccus makes the config. Before it, each flag is checked against the known ones. One of another tool is answered with
what it is here (`former_flags`), a misspelt one with the nearest; arguments without a flag are taken out; values of a
library's own configs are checked by its placeholders (`placeholders`). After it, values are held to their bounds
(`bounds`). Whatever goes wrong is one line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import draccus
from draccus.wrappers import docstring

from strobe.core import demo
from strobe.core.cli.bounds import bare_flag_value, check_bounds, positional_name
from strobe.core.cli.live import call_ahead_of_imports
from strobe.core.cli.placeholders import groups, option_names, quote_text, refusals
from strobe.core.errors import UserError, same_words
from strobe.core.slices import Offer

# Whenever draccus parses, it searches the source of each class for the help of each field: half of its time.
docstring.get_attribute_docstring = functools.cache(docstring.get_attribute_docstring)

C = TypeVar("C")


class Hint(NamedTuple):
    """The flags that take the place of an unknown one.

    Args:
        text: for a reader.
        flags: as they are typed. The first gets the user's value, unless it has one that ``stays``.
        after: whether they come after the ``--``; None for where the unknown flag is.
    """

    text: str
    flags: tuple[str, ...] = ()
    after: bool | None = None
    stays: bool = False


FORMER_FLAG: Offer[Callable[[str, Sequence[str], str], Hint | None]] = Offer("flags of other tools")


class MissingFlagError(UserError):
    """A flag that must be there; ``flag`` is an example of it with its value."""

    def __init__(self, text: str, flag: str) -> None:
        super().__init__(text)
        self.flag = flag


class UnknownFlagError(UserError):
    """An unknown flag of Strobe's, or of the arguments of LeRobot's ``command`` after the ``--``."""

    def __init__(self, name: str, hint: Hint, command: str | None = None) -> None:
        unknown = f"{command} has no flag {name}" if command else f"unknown flag {name}"
        super().__init__(f"{unknown}: {hint.text}".removesuffix(": known: , …"))
        self.name, self.hint, self.behind = name, hint, command is not None

    def correct(self, argv: Sequence[str]) -> list[str]:
        """Return ``argv`` with the hint's flags in the flag's place, or without it where the hint has none."""
        ours, after = split_lerobot(argv)
        theirs = after or []
        side = theirs if self.behind else ours
        names = [argument.partition("=")[0].replace("-", "_") for argument in side]
        if (name := self.name.replace("-", "_")) not in names:
            return list(argv)
        at = names.index(name)
        _, equals, value = side.pop(at).partition("=")
        if not equals and at < len(side) and not side[at].startswith("--"):
            value = side.pop(at)
        if self.hint.after is not None:
            side = theirs if self.hint.after else ours
            at = len(side)
        flags = list(self.hint.flags)
        flag, _, given = flags[0].partition("=") if flags else ("", "", "")
        is_kept = value and not (self.hint.stays or (given and value == "true"))
        if flags and is_kept and (value[:1].isdigit() or not given[:1].isdigit()):
            flags[0] = f"{flag}={value}"
        has = {argument.partition("=")[0] for argument in side} - {"--variant"}
        side[at:at] = [flag for flag in flags if flag.partition("=")[0] not in has]
        return [*ours, *(["--", *theirs] if theirs else [])]


def read_all(command: str, read: Callable[[Sequence[str]], C], argv: Sequence[str]) -> C:
    """Return what ``read`` makes of the arguments of ``command``.

    Raises:
        UserError: where a flag is unknown, on all that are, and on what is wrong without them, with the command that
            is meant. Nothing heavy is imported for that.
    """
    said: list[str] = []
    meant = list(argv)
    while True:
        try:
            with call_ahead_of_imports(stop) if said else contextlib.nullcontext():
                config = read(meant)
            if not said:
                return config
            break
        except UserError as error:
            if not (said or isinstance(error, UnknownFlagError)):
                raise
            if str(error) in ("", *said):
                break
            said.append(str(error))
            if isinstance(error, UnknownFlagError):
                meant = error.correct(meant)
            elif isinstance(error, MissingFlagError):
                meant.append(error.flag)
                if "FOLDER" in error.flag:
                    break
    raise UserError("\n".join([*said, demo.restore_typed_name(f"Corrected: strobe {shlex.join([command, *meant])}")]))


def stop() -> None:
    """End a reading of flags before anything heavy is imported. Raises UserError, without words."""
    raise UserError


def split_lerobot(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Split into Strobe's flags and LeRobot's, which stand after ``--`` (None if there is no ``--``)."""
    arguments = list(argv)
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def require_lerobot(theirs: list[str] | None, program: str, example: str) -> list[str]:
    """Return the arguments after ``--``. Raises UserError, with an example, where there is no ``--``."""
    if theirs is None:
        raise UserError(f"{program}'s arguments are missing; they come after --: strobe {example}")
    return theirs


def take_repeated(argv: Sequence[str], flag: str) -> tuple[list[str], list[str]]:
    """Take every occurrence of ``--flag VALUE`` out of ``argv``. Return the values, and the rest."""
    values, rest = [], []
    for name, value in pairs(argv):
        if name != flag:
            rest.append(format_argument(name, value))
        elif value is None:
            raise UserError(f"{flag} needs a value")
        else:
            values.append(value)
    return values, rest


def take_positional(config_class: Any, argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of ``argv`` that are neither a flag nor a flag's value, and the rest.

    A flag that may stand without a value (`bounds.bare_of`) takes none from the next argument.
    """
    bare = {f"--{item.name}" for item in dataclasses.fields(config_class) if bare_flag_value(item) is not None}
    words, flags, awaited = [], [], False
    for argument in argv:
        is_flag = argument.startswith("--")
        (flags if is_flag or awaited else words).append(argument)
        awaited = is_flag and "=" not in argument and f"--{argument[2:].replace('-', '_')}" not in bare
    return words, flags


def pairs(argv: Sequence[str]) -> Iterable[tuple[str, str | None]]:
    """Return ``--a=1 --b 2 --c`` as pairs, None without a value; ``--a-b`` is ``--a_b``. Raises UserError for more."""
    index = 0
    while index < len(argv):
        argument = argv[index]
        index += 1
        if not argument.startswith("--"):
            raise UserError(f"'{argument}' is not a flag; flags start with --")
        name, equals, value = argument.partition("=")
        name = f"--{name[2:].replace('-', '_')}"
        if equals:
            yield name, value
        elif index < len(argv) and not argv[index].startswith("--"):
            yield name, argv[index]
            index += 1
        else:
            yield name, None


def format_argument(name: str, value: str | None) -> str:
    """Return a pair of `pairs` as one argument."""
    return name if value is None else f"{name}={value}"


def parse(
    config_class: type[C],
    argv: Sequence[str],
    *,
    extra: Iterable[str] = (),
    exact: Iterable[str] = (),
    refused: Mapping[str, str] | None = None,
    behind: str = "",
) -> C:
    """Parse ``argv`` into ``config_class`` (a dataclass).

    Args:
        extra: flags that were taken out before, offered for a misspelt one that resembles them.
        exact: further ones, many, offered where a flag has the same words. Only an unknown flag asks for them.
        behind: the command of LeRobot whose arguments come after the ``--``.
        refused: flags of other commands → why this one has none of them. A key stands for its fields, too.

    Raises:
        UserError: an unknown flag (with the nearest known one), a value of the wrong kind or outside its bound, a
            flag that is missing.
    """
    items = {f"--{item.name}": item for item in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    positional = [item for item in items.values() if positional_name(item)]
    words, argv = take_positional(config_class, argv) if positional else ([], argv)
    given = list(pairs(argv))
    names = [name for name, _ in given]
    for name in names:
        if why := (refused or {}).get(name) or (refused or {}).get(name.partition(".")[0]):
            raise UserError(why)
    lazy = groups(config_class)
    fields: dict[str, dict[str, str]] = {prefix: {} for prefix in lazy}  # of LeRobot's configs, parsed apart
    arguments = []
    for name, value in given:
        prefix = next((prefix for prefix in fields if name.startswith(f"--{prefix}.")), None)
        if prefix is not None:
            fields[prefix][name.removeprefix(f"--{prefix}.")] = value or ""
        else:  # draccus wants the value of a bare flag spelt out
            default = bare_flag_value(items[name]) if name in items else None
            arguments.append(f"{name}={quote_text(config_class, name[2:], default or '' if value is None else value)}")
    known = {*option_names(config_class)} - {f"--{item.name}" for item in positional}
    for prefix, placeholder in lazy.items():
        if fields[prefix]:
            known |= {f"--{prefix}.{name}" for name in placeholder.options(fields[prefix].get("type"))}

    def others() -> Iterable[str]:
        unused = [prefix for prefix in lazy if not fields[prefix]]
        return [*extra, *(f"--{prefix}.{name}" for prefix in unused for name in lazy[prefix].options())]

    check_names(known, names, others=others, exact=exact, behind=behind)
    with refusals():
        config: C = draccus.parse(config_class, args=arguments)  # type: ignore[assignment]
        for prefix, placeholder in lazy.items():
            if fields[prefix]:
                *path, name = prefix.split(".")
                owner = functools.reduce(getattr, path, config)
                values = placeholder.values(fields[prefix])
                setattr(owner, name, placeholder.config(values, [*path, name], getattr(owner, name)))
    _set_positional(config, positional, words)
    check_bounds(config)
    return config


def _set_positional(config: object, items: Sequence[dataclasses.Field[object]], words: Sequence[str]) -> None:
    """Give the positional fields their words: a list takes all that are there. Raises UserError for too few or many."""
    remaining = list(words)
    for item in items:
        name = positional_name(item)
        if not remaining:
            raise UserError(f"{name} is missing: see the examples of --help")
        if "list" in str(item.type):
            setattr(config, item.name, [Path(word) for word in remaining])
            remaining = []
        else:
            setattr(config, item.name, Path(remaining.pop(0)))
    if remaining:
        raise UserError(f"unexpected argument '{remaining[0]}': see --help")


def check_names(
    known: Collection[str],
    names: Iterable[str],
    *,
    others: Callable[[], Iterable[str]] = tuple,
    exact: Iterable[str] = (),
    behind: str = "",
) -> None:
    """Raises UserError for a flag that is not among the ``known`` ones, with the one that is meant.

    Args:
        known: flags; one that ends in ``.*`` stands for all that begin so.
        others: gives further flags that a misspelt one may have meant.
        exact, behind: as `parse` takes them.
    """
    open_ended = tuple(name[:-1] for name in known if name.endswith(".*"))
    for name in names:
        if name in known or name == "--config_path" or (open_ended and name.startswith(open_ended)):
            continue
        offered = sorted(option for option in known if option.startswith("--")) + list(others())
        all_offered = [*offered, *exact]
        if (former_flag := FORMER_FLAG.find()) and (hint := former_flag(name, all_offered, behind)):
            raise UnknownFlagError(name, hint)
        close = list(dict.fromkeys(same_words(name, all_offered)))[:3]
        close = close or difflib.get_close_matches(name, offered, n=1, cutoff=0.6)
        meant = f"did you mean {' or '.join(close)}?" if close else "see --help"
        raise UnknownFlagError(name, Hint(meant, tuple(close[:1])))
