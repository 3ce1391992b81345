"""A subject as a policy of LeRobot, for what applies to policies only. Does not import LeRobot."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from strobe.core.subjects.subject import Subject
from strobe.core.treatments import treatment

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject


def require_policy(subject: Subject) -> PolicySubject:
    """Return ``subject`` if it is a policy; raises UserError if not."""
    # The only class of acting subjects that Strobe makes.
    return cast("PolicySubject", treatment.require_policy(subject))
