"""Flags whose values are a library's own configs: a placeholder stands for the config until the library is imported.

A slice brings a class that knows the library's source; see `strobe.lerobot.flags.lazy_flags`. Also draccus's own flags
of a config, and one line for whatever it refuses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import logging
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from draccus.argparsing import ArgumentParser
from draccus.cfgparsing import parse_string

from strobe.core.errors import UserError, error_line


class Placeholder:
    """Stands for a library's config in a dataclass of flags."""

    @classmethod
    def options(cls, kind: str | None = None) -> list[str]:
        """Return the names of the config's flags, without their prefix; of the type ``kind`` only, where it has types.

        Raises UserError if there is no such type.
        """
        raise NotImplementedError

    @classmethod
    def config(cls, given: Mapping[str, Any], path: Sequence[str] = (), before: Any = None) -> Any:
        """Return the config with ``given``, field → value as YAML has them; a field of fields has a mapping.

        Args:
            path: the parts of the flags' prefix.
            before: the config that a file gave, to which ``given`` is added.

        Raises:
            UserError: no type where one has to be chosen.
            Exception: what draccus raises for a value of the wrong kind.
        """
        raise NotImplementedError

    @classmethod
    def values(cls, flags: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of flags, name without prefix → text, as `config` takes them."""
        raise NotImplementedError


def groups(config_class: Any) -> dict[str, type[Placeholder]]:
    """Return each prefix of flags and the config whose fields they are, such as 'inference.rtc' → RTCConfig."""
    prefixes: dict[str, type[Placeholder]] = {}
    for name, declared in typing.get_type_hints(config_class).items():
        for hint in (declared, *typing.get_args(declared)):
            if isinstance(hint, type) and issubclass(hint, Placeholder):
                prefixes[name] = hint
            elif hint is declared and dataclasses.is_dataclass(hint):
                prefixes |= {f"{name}.{inner}": config for inner, config in groups(hint).items()}
    return prefixes


def quote_text(config_class: object, name: str, text: str) -> str:
    """Return a flag's text as YAML has to have it: quoted, if YAML took it for another kind than its field's.

    A folder may be called off, 2024 or 2024-11-29. YAML reads these as a bool, a number and a date.
    """
    hint = config_class
    for part in name.split("."):
        hint = typing.get_type_hints(hint).get(part) if dataclasses.is_dataclass(hint) else None
    kinds = {*(typing.get_args(hint) or (hint,))} - {type(None)}
    read = parse_string(text) if kinds and kinds <= {str, Path} else text
    return text if read is None or isinstance(read, str | list | dict) else json.dumps(text)


@functools.cache
def option_names(config_class: Any) -> frozenset[str]:
    """Return every flag that draccus makes of a config class."""
    with errors_alone():
        parser = ArgumentParser(config_class)
    return frozenset(option for action in parser.parser._actions for option in action.option_strings)


@contextlib.contextmanager
def errors_alone() -> Iterator[None]:
    """Log nothing below the level of errors while open."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn whatever draccus and a config's own checks refuse inside into a UserError of one line."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), errors_alone():
            yield
    except SystemExit:
        lines = [line for line in errors.getvalue().splitlines() if "error:" in line]
        raise UserError(lines[-1].split("error:", 1)[1].strip() if lines else "wrong arguments") from None
    except UserError:
        raise
    except Exception as error:  # draccus and the configs' own checks raise many kinds, all of them the user's input
        # What a config itself refused says more than draccus around it.
        cause = error.__cause__ if isinstance(error.__cause__, ValueError) else error
        refused = cause if str(error).startswith("Couldn't instantiate class") else error
        raise UserError(one_line(refused)) from None


def one_line(error: BaseException) -> str:
    """Return an exception's message without its line breaks, cut after 300 characters."""
    text = error_line(error)
    return text if len(text) <= 300 else f"{text[:300]}…"
