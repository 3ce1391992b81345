"""Rules on self-checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.doctor.results import TITLES, DoctorResult, Outcome

# Outcome → the level of its finding, and its verb. What is missing has its place in the tables.
CHECK_LEVELS: dict[Outcome, tuple[Literal["warning", "info"], str]] = {
    "fails": ("warning", "fails"),
    "doubtful": ("info", "needs care"),
}


def self_checks(result: DoctorResult, _: Thresholds) -> Iterator[Finding]:
    for check in result.checks:
        if check.outcome in CHECK_LEVELS:
            level, verb = CHECK_LEVELS[check.outcome]
            yield Finding(
                rule="self-check",
                level=level,
                title=f"{TITLES[check.area]}: {check.name} {verb}",
                found=f"{check.seen}.",
                why=check.means or "",
                do=check.do or "",
            )


OF_SELF_CHECKS = (self_checks,)
