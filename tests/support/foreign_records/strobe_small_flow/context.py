"""A treatment of the package's own, through the entry point ``strobe.treatments``: the context once a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treatment import FOR_INFERENCE, STRUCTURE, Effect, Entry, Spec, Treatment, Undo


@dataclass
class ContextOnce(Treatment):
    """The encoder runs in the first step of a chunk; the other steps find what it gave."""

    effect: Effect = "exact"
    key = "context"
    phases = FOR_INFERENCE

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"context": "once"}

    def apply(self, subject: Subject) -> Undo:
        if subject.info.kind != "small_flow":
            raise UserError("context=once is for small_flow")
        policy: Any = subject.module
        patches, kept = Patches(), {}

        def remembering(forward: Any) -> Any:
            return lambda state: kept["context"] if "context" in kept else kept.setdefault("context", forward(state))

        def forgetting(chunk: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                kept.clear()
                return chunk(*args, **kwargs)

            return call

        patches.wrap(policy.encoder, "forward", remembering)
        patches.wrap(policy, "predict_action_chunk", forgetting)
        return patches.undo


def _candidates(subject: Subject) -> list[Spec]:
    return [{"context": "once"}] if subject.info.kind == "small_flow" else []


ENTRY = Entry(
    "context",
    "once: the context of small_flow is encoded once a chunk",
    "exact",
    STRUCTURE,
    lambda _: ContextOnce(),
    candidates=_candidates,
    parts=lambda _, __: ("context",),
)
