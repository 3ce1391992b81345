"""The last block of a denoising transformer for the rows that are read: those of the actions.

A policy without a prefix cache runs actions and context through every block of every step. Of the last block it reads
the actions' rows alone. The context still gives that block keys and values; its attention's output and its MLP are
computed for nothing. Of X-VLA's 228 rows 32 are read, and two thirds of a block's arithmetic go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strobe.errors import UserError
from strobe.policies.families.registry import types_with
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.treatments.flow.places import deriving, only
from strobe.treatments.parts import STEP
from strobe.treatments.patch import Patches
from strobe.treatments.treatment import FOR_INFERENCE, STRUCTURE, Effect, Entry, Spec, Treatment, Undo


@dataclass
class ReadRows(Treatment):
    """The last block's output is (B, rows, width), with as many rows as the policy's record says are read."""

    effect: Effect = "exact"
    key = "last_block"
    phases = FOR_INFERENCE

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"last_block": "read_rows"}

    def apply(self, subject: Subject) -> Undo:
        record = subject.family.last_block if isinstance(subject, PolicySubject) else None
        if record is None:
            known = ", ".join(types_with(lambda family: family.last_block))
            raise UserError(f"{subject.info.name}: last_block is for {known}")
        module: Any = subject.module
        last, rows, narrowed = module.get_submodule(record.blocks)[-1], record.rows(module.config), record.narrowed

        def around(forward: Any) -> Any:
            return lambda x: forward(x) if deriving() else narrowed(last, x, rows)

        patches = Patches()
        patches.wrap(last, "forward", around)
        return patches.undo


def _candidates(subject: Subject) -> Sequence[Spec]:
    there = isinstance(subject, PolicySubject) and subject.family.last_block is not None
    return [{"last_block": "read_rows"}] if there else []


ENTRY = Entry(
    "last_block",
    "read_rows: the last block of a denoising transformer is computed for the actions' rows alone",
    "exact",
    STRUCTURE,
    only("last_block", "read_rows", ReadRows),
    candidates=_candidates,
    parts=lambda _, __: (STEP,),
)
