"""A treatment: a named, composable change to a subject, that says what it does to the numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, Protocol

from strobe.errors import UserError
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Subject


def policy_of(subject: Subject) -> PolicySubject:
    """``subject`` if it is a policy; raises UserError if not."""
    if not isinstance(subject, PolicySubject):
        raise UserError(f"{subject.info.name} is not a policy: this applies to policies only")
    return subject


Effect = Literal["exact", "rounding", "lossy"]
Undo = Callable[[], None]


class Treatment(Protocol):
    """A change that can be put on a subject and taken off again, many times over, cheaply."""

    @property
    def effect(self) -> Effect:
        """What it does to the actions: nothing, rounding only, or more than that."""
        ...

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """What to record beside the numbers."""
        ...

    def apply(self, subject: Subject) -> Undo:
        """Change ``subject`` and return what undoes it. Raises UserError where it does not apply."""
        ...


@dataclass(frozen=True)
class Variant:
    """A name for a list of treatments, applied in order; an empty list is the subject as it is."""

    name: str
    treatments: tuple[Treatment, ...] = ()

    def apply(self, subject: Subject) -> Undo:
        """Apply all treatments; the result undoes them, last first."""
        stack = ExitStack()
        try:
            for treatment in self.treatments:
                stack.callback(treatment.apply(subject))
        except BaseException:
            stack.close()
            raise
        return stack.close

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """All treatments' facts."""
        return {key: value for treatment in self.treatments for key, value in treatment.facts().items()}
