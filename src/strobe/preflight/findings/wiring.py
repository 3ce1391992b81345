"""Rules on a policy's wiring. Each is a function of a `Wiring`; `rules_of` makes rules of an answer's of them.

Serious findings, at the level 'warning', make the robot act otherwise than in its training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Protocol

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.preflight.findings import data, fed, machine, order, settings, statistics
from strobe.preflight.results.wiring import Wiring

Check = Callable[[Wiring], Iterable[Finding]]

# By severity: first the number and the meaning of dimensions, then their normalisation.
CHECKS: tuple[Check, ...] = (
    *order.CHECKS, *statistics.CHECKS, *order.CAMERA_CHECKS, *settings.CHECKS, *data.CHECKS, *machine.CHECKS,
    *fed.CHECKS,
)  # fmt: skip

# With these findings the first action may already be wrong: a rollout and a rehearsal do not start.
DANGEROUS = frozenset(
    {
        "normaliser-missing", "statistics-absent", "statistics-in-weights", "statistics-not-numbers",
        "statistics-of-other-data", "statistics-in-other-order", "weights-compiled", "weights-nan", "action-order",
        "state-order", "joints-differ", "units-differ",
    }
)  # fmt: skip


class Wired(Protocol):
    """An answer about a policy whose wiring may have been read."""

    @property
    def wiring(self) -> Wiring | None:
        """Its wiring; None if it was not read."""
        ...


def wiring_rules(
    checks: Iterable[Check] = CHECKS, *, serious: bool = False
) -> tuple[Callable[[Wired, Thresholds], Iterator[Finding]], ...]:
    """Return a rule for each of ``checks``. A rule finds nothing in an answer whose wiring was not read.

    Args:
        serious: whether the rules give serious findings alone.
    """
    return tuple(_rule(check, serious) for check in checks)


def _rule(check: Check, serious: bool) -> Callable[[Wired, Thresholds], Iterator[Finding]]:
    @wraps(check)
    def rule(answer: Wired, _: Thresholds) -> Iterator[Finding]:
        if answer.wiring is not None:
            yield from (each for each in check(answer.wiring) if each.level == "warning" or not serious)

    return rule


RULES = wiring_rules()
SERIOUS = wiring_rules(serious=True)  # rules for answers about something else


def dangerous(wiring: Wiring) -> list[Finding]:
    """Return the findings that may make the first action wrong."""
    return [finding for finding in wiring_findings(wiring) if finding.rule in DANGEROUS]


def wiring_findings(wiring: Wiring) -> list[Finding]:
    """Return all findings on ``wiring``, the serious ones first."""
    found = [finding for check in CHECKS for finding in check(wiring)]
    return sorted(found, key=lambda finding: finding.level != "warning")
