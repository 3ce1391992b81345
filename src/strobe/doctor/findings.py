"""Rules on self-checks."""

from __future__ import annotations

from typing import Literal

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.doctor.results import TITLES, DoctorResult, Outcome

# Outcome → the level of its finding, and its verb. What is missing has its place in the tables.
CHECK_LEVELS: dict[Outcome, tuple[Literal["warning", "info"], str]] = {
    "fails": ("warning", "fails"),
    "doubtful": ("info", "needs care"),
}


@finding("self-check", "{level}")
def self_checks(result: DoctorResult, _: Thresholds) -> Found:
    """{area}: {check.name} {verb}.

    Found: {check.seen}.
    Why: {means}
    Do: {do}
    """
    for check in result.checks:
        if check.outcome in CHECK_LEVELS:
            level, verb = CHECK_LEVELS[check.outcome]
            words = {"means": check.means or "", "do": check.do or ""}
            yield {}, {"check": check, "area": TITLES[check.area], "level": level, "verb": verb, **words}


OF_SELF_CHECKS = (self_checks,)
