"""A language head that nobody listens to: the backbone's logits are computed for every token and thrown away.

GR00T and VLA-JEPA run Qwen3-VL with its head on top, a product with the whole vocabulary (152 k words), and read the
hidden states of a layer below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from strobe.errors import UserError
from strobe.policies.families.family import Family
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.treatments.flow.places import deriving, only, require_record
from strobe.treatments.parts import parts_of
from strobe.treatments.patch import Patches
from strobe.treatments.treatment import FOR_INFERENCE, STRUCTURE, Effect, Entry, Spec, Treatment, Undo, policy_of


class Unread:
    """Stands where the logits were. Whoever reads it gets a `UserError`: the head was needed after all."""

    def _read(self, *_: Any, **__: Any) -> NoReturn:
        raise UserError("lm_head=skipped: this policy reads what its language head says: leave the treatment out")

    __bool__ = __len__ = __iter__ = __getitem__ = __array__ = _read  # pyright: ignore[reportAssignmentType]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = __neg__ = _read

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        cls()._read()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python's own questions, such as whether it can be copied
            raise AttributeError(name)
        self._read()


@dataclass
class SkippedHead(Treatment):
    """The head gives nothing; a policy that reads it fails. Where gradients are wanted it runs."""

    effect: Effect = "exact"
    key = "lm_head"
    phases = FOR_INFERENCE

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"lm_head": "skipped"}

    def apply(self, subject: Subject) -> Undo:
        require_record(subject, _head)
        head: Any = policy_of(subject).policy.get_submodule(subject.family.unread_head)
        patches = Patches()

        def skipping(forward: Any) -> Any:
            return lambda hidden: forward(hidden) if deriving() else Unread()

        patches.wrap(head, "forward", skipping)
        return patches.undo


def _head(family: Family) -> str:
    return family.unread_head


def _candidates(subject: Subject) -> list[Spec]:
    return [{"lm_head": "skipped"}] if isinstance(subject, PolicySubject) and subject.family.unread_head else []


ENTRY = Entry(
    "lm_head",
    "skipped: a language head whose words nobody reads does not run",
    "exact",
    STRUCTURE,
    only("lm_head", "skipped", SkippedHead),
    candidates=_candidates,
    parts=lambda subject, _: parts_of(subject, (subject.family.unread_head,)),
)
