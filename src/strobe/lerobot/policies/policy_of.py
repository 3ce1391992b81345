"""A subject as a policy of LeRobot, for what applies to policies only. Does not import LeRobot."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from strobe.core.errors import UserError
from strobe.core.subjects.acting import ActingSubject
from strobe.core.subjects.subject import Subject

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject


def policy_of(subject: Subject) -> PolicySubject:
    """Return ``subject`` if it is a policy; raises UserError if not."""
    if not isinstance(subject, ActingSubject):
        raise UserError(f"{subject.info.name} is not a policy: this applies to policies only")
    return cast("PolicySubject", subject)  # the only class of acting subjects that Strobe makes


def is_policy(subject: Subject) -> bool:
    """Return whether ``subject`` is a policy with actions."""
    return isinstance(subject, ActingSubject)
