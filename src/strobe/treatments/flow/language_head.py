"""A language head that nobody listens to: the backbone's logits are computed for every token and thrown away.

GR00T and VLA-JEPA run Qwen3-VL with its head on top, a product with the whole vocabulary (152 k words), and read the
hidden states of a layer below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from strobe.errors import UserError
from strobe.subjects.subject import Subject
from strobe.treatments.flow.places import deriving
from strobe.treatments.parts import parts_of
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Undo, policy_of


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
class SkippedHead(Switch, key="lm_head", of=lambda family: family.unread_head):
    """The head gives nothing; a policy that reads it fails. Where gradients are wanted it runs."""

    def apply(self, subject: Subject) -> Undo:
        self.require(subject)
        head: Any = policy_of(subject).policy.get_submodule(subject.family.unread_head)
        patches = Patches()

        def skipping(forward: Any) -> Any:
            return lambda hidden: forward(hidden) if deriving() else Unread()

        patches.wrap(head, "forward", skipping)
        return patches.undo


ENTRY = SkippedHead.entry(parts=lambda subject, _: parts_of(subject, (subject.family.unread_head,)))
