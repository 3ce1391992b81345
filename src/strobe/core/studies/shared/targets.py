"""The treatment that has another target on: how `compare` compares things to call that are no treatments of one policy.

A target may be a function in Python, a policy server, or a policy on this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strobe.core.results.agreement import Effect
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import Target
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.treatment import Treatment, Undo, Variant


@dataclass(frozen=True, eq=False)
class OfTarget(Treatment):
    """Has ``target`` on. Nothing is known of what it does to the outputs, which are compared and not guarded."""

    target: Target
    effect: Effect = "lossy"

    def apply(self, subject: Subject) -> Undo:
        """Switch to the target. Raises TypeError for another subject."""
        if not isinstance(subject, CallableSubject):
            raise TypeError(f"{type(subject).__name__} has no targets")
        before, subject.target = subject.target, self.target

        def undo() -> None:
            subject.target = before

        return undo


def variants_of(targets: Sequence[Target]) -> list[Variant]:
    """Return a variant for each target, under its name."""
    return [Variant(target.name, (OfTarget(target),)) for target in targets]
