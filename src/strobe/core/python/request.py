"""The arguments that all verbs have, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strobe.core.errors import UserError

_LONGEST = 80  # characters of a variant's name


@dataclass(frozen=True)
class VerbArguments:
    """The arguments that all verbs have. Raises UserError for a name, a number or a seed that makes no sense."""

    targets: Mapping[str, object]
    inputs: Any
    seconds: float | None
    interval: float
    device: str | None
    name: str | None
    seed: int

    def __post_init__(self) -> None:
        for each in self.targets:
            if not isinstance(each, str) or not each.strip() or len(each) > _LONGEST:
                raise UserError(f"the name of a variant is text of 1 to {_LONGEST} characters, not {str(each)[:99]!r}")
        for name, value in (("seconds", 1.0 if self.seconds is None else self.seconds), ("interval", self.interval)):
            if not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
                raise UserError(f"{name}={value}: must be a number above zero")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UserError(f"seed={self.seed}: must be a whole number, 0 or more")

    @property
    def config(self) -> dict[str, object]:
        """The arguments that a result keeps."""
        kept = ("seconds", "interval", "device", "seed")
        return {"variants": list(self.targets), **{name: getattr(self, name) for name in kept}}
