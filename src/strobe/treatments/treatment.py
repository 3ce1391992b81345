"""A treatment: a named, composable change to a subject, that says what it does to the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from strobe.errors import UserError
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Subject


def policy_of(subject: Subject) -> PolicySubject:
    """``subject`` if it is a policy; raises UserError if not."""
    if not isinstance(subject, PolicySubject):
        raise UserError(f"{subject.info.name} is not a policy: this applies to policies only")
    return subject


Effect = Literal["exact", "rounding", "lossy"]
Undo = Callable[[], None]


class Treatment(Protocol):
    """A change that can be put on a subject and taken off again, many times over, cheaply."""

    @property
    def effect(self) -> Effect:
        """What it does to the actions: nothing, rounding only, or more than that."""
        ...

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """What to record beside the numbers."""
        ...

    def apply(self, subject: Subject) -> Undo:
        """Change ``subject`` and return what undoes it. Raises UserError where it does not apply."""
        ...


# A treatment as it is written down, in `--variant` and in a recipe: its key with a value, then its options, such as
# {"precision": "bf16", "precision.part": "model.backbone"}. Values are what YAML makes of the text.
Spec = Mapping[str, Any]


def _nothing(_: Subject) -> Sequence[Spec]:
    return ()


def _whole(_: Subject, __: Spec) -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class Entry:
    """How a kind of treatment is written down, and where it is worth trying.

    Args:
        key: stands before the ``=``. One that ends in a dot stands for all keys that begin with it.
        help: one line: what it does, which values it takes.
        effect: the most it does to the actions.
        rank: treatments are put on in this order, whatever the order in which they are written.
        make: its spec → the treatment; raises UserError.
        options: the keys that may follow, written ``key.option``.
        candidates: subject → the specs worth trying on it in inference, best first; none where it does not apply.
        parts: subject, spec → the anatomy's parts that it speeds up; none for the whole.
    """

    key: str
    help: str
    effect: Effect
    rank: int
    make: Callable[[Spec], Treatment]
    options: tuple[str, ...] = ()
    candidates: Callable[[Subject], Sequence[Spec]] = _nothing
    parts: Callable[[Subject, Spec], Sequence[str]] = _whole


def switch(key: str, make: Callable[[], Treatment]) -> Callable[[Spec], Treatment]:
    """``Entry.make`` of a treatment that is on or not there: ``key`` takes true and nothing else."""

    def made(spec: Spec) -> Treatment:
        if spec[key] is not True:
            raise UserError(f"{key}={spec[key]}: {key} takes no value")
        return make()

    return made


# Ranks. What changes weights comes before what is built of them, what is captured or compiled comes last.
SETTING, DTYPE, QUANTISED, STRUCTURE, GUIDANCE, TRAINING, COMPILED, CAPTURED = range(0, 80, 10)


@dataclass(frozen=True)
class Variant:
    """A name for a list of treatments, applied in order; an empty list is the subject as it is."""

    name: str
    treatments: tuple[Treatment, ...] = ()

    def apply(self, subject: Subject) -> Undo:
        """Apply all treatments; the result undoes them, last first."""
        stack = ExitStack()
        try:
            for treatment in self.treatments:
                stack.callback(treatment.apply(subject))
        except BaseException:
            stack.close()
            raise
        return stack.close

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """All treatments' facts; what they say of different parts is in one text, of the same the last one counts."""
        found: dict[str, dict[object, str | int | float | bool | None]] = {}
        for facts in (treatment.facts() for treatment in self.treatments):
            part = next((value for key, value in facts.items() if key.endswith(".part")), "")
            for key, value in facts.items():
                found.setdefault(key, {})[part] = value
        several = {key: list(dict.fromkeys(by_part.values())) for key, by_part in found.items()}
        return {key: values[0] if len(values) == 1 else ", ".join(map(str, values)) for key, values in several.items()}

    @property
    def built(self) -> bool:
        """Whether the first call builds what later ones run: it takes long, and hides what is inside.

        A treatment says so by a fact, ``compiled`` or ``captured``.
        """
        facts = self.facts()
        return bool(facts.get("compiled") or facts.get("captured") or facts.get("engine"))
