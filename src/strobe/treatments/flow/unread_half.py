"""The negative prompt's half of passes whose guidance is off: it is computed, and nobody reads it.

Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598) runs a model on two prompts and moves from the one
answer to the other. LingBot-VA guides the video and not the actions, and runs both prompts in the actions' 50 passes
all the same. The first half of a batch of two does not depend on the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strobe.errors import UserError
from strobe.subjects.families.family import nothing
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Subject
from strobe.treatments.parts import STEP
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Undo, policy_of


@dataclass
class SkippedHalf(Switch, key="unread_half", of=lambda family: family.unread_half is not nothing):
    """Passes that are not guided run one prompt; the family's record says which, and what they need for it.

    The products have half as many rows, so that a library may take their sums in another order.
    """

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return isinstance(subject, PolicySubject) and bool(subject.family.unread_half(subject.policy))

    def apply(self, subject: Subject) -> Undo:
        self.require(subject)
        policy: Any = policy_of(subject).policy
        passes = subject.family.unread_half(policy)
        if not passes:
            raise UserError(f"{subject.info.name}: as its guidance is set, no half of a pass goes unread")
        patches = Patches()
        for owner, name, around in passes:
            patches.wrap(owner, name, around)
        return patches.undo


ENTRY = SkippedHalf.entry(parts=(STEP,))
