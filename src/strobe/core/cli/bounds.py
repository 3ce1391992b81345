"""Bounds and choices of a flag: declared with a config's field, checked for every config, shown by --help.

    depth: int = field(default=1, metadata=at_least(1))
    render: str = field(default="needed", metadata=one_of("needed", "always"))
    run: Path | None = field(default=None, metadata=positional("RUN"))

None is not checked, so it may stand for a value that is found later.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strobe.core.errors import UserError, nearest

_BOUND, _POSITIONAL, _BARE = "strobe.bound", "strobe.positional", "strobe.bare"


@dataclass(frozen=True)
class Bound:
    """The values that a flag takes.

    Args:
        words: for the help, if the flag's comment does not say it.
        refuses: returns why a value is refused, such as 'must be above 0'.
    """

    words: str | None
    refuses: Callable[[Any], str | None]


def minimum_bound(least: float) -> dict[str, Bound]:
    """Metadata of a field that takes ``least`` and what is above it."""
    words = "0 or more" if least == 0 else f"at least {least:g}"
    return {_BOUND: Bound(words, lambda value: None if value >= least else f"must be {words}")}


def exclusive_minimum_bound(limit: float, *, finite: bool = False) -> dict[str, Bound]:
    """Metadata of a field that takes what is above ``limit``; infinity too, unless ``finite``."""

    def refuses(value: float) -> str | None:
        if finite and math.isinf(value):
            return "must be a finite number"
        return None if value > limit else f"must be above {limit:g}"

    return {_BOUND: Bound(f"above {limit:g}", refuses)}


def open_interval_bound(low: float, high: float) -> dict[str, Bound]:
    """Metadata of a field that takes what lies between ``low`` and ``high``, without the two."""
    words = f"between {low:g} and {high:g}"
    return {_BOUND: Bound(words, lambda value: None if low < value < high else f"must be {words}")}


def choice_bound(*choices: str) -> dict[str, Bound]:
    """Metadata of a field that takes one of the choices."""
    words = f"one of {', '.join(choices)}"
    return {_BOUND: Bound(words, lambda value: None if value in choices else nearest(value, choices))}


def custom_bound(refuses: Callable[[Any], str | None]) -> dict[str, Bound]:
    """Metadata of a field whose values ``refuses`` judges, as `Bound.refuses`."""
    return {_BOUND: Bound(None, refuses)}


def positional(name: str) -> dict[str, str]:
    """Metadata of a field that is given without a flag; ``name`` stands for it in the help."""
    return {_POSITIONAL: name}


def bare(value: str) -> dict[str, str]:
    """Metadata of a field whose flag may stand without a value, and then means ``value``; others need ``--flag=``."""
    return {_BARE: value}


def field_bound(item: dataclasses.Field[object]) -> Bound | None:
    """Return the bound that a dataclass's field declares; None without one."""
    return item.metadata.get(_BOUND)


def positional_name(item: dataclasses.Field[object]) -> str | None:
    """Return the name of a field that is given without a flag; None for a flag."""
    return item.metadata.get(_POSITIONAL)


def bare_flag_value(item: dataclasses.Field[object]) -> str | None:
    """Return what a field's flag means without a value; None if it needs one."""
    return item.metadata.get(_BARE, "true" if "bool" in str(item.type) else None)


def check_bounds(config: Any, prefix: str = "") -> None:
    """Check the values of a config (a dataclass instance) and of the configs in it.

    Args:
        prefix: what stands before the flags' names, such as 'model.'.

    Raises:
        UserError: a value outside its bound, as '--depth=0: must be at least 1'.
    """
    for item in dataclasses.fields(config):
        if not item.init:  # no flag
            continue
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            check_bounds(value, f"{prefix}{item.name}.")
            continue
        bound = field_bound(item)
        if bound is not None and value is not None and (why := bound.refuses(value)):
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            raise UserError(f"--{prefix}{item.name}={shown}: {why}")
