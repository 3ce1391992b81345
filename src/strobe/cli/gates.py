"""The gate of `strobe diff` and `strobe history`: its flags, its closing lines, its exit code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from strobe.cli.bounds import bare
from strobe.cli.runner import EXIT_CODES
from strobe.errors import UserError
from strobe.report import units
from strobe.results.agreement import Outcome
from strobe.studies.gates import Gated

WORDS: dict[Outcome, str] = {"broken": "regression", "not judged": "not judged", "held": "held"}


@dataclass
class GateFlags:
    # Exit with 1 where a slow-down is shown; --fail-on-regression=PERCENT allows one of up to PERCENT.
    fail_on_regression: str | None = field(default=None, metadata=bare("0"))
    # With --fail-on-regression: exit with 0 where the samples cannot tell, too.
    allow_not_judged: bool = False

    def allowed(self) -> float | None:
        """Return the share by which a measurement may be slower; None without a gate. Raises UserError."""
        text = self.fail_on_regression
        if text is None:
            return None
        try:
            percent = float(text.removesuffix("%"))
        except ValueError:
            percent = math.nan
        if not 0 <= percent < math.inf:
            raise UserError(f"--fail-on-regression: '{text}' is not a percentage, such as 5")
        return percent / 100


def gate_lines(gated: Sequence[Gated]) -> list[str]:
    """Return a line on each measurement, the broken first."""
    lines = [""]
    for outcome, word in WORDS.items():
        for gate in gated:
            if gate.outcome == outcome:
                lines.append(units.plain(f"{word}: {gate.what}{f': {gate.why}' if gate.why else ''}"))
    return lines


def gate_code(gated: Sequence[Gated], allow_not_judged: bool) -> int:
    """Return the exit code: 0, 1 (a regression), 3 (not judged)."""
    outcomes = {gate.outcome for gate in gated}
    if "broken" in outcomes:
        return EXIT_CODES["broken"]
    return EXIT_CODES["not judged"] if "not judged" in outcomes and not allow_not_judged else 0
