"""The gate of `strobe diff` and `strobe history`: its outcomes, its flags, its closing lines, its exit code.

A gate is *held*, *broken*, or *not judged* where neither is shown. It is held only where the interval excludes a
slow-down above the allowed one, or above `WIDEST` where less is allowed: no noise lets an interval exclude everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strobe.core.cli.bounds import bare, custom_bound
from strobe.core.cli.runner import EXIT_CODES, Studied
from strobe.core.results import units
from strobe.core.results.agreement import Outcome

WIDEST = 0.10  # slow-down that an interval must exclude, at the least: 10 %
WORDS: dict[Outcome, str] = {"broken": "regression", "not judged": "not judged", "held": "passed"}


@dataclass(frozen=True)
class Gated:
    """One measurement at a gate."""

    outcome: Outcome
    what: str  # the measurement, in words
    why: str  # what was seen and, where it is not judged, what is missing and what to give


def exclusion_limit(allowed: float) -> float:
    """Return the slow-down that the interval must exclude where one of ``allowed`` (0.05 is 5 %) is accepted."""
    return max(allowed, WIDEST)


def _percentage_fault(text: str) -> str | None:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    return None if 0 <= percent < math.inf else f"'{text}' is not a percentage, such as 5"


@dataclass
class GateFlags:
    """The exit code on a regression."""

    # Exit with 1 if a slow-down is shown. --fail-on-regression=PERCENT allows a slow-down of up to PERCENT.
    fail_on_regression: str | None = field(default=None, metadata={**bare("0"), **custom_bound(_percentage_fault)})
    # With --fail-on-regression: exit with 0 also if the samples cannot tell.
    allow_not_judged: bool = False


def gate(answer: Studied, flags: GateFlags, judge: Callable[[float], Sequence[Gated]]) -> Studied:
    """Add the gate's lines and exit code (0, 1: a regression, 3: not judged) to the answer, if the flags ask for it.

    Args:
        judge: judges each measurement, given the share by which it may be slower.
    """
    if flags.fail_on_regression is None:
        return answer
    gated = judge(float(flags.fail_on_regression.removesuffix("%")) / 100)
    outcomes = {measurement.outcome for measurement in gated}
    if "broken" in outcomes:
        answer.code = EXIT_CODES["broken"]
    elif "not judged" in outcomes and not flags.allow_not_judged:
        answer.code = EXIT_CODES["not judged"]
    answer.after = lambda _: _lines(gated)
    return answer


def _lines(gated: Sequence[Gated]) -> list[str]:
    ordered = sorted(gated, key=lambda gate: [*WORDS].index(gate.outcome))
    lines = [f"{WORDS[gate.outcome]}: {gate.what}{f': {gate.why}' if gate.why else ''}" for gate in ordered]
    return ["", *map(units.plain, lines)]
