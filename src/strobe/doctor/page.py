"""Self-checks → document: what can be trusted first, then what is wrong with what to do, then a table of each area.

The rules on them stand at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from strobe.core.findings.thresholds import Thresholds
from strobe.core.report import frame
from strobe.core.report.document import Columns, Document, Kind, Section, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.finding import Finding
from strobe.doctor.results import TITLES, DoctorResult, Outcome, SelfCheck


def outline(result: DoctorResult, _depth: int | None = None) -> Document:
    """Return the document of all self-checks."""
    sections = []
    for area, title in TITLES.items():
        if checks := [check for check in result.checks if check.area == area]:
            rows = table(checks, _CHECKS, kind=lambda check: KINDS.get(check.outcome, "part"))
            sections.append(Section(area, title, rows.drop_empty_columns()))
    machine, made = result.machine, units.count(len(result.checks), "self-check")
    versions = machine.versions if machine is not None else {}
    facts = [
        ("Machine", frame.machine(machine) if machine is not None else None),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("Strobe", result.strobe_version),
    ]
    banner = None if result.status == "complete" else f"Interrupted: {made} made, the others not."
    return frame.document(result, answers(result), sections, banner=banner, facts=facts)


def plots(_result: DoctorResult, _depth: int | None = None) -> Plots:
    """Return none: a self-check is a line of words."""
    return {}


def answers(result: DoctorResult) -> list[str]:
    """Return whether the measurements can be trusted, which checks fail or need care, and what is not installed."""
    if not result.checks:
        return ["Nothing was checked."]
    failing, checked = result.checks_with_outcome("fails"), units.count(len(result.checks), "self-check")
    if failing:
        fails = "fails" if len(failing) == 1 else "fail"
        sentences = [f"{len(failing)} of {checked} {fails} on this machine.", f"Failed: {_list_checks(failing)}."]
    else:
        seen = {check.area for check in result.checks}
        left_out = [title.lower() for area, title in TITLES.items() if area not in seen]
        skipped = f" Not checked: {', '.join(left_out)}." if left_out else ""
        sentences = ["Strobe's measurements on this machine can be trusted.", f"None of {checked} fails.{skipped}"]
    if doubtful := result.checks_with_outcome("doubtful"):
        needs = "self-check needs" if len(doubtful) == 1 else "self-checks need"
        sentences.append(f"{len(doubtful)} {needs} care: {_list_checks(doubtful)}.")
    if missing := result.checks_with_outcome("missing"):
        ways = " The tables say how to install them." if any(check.do for check in missing) else ""
        sentences.append(f"Not installed: {_list_checks(missing)}.{ways}")
    if absent := result.checks_with_outcome("not here"):
        verb = "does" if len(absent) == 1 else "do"
        sentences.append(f"{units.count(len(absent), 'check')} {verb} not apply to this machine (marked 'not here').")
    return sentences


def _list_checks(checks: list[SelfCheck], many: int = 6) -> str:
    names = [check.name for check in checks]
    more = len(names) - many
    return ", ".join(names[:many]) + (f" and {more} more" if more > 0 else "")


_CHECKS: Columns[SelfCheck] = [
    words("Self-check", lambda check: check.name),
    words("Outcome", lambda check: check.outcome),
    words("Found", lambda check: check.seen),
    # What is wrong has its words in the findings above.
    words("What to do", lambda check: (check.do if check.outcome == "missing" else "") or None),
]
KINDS: dict[str, Kind] = {"fails": "whole", "doubtful": "whole", "not here": "other"}


# Outcome → the level of its finding, and its verb. What is missing has its place in the tables.
CHECK_LEVELS: dict[Outcome, tuple[Literal["warning", "info"], str]] = {
    "fails": ("warning", "fails"),
    "doubtful": ("info", "needs care"),
}


def self_checks(result: DoctorResult, _: Thresholds) -> Iterator[Finding]:
    """Self-checks that fail or need care."""
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
