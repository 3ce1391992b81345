"""A treatment: a named, composable change to a subject, that says what it does to the numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strobe.core.devices.accelerators import Pool
from strobe.core.devices.untried import Feature
from strobe.core.errors import UserError
from strobe.core.families.capabilities import Unregistered
from strobe.core.families.registry import find_package
from strobe.core.measure.compilations import CompileLog
from strobe.core.results.agreement import Effect
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import Builds, Facts, Traits, TreatmentTraits
from strobe.core.subjects.subject import ActingSubject, Phase, Subject
from strobe.core.treatments.spec import (
    CAPTURED,
    COMPILED,
    DTYPE,
    GUIDANCE,
    PROCESS,
    QUANTISED,
    SETTING,
    STRUCTURE,
    TRAINING,
    Limited,
    table,
)
from strobe.core.treatments.words import Spec

if TYPE_CHECKING:
    import torch

# What another package needs to bring a treatment is in this module.
__all__ = [
    "ANY_PHASE", "CAPTURED", "COMPILED", "DTYPE", "FOR_INFERENCE", "FOR_TRAINING", "GUIDANCE", "PHASES", "PROCESS",
    "QUANTISED", "SETTING", "STRUCTURE", "TRAINING", "Builds", "Effect", "Entry", "Facts", "Spec", "Treatment",
    "Undo", "Variant", "require_policy", "switch",
]  # fmt: skip


def require_policy(subject: Subject) -> ActingSubject:
    """Return ``subject`` if it is a policy; raises UserError if not."""
    if subject.acting is None:
        raise UserError(f"{subject.info.name} is not a policy: this applies to policies only")
    return subject.acting


Undo = Callable[[], None]

PHASES: tuple[Phase, ...] = ("inference", "training forward", "training step")
ANY_PHASE: frozenset[Phase] = frozenset(PHASES)
FOR_INFERENCE: frozenset[Phase] = frozenset({"inference"})
FOR_TRAINING: frozenset[Phase] = ANY_PHASE - FOR_INFERENCE


class Treatment(ABC):
    """A change that can be applied a subject and reverted again, many times over, cheaply.

    A subclass needs ``effect`` and `apply`. The other members are its traits: what studies decide by. They have
    defaults, and may be set on the class or on the object. Strobe's own take ``key`` and ``effect`` from the table of
    words: ``class Precision(Treatment, key="precision")``.

    Attributes:
        effect: the most it does to the actions: nothing, rounding, or more than that.
        key: how it is written in ``--variant`` and in a recipe, for messages; the class's name where it is "".
        phases: those in which it changes what runs.
        because: why it is not for the other phases, in words, where that is not plain.
        builds: how the first call makes what later ones run. That takes long, and hides what is inside.
        dtypes: torch's names of the dtypes that it computes in, and 'tf32' for that mode of float32; none where it
            keeps to the subject's own.
        arithmetic: fraction of the arithmetic units in use now that it keeps in use (threads=4 of 8: 0.5).
        copies_weights: whether it holds a copy of the weights in ``dtypes`` besides the subject's own.
        changes_input: whether the subject is given less or other data, so that its outputs answer another question.
        changes_execution: whether another number of a chunk's actions is executed, so that chunks may differ in length.
        fixed_inputs: whether it answers only for inputs like those that it was made of: all cameras, no Real-Time
            Chunking.
        guided: whether the actions are guided towards a previous chunk, and differ on purpose.
        micro_batches: into how many parts it divides a training batch.
        recipe: name of the file that it was read from, if any.
    """

    effect: Effect
    key: str = ""
    phases: frozenset[Phase] = ANY_PHASE
    because: str | None = None
    builds: Builds = ""
    dtypes: tuple[str, ...] = ()
    arithmetic: float = 1.0
    copies_weights: bool = False
    changes_input: bool = False
    changes_execution: bool = False
    fixed_inputs: bool = False
    guided: bool = False
    micro_batches: int = 1
    recipe: str | None = None

    def __init_subclass__(cls, *, key: str = "", **further: object) -> None:
        super().__init_subclass__(**further)
        if key:
            cls.key, cls.effect = key, table()[key].effect

    def traits(self) -> TreatmentTraits:
        """Return what a result says of it."""
        return TreatmentTraits(key=self.key or type(self).__name__, builds=self.builds, notes=self.facts())

    def facts(self) -> Facts:
        """Return what a treatment of another package says of itself, to be shown only: no decision depends on it."""
        return {}

    def pools(self, device: torch.device) -> Sequence[Pool]:
        """Private pools of the allocator of ``device`` in which it keeps memory from one call to the next."""
        return ()

    def retained_bytes(self) -> int:
        """Return the bytes of freed memory that it keeps with the process, as found at its last end."""
        return 0

    def join_recipe(self) -> None:  # noqa: B027  # most treatments are the same in a recipe
        """Called once if a recipe holds it, before it is applied: what it needs may come after the policy is loaded."""

    def check_device(self, device: torch.device) -> None:  # noqa: B027  # most treatments work on any
        """Raise UserError if it does not work on ``device``, or lacks a package; asked before a subject is loaded."""

    @abstractmethod
    def apply(self, subject: Subject) -> Undo:
        """Change ``subject`` and return what undoes it. Raises UserError where it does not apply."""

    def unbuilt(self, subject: Subject) -> Undo:
        """Stand in for a treatment that builds while FLOP are counted, where operators must be seen.

        Nothing for one that computes in the dtypes that it finds.
        """
        return lambda: None


@dataclass
class _Unbuilt(Treatment):
    """A stand-in for ``built`` while FLOP are counted."""

    built: Treatment
    effect: Effect = "exact"

    def apply(self, subject: Subject) -> Undo:
        return self.built.unbuilt(subject)


@dataclass(frozen=True)
class Entry:
    """How a kind of treatment is written down, and where it is worth trying.

    Args:
        key: stands before the ``=``. One that ends in a dot stands for all keys that begin with it.
        help: one line: what it does, which values it takes.
        effect: the most it does to the actions.
        rank: treatments are applied in this order, whatever the order in which they are written.
        make: its spec → the treatment; raises UserError.
        options: the keys that may follow, written ``key.option``.
        candidates: subject → the specs worth trying on it in inference, best first; none where it does not apply.
        saves: measurement of the subject as it is now → share of its time that the candidates can save at most.
        of_parts: most of its parts' time that it saves, 0 to 1, as far as measurements show; 1 where that is unknown.
        parts: subject, spec → the anatomy's parts that it speeds up; none for the whole.
        replaces: whether it computes its parts by itself, so that another treatment of them alone buys nothing.
        alone: subject, spec → whether it may slow the subject down, or is slow to build: such a one is tried by itself.
        of_torch: whether it changes only how torch computes, and nothing of what an engine does.
        slot: key of the treatment that it takes the place of, on the same part; None for its own only.
        untried: what of it may not have run on the hardware that it is for; help says so where it has not.
        only: the one value that it takes, True for a key without a value; None if it takes others.
        eases: what a device is limited by where this helps most; none where its dtype says so, or nobody knows.
    """

    key: str
    help: str
    effect: Effect
    rank: int
    make: Callable[[Spec], Treatment]
    options: tuple[str, ...] = ()
    candidates: Callable[[Subject], Sequence[Spec]] = lambda _: ()
    parts: Callable[[Subject, Spec], Sequence[str]] = lambda _, __: ()
    replaces: bool = False
    alone: Callable[[Subject, Spec], bool] = lambda _, __: False
    of_torch: bool = False
    slot: str | None = None
    untried: tuple[Feature, ...] = ()
    saves: Callable[[Measurement], float] = lambda _: 1.0
    of_parts: float = 1.0
    only: str | bool | None = None
    eases: tuple[Limited, ...] = ()


def switch(key: str, make: Callable[[], Treatment]) -> Callable[[Spec], Treatment]:
    """Return an ``Entry.make`` of a treatment that is on or not there: ``key`` takes true and nothing else."""

    def make_checked(spec: Spec) -> Treatment:
        if spec[key] is not True:
            raise UserError(f"{key}={spec[key]}: {key} takes no value")
        return make()

    return make_checked


@dataclass(frozen=True)
class Variant:
    """A name for a list of treatments, applied in order; an empty list is the baseline."""

    name: str
    treatments: tuple[Treatment, ...] = ()
    _memos: dict[tuple[int, str], object] = field(default_factory=dict, init=False, repr=False, compare=False)
    compiles: CompileLog = field(default_factory=CompileLog, init=False, repr=False, compare=False)  # in its calls

    def apply(self, subject: Subject) -> Undo:
        """Apply all treatments; the result undoes them, last first.

        What the policy keeps from one call to the next was made without them: each variant has such values of its own.
        """
        stack = ExitStack()
        try:
            if self.treatments:
                stack.callback(self._exchange_memos(subject))
            for treatment in self.treatments:
                stack.callback(treatment.apply(subject))
        except BaseException:
            stack.close()
            raise
        return stack.close

    def _exchange_memos(self, subject: Subject) -> Undo:
        family = getattr(subject, "family", None)  # a program's own subject may have none
        memos = Unregistered.from_family(family).memos(subject.module) if family is not None else ()
        own = [(owner, name, getattr(owner, name)) for owner, name in memos]
        for owner, name, _ in own:
            setattr(owner, name, self._memos.get((id(owner), name)))

        def undo() -> None:
            for owner, name, value in own:
                self._memos[id(owner), name] = getattr(owner, name)
                setattr(owner, name, value)

        return undo

    def traits(self) -> Traits:
        """Return the traits of its treatments, in the order in which they are applied."""
        recipes = dict.fromkeys(treatment.recipe for treatment in self.treatments if treatment.recipe)
        traits = [treatment.traits() for treatment in self.treatments]
        for each, treatment in zip(traits, self.treatments, strict=True):
            each.package = " ".join(find_package(type(treatment).__module__) or ())
        return Traits(recipe=", ".join(recipes), treatments=traits)

    @property
    def phases(self) -> frozenset[Phase]:
        """The phases that all its treatments are for."""
        return ANY_PHASE.intersection(*(treatment.phases for treatment in self.treatments))

    def pools(self, device: torch.device) -> set[Pool]:
        """Private pools of the allocator of ``device`` in which its treatments keep memory."""
        return {pool for treatment in self.treatments for pool in treatment.pools(device)}

    def retained_bytes(self) -> int:
        """Return the bytes of freed memory that its treatments keep with the process: the most of any of them."""
        return max((treatment.retained_bytes() for treatment in self.treatments), default=0)

    @property
    def builds(self) -> tuple[Builds, ...]:
        """How its first call makes what later ones run, each way once; empty where it makes nothing."""
        return tuple(dict.fromkeys(treatment.builds for treatment in self.treatments if treatment.builds))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that its treatments compute in, each once."""
        return tuple(dict.fromkeys(dtype for treatment in self.treatments for dtype in treatment.dtypes))

    @property
    def weight_dtypes(self) -> tuple[str, ...]:
        """The dtypes in which its treatments hold copies of the weights, each once."""
        holding = (treatment.dtypes for treatment in self.treatments if treatment.copies_weights)
        return tuple(dict.fromkeys(dtype for dtypes in holding for dtype in dtypes))

    def unbuilt(self) -> Variant:
        """Return the variant whose operators can be seen: nothing is compiled, built or captured."""
        return Variant(
            self.name, tuple(_Unbuilt(treatment) if treatment.builds else treatment for treatment in self.treatments)
        )

    @property
    def changes_input(self) -> bool:
        """Whether the subject is given other data than the baseline."""
        return any(treatment.changes_input for treatment in self.treatments)

    @property
    def changes_execution(self) -> bool:
        """Whether another number of a chunk's actions is executed than without it."""
        return any(treatment.changes_execution for treatment in self.treatments)

    @property
    def fixed_inputs(self) -> bool:
        """Whether it answers only for inputs like those that it was made of."""
        return any(treatment.fixed_inputs for treatment in self.treatments)

    @property
    def is_guided(self) -> bool:
        """Whether its actions are guided towards a previous chunk."""
        return any(treatment.guided for treatment in self.treatments)

    @property
    def micro_batches(self) -> int:
        """Number of parts that a training batch is divided into; the treatment applied last decides."""
        return next((t.micro_batches for t in reversed(self.treatments) if t.micro_batches > 1), 1)

    def require(self, phase: Phase, flag: str = "--phase") -> None:
        """Raise UserError if a treatment is not for ``phase``, where it would measure nothing.

        Args:
            flag: the flag that chose ``phase``, for the message.
        """
        for treatment in self.treatments:
            if phase not in treatment.phases:
                raise UserError(f"'{self.name}': {_describe_misplaced(treatment, phase, flag)}")


def _describe_misplaced(treatment: Treatment, phase: Phase, flag: str) -> str:
    fits = [phase_name for phase_name in PHASES if phase_name in treatment.phases]
    of = "training" if set(fits) == FOR_TRAINING else " and ".join(fits)
    if phase == "inference":
        way_out = f"add --phase='{fits[-1]}'"
    else:
        training = [phase_name for phase_name in fits if phase_name in FOR_TRAINING]
        way_out = f"compare '{training[0]}'" if training else f"leave out {flag}"
    because = f" ({treatment.because})" if treatment.because else ""
    return f"{treatment.key or type(treatment).__name__} is of {of}{because}: {way_out}"
