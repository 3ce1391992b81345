"""What a flag takes: declared with a config's field, checked for every config, shown by --help.

    depth: int = field(default=1, metadata=at_least(1))
    render: str = field(default="needed", metadata=one_of("needed", "always"))
    run: Path | None = field(default=None, metadata=positional("RUN"))

The default is not checked, so None may stand for a value that is found later.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from strobe.errors import UserError, nearest

_BOUND, _POSITIONAL, _BARE = "strobe.bound", "strobe.positional", "strobe.bare"


@dataclass(frozen=True)
class Bound:
    """The numbers that a flag takes; ``str`` of it reads after 'must be'."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    finite: bool = False

    def __str__(self) -> str:
        if self.least is not None:
            return "0 or more" if self.least == 0 else f"at least {self.least:g}"
        if self.below is not None:
            return f"between {self.above:g} and {self.below:g}"
        return f"above {self.above:g}"

    def refuses(self, value: float) -> str:
        """Why ``value`` is refused, such as 'must be above 0'; empty where it is not."""
        if self.finite and math.isinf(value):
            return "must be a finite number"
        held = (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        return "" if held else f"must be {self}"


@dataclass(frozen=True)
class Choices:
    """The words that a flag takes."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"

    def refuses(self, value: str) -> str:
        """Why ``value`` is refused, such as "did you mean 'always'?"; empty where it is not."""
        return "" if value in self.words else nearest(value, self.words)


def at_least(least: float) -> dict[str, Bound]:
    """Metadata of a field that takes ``least`` and what is above it."""
    return {_BOUND: Bound(least=least)}


def above(limit: float, *, finite: bool = False) -> dict[str, Bound]:
    """Metadata of a field that takes what is above ``limit``; infinity too, unless ``finite``."""
    return {_BOUND: Bound(above=limit, finite=finite)}


def between(low: float, high: float) -> dict[str, Bound]:
    """Metadata of a field that takes what lies between ``low`` and ``high``, without the two."""
    return {_BOUND: Bound(above=low, below=high)}


def one_of(*words: str) -> dict[str, Choices]:
    """Metadata of a field that takes one of ``words``."""
    return {_BOUND: Choices(words)}


def positional(name: str) -> dict[str, str]:
    """Metadata of a field that is given without a flag; ``name`` stands for it in the help."""
    return {_POSITIONAL: name}


def bare(value: str) -> dict[str, str]:
    """Metadata of a field whose flag may stand without a value, and then means ``value``; others need ``--flag=``."""
    return {_BARE: value}


def bound_of(item: dataclasses.Field[Any]) -> Bound | Choices | None:
    """Return the bound that a dataclass's field declares; None without one."""
    return item.metadata.get(_BOUND)


def positional_of(item: dataclasses.Field[Any]) -> str | None:
    """Return the name of a field that is given without a flag; None for a flag."""
    return item.metadata.get(_POSITIONAL)


def bare_of(item: dataclasses.Field[Any]) -> str | None:
    """Return what a field's flag means without a value; None where it needs one."""
    return item.metadata.get(_BARE, "true" if "bool" in str(item.type) else None)


def check_bounds(config: Any, prefix: str = "") -> None:
    """Check the values of a config (a dataclass instance) and of the configs in it.

    Args:
        prefix: what stands before the flags' names, such as 'model.'.

    Raises:
        UserError: a value outside its bound, as '--depth=0: must be at least 1'.
    """
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            check_bounds(value, f"{prefix}{item.name}.")
            continue
        bound = bound_of(item)
        if bound is not None and value is not None and (why := bound.refuses(value)):
            raise UserError(f"--{prefix}{item.name}={value}: {why}")
