"""Gradient accumulation: the batch in equal micro-batches, one optimizer step for all of them.

The memory of activations is a micro-batch's, the gradient that of the whole batch where the loss is a mean over
samples. ACT's is a mean over the actions that are not padding, so there it is the same where micro-batches hold
equally many.
"""

from __future__ import annotations

from dataclasses import dataclass

from strobe.errors import UserError
from strobe.results.traits import TreatmentTraits
from strobe.subjects.subject import Subject
from strobe.treatments.switch import entry
from strobe.treatments.treatment import FOR_TRAINING, Spec, Treatment, Undo, policy_of


@dataclass
class Accumulate(Treatment, key="accumulate"):
    """``micro_batches`` parts of the batch, one after the other; each draws noise of its own."""

    micro_batches: int
    phases = FOR_TRAINING

    def __post_init__(self) -> None:
        if isinstance(self.micro_batches, bool) or not isinstance(self.micro_batches, int) or self.micro_batches < 2:
            raise UserError(f"accumulate={self.micro_batches}: a whole number of micro-batches, at least 2")

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.micro_batches)

    def apply(self, subject: Subject) -> Undo:
        training = policy_of(subject).training
        before, training.micro_batches = training.micro_batches, self.micro_batches

        def undo() -> None:
            training.micro_batches = before

        return undo


def _make(spec: Spec) -> Accumulate:
    value = str(spec["accumulate"])
    if not value.isdecimal():
        shown = "?" if spec["accumulate"] is True else value
        raise UserError(f"accumulate={shown}: a whole number of micro-batches, such as accumulate=4")
    return Accumulate(int(value))


ENTRY = entry("accumulate", _make)
