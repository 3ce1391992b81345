"""Strobe's own treatments: their entries, and a base class for those that are either on or absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from typing_extensions import Unpack

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Capability
from strobe.core.families.family import Family
from strobe.core.families.registry import asking, list_types_having
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.spec import require_only, table
from strobe.core.treatments.treatment import FOR_INFERENCE, Entry, Spec, Treatment

Parts = Callable[[Subject, Spec], Sequence[str]]


class Hooks(TypedDict, total=False):
    """Arguments of an entry besides its words; see `Entry`."""

    candidates: Callable[[Subject], Sequence[Spec]]
    replaces: bool
    alone: Callable[[Subject, Spec], bool]
    of_torch: bool
    slot: str
    saves: Callable[[Measurement], float]
    of_parts: float


def entry(
    key: str, make: Callable[[Spec], Treatment], *, parts: Sequence[str] | Parts = (), **further: Unpack[Hooks]
) -> Entry:
    """Return the entry of one of Strobe's treatments, with the words that the table has of ``key``.

    Args:
        make: its spec → the treatment. A value other than the only one is refused before.
        parts: those that it speeds up, the same for every subject or by subject and spec.
    """
    words = table()[key]

    def make_checked(spec: Spec) -> Treatment:
        require_only(words, spec)
        return make(spec)

    return Entry(
        key, words.help, words.effect, words.rank, make_checked, words.options,
        parts=parts if callable(parts) else lambda _, __: parts, untried=words.untried, only=words.only,
        eases=words.eases, **further,
    )  # fmt: skip


class Switch(Treatment):
    """A treatment that is either on or absent: its key takes one value and no options.

    ``class MasksOnce(Switch, key="masks", of=Flow)``: ``of`` is the capability that a family must have for it, or
    returns what its record must have; none for a treatment that finds out by the subject's modules.

    Attributes:
        value: the one that the key takes.
    """

    value: str | bool = True
    phases = FOR_INFERENCE
    _of: Callable[[Family], object] | None = None

    def __init_subclass__(
        cls,
        *,
        key: str = "",
        of: type[Capability] | Callable[[Family], object] | None = None,
        **further: object,
    ) -> None:
        super().__init_subclass__(key=key, **further)
        if of is not None:
            cls._of = staticmethod(asking(of))
        if key and (only := table()[key].only) is not None:
            cls.value = only

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        """Return whether it may be worth trying on ``subject``: whether its family's record has what it needs."""
        return cls._of is None or (subject.acting is not None and bool(cls._of(subject.family)))

    def require(self, subject: Subject) -> None:
        """Raise UserError, with the types that it is for, where the family's record does not have what it needs."""
        if self._of is not None and not (subject.acting is not None and self._of(subject.family)):
            raise UserError(f"{subject.info.name}: {self.key} is for {', '.join(list_types_having(self._of))}")

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.value, builds=self.builds)

    @classmethod
    def entry(
        cls,
        *,
        make: Callable[[Spec], Treatment] | None = None,
        parts: Sequence[str] | Parts = (),
        **further: Unpack[Hooks],
    ) -> Entry:
        """Return its entry. It is tried where it `fits`, unless ``further`` has candidates."""

        def candidates(subject: Subject) -> list[Spec]:
            return [{cls.key: cls.value}] if cls.fits(subject) else []

        hooks: Hooks = {"candidates": candidates, **further}
        return entry(cls.key, make or (lambda _: cls()), parts=parts, **hooks)
