"""Bounds of flags: declared with a config's field, checked for every config, shown by --help.

    depth: int = field(default=1, metadata=at_least(1))

The default is not checked, so None may stand for a value that is found later.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from strobe.errors import UserError

_KEY = "strobe.bound"


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


def at_least(least: float) -> dict[str, Bound]:
    """Metadata of a field that takes ``least`` and what is above it."""
    return {_KEY: Bound(least=least)}


def above(limit: float, *, finite: bool = False) -> dict[str, Bound]:
    """Metadata of a field that takes what is above ``limit``; infinity too, unless ``finite``."""
    return {_KEY: Bound(above=limit, finite=finite)}


def between(low: float, high: float) -> dict[str, Bound]:
    """Metadata of a field that takes what lies between ``low`` and ``high``, without the two."""
    return {_KEY: Bound(above=low, below=high)}


def bound_of(item: dataclasses.Field[Any]) -> Bound | None:
    """The bound that a dataclass's field declares; None without one."""
    return item.metadata.get(_KEY)


def check_bounds(config: Any, prefix: str = "") -> None:
    """Check the numbers of a config (a dataclass instance) and of the configs in it.

    Args:
        prefix: what stands before the flags' names, such as 'model.'.

    Raises:
        UserError: a number outside its bound, as '--depth=0: must be at least 1'.
    """
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            check_bounds(value, f"{prefix}{item.name}.")
            continue
        bound = bound_of(item)
        if bound is not None and value is not None and (why := bound.refuses(value)):
            raise UserError(f"--{prefix}{item.name}={value}: {why}")
