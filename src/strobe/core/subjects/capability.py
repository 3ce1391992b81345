"""The capabilities of a subject's family, for treatments."""

from __future__ import annotations

from typing import TypeVar

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Capability
from strobe.core.families.registry import list_types_having
from strobe.core.subjects.subject import Subject

C = TypeVar("C", bound=Capability)


def capability(subject: Subject, kind: type[C]) -> C | None:
    """Return this capability of ``subject``'s family; None without it, and for a subject that does not act."""
    return subject.family.get(kind) if subject.acting is not None else None


def require_capability(subject: Subject, kind: type[C], what: str = "this") -> C:
    """Return this capability, which ``what`` needs. Raises UserError, with the types that have it, without it."""
    if (held := capability(subject, kind)) is None:
        raise UserError(f"{subject.info.name}: {what} is for {', '.join(list_types_having(kind))}")
    return held
