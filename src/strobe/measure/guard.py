"""A guard: how far a treated policy's actions may be from the untouched one's."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strobe.errors import UserError, nearest
from strobe.results.schema import Agreement

DEFAULT = "cosine>=0.999"
METRICS = ("cosine", "largest_error", "mean_error")
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Guard:
    """Conditions on an `Agreement`, all of which must hold: (metric, test, number)."""

    conditions: tuple[tuple[str, str, float], ...]

    def __str__(self) -> str:
        return " and ".join(f"{metric}{test}{number:.12g}" for metric, test, number in self.conditions)

    def holds(self, agreement: Agreement) -> bool:
        """Whether ``agreement`` satisfies all conditions."""
        return all(_TESTS[test](getattr(agreement, metric), number) for metric, test, number in self.conditions)


def parse(text: str) -> Guard:
    """``'cosine>=0.999 and largest_error<0.01'``, or with a comma. Errors are in the action's own units.

    Raises:
        UserError: a condition that cannot be read, or a metric that is not known.
    """
    conditions = []
    for part in re.split(r"\s+and\s+|,", text):
        match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*([-+.\deE]+)\s*", part)
        try:
            number = float(match[3]) if match else None
        except ValueError:
            number = None
        if match is None or number is None:
            raise UserError(f"'{part.strip()}' is no guard: write for example {DEFAULT}")
        if match[1] not in METRICS:
            raise UserError(f"no guard on '{match[1]}': {nearest(match[1], METRICS)}")
        conditions.append((match[1], match[2], number))
    return Guard(tuple(conditions))
