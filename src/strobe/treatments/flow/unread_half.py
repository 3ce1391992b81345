"""The negative prompt's half of passes whose guidance is off: it is computed, and nobody reads it.

Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598) runs a model on two prompts and moves from the one
answer to the other. LingBot-VA guides the video and not the actions, and runs both prompts in the actions' 50 passes
all the same. The first half of a batch of two does not depend on the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strobe.errors import UserError
from strobe.policies.families.family import Family, nothing
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.treatments.flow.places import only, require_record
from strobe.treatments.parts import STEP
from strobe.treatments.patch import Patches
from strobe.treatments.treatment import FOR_INFERENCE, STRUCTURE, Effect, Entry, Spec, Treatment, Undo, policy_of


@dataclass
class SkippedHalf(Treatment):
    """Passes that are not guided run one prompt; the family's record says which, and what they need for it.

    The products have half as many rows, so that a library may take their sums in another order.
    """

    effect: Effect = "exact"
    key = "unread_half"
    phases = FOR_INFERENCE

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"unread_half": "skipped"}

    def apply(self, subject: Subject) -> Undo:
        require_record(subject, _has)
        policy: Any = policy_of(subject).policy
        passes = subject.family.unread_half(policy)
        if not passes:
            raise UserError(f"{subject.info.name}: as its guidance is set, no half of a pass goes unread")
        patches = Patches()
        for owner, name, around in passes:
            patches.wrap(owner, name, around)
        return patches.undo


def _has(family: Family) -> bool:
    return family.unread_half is not nothing


def _candidates(subject: Subject) -> list[Spec]:
    fits = isinstance(subject, PolicySubject) and subject.family.unread_half(subject.policy)
    return [{"unread_half": "skipped"}] if fits else []


ENTRY = Entry(
    "unread_half",
    "skipped: passes without guidance do not run the negative prompt's half",
    "exact",
    STRUCTURE,
    only("unread_half", "skipped", SkippedHalf),
    candidates=_candidates,
    parts=lambda _, __: (STEP,),
)
