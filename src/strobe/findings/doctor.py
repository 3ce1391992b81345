"""The rule on self-checks: what fails is a warning, what needs care is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from strobe.findings.thresholds import Thresholds
from strobe.results.doctor import TITLES, DoctorResult, Outcome
from strobe.results.finding import Finding

# Outcome → the level of its finding, and its verb. What is missing has its place in the tables.
LEVELS: dict[Outcome, tuple[Literal["warning", "info"], str]] = {
    "fails": ("warning", "fails"),
    "doubtful": ("info", "needs care"),
}


def self_checks(result: DoctorResult, _: Thresholds) -> Iterator[Finding]:
    """A self-check that fails or needs care."""
    for check in result.checks:
        if check.outcome in LEVELS:
            level, verb = LEVELS[check.outcome]
            yield Finding(
                rule="self-check",
                level=level,
                title=f"{TITLES[check.area]}: {check.name} {verb}",
                seen=f"{check.seen}.",
                why=check.means,
                do=check.do,
            )


RULES = (self_checks,)
