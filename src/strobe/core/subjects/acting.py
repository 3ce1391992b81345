"""A subject that acts: a robot policy, whose chunks can be compared in σ of its actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Capability
from strobe.core.families.family import Family
from strobe.core.families.registry import types_with
from strobe.core.results.agreement import ActionScale
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import Traits
from strobe.core.subjects.check_inputs import COUNT, Checks
from strobe.core.subjects.subject import InputSource, Phase, Subject
from strobe.core.timeline.probe import Hook

if TYPE_CHECKING:
    import torch
    from torch import Tensor

C = TypeVar("C", bound=Capability)


class ActingSubject(ABC):
    """A `strobe.core.subjects.subject.Subject` with chunks of actions, observations to check them on, and a loss.

    A policy of LeRobot is one (`strobe.lerobot.policies.policy_subject`). Studies ask for this class where they compare
    actions, train, or put on what only a policy has.

    Attributes:
        seed: of the noise; observation ``index`` gets ``seed + index``.
        inputs: its observations.
        training: how a training step is made; treatments change it.
    """

    seed: int
    inputs: Any
    training: Any
    family: Family

    @property
    @abstractmethod
    def policy(self) -> Any:
        """The policy's own object, a torch module with a ``config``."""

    @property
    @abstractmethod
    def module(self) -> torch.nn.Module:
        """The module that holds the weights."""

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """Notes on how it was built."""

    @property
    @abstractmethod
    def compiled(self) -> Sequence[tuple[str, str]]:
        """Methods that ``--compile`` compiles, as (path of the object under ``module``, method)."""

    @property
    @abstractmethod
    def info(self) -> SubjectInfo:
        """Facts about the policy, for the result."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that it computes on."""

    @property
    @abstractmethod
    def input_source(self) -> InputSource:
        """The kind and digest of its inputs."""

    @property
    @abstractmethod
    def executed(self) -> int | None:
        """Actions of a chunk that the robot executes before the next one; None if nothing says how many."""

    @abstractmethod
    def act(self, observation: dict[str, Any], seed: int) -> Tensor:
        """Return a chunk, (1, chunk, action dim) on the CPU, in the action's own units."""

    @abstractmethod
    def chunk(self, index: int = 0) -> Tensor:
        """Return the chunk of observation ``index``; see `act`."""

    @abstractmethod
    def checks(self, count: int = COUNT) -> Checks:
        """Return observations to compare its actions on: they differ in all of its inputs."""

    @abstractmethod
    def scale(self, chunks: Sequence[Tensor] = ()) -> ActionScale | None:
        """Return the spread (σ) of each action dimension; without statistics, from ``chunks`` of its own."""

    @abstractmethod
    def gradient(self, raw: dict[str, Any], index: int = 0, scale: float = 1.0) -> Tensor:
        """Return the loss of a raw batch, and leave its gradient in the parameters' ``grad``."""

    @abstractmethod
    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """Return index → one iteration of ``phase``. Raises UserError if the phase cannot be run."""

    @abstractmethod
    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Return the hooks for ``phase``, down to ``depth`` levels."""

    @abstractmethod
    def traits(self, phase: Phase, batch_size: int) -> Traits:
        """Return what a call works on: batch size, chunk size, steps."""


def capability(subject: Subject, kind: type[C]) -> C | None:
    """Return this capability of ``subject``'s family; None without it, and for a subject that does not act."""
    return subject.family.get(kind) if isinstance(subject, ActingSubject) else None


def needed(subject: Subject, kind: type[C], what: str = "this") -> C:
    """Return this capability, which ``what`` needs. Raises UserError, with the types that have it, without it."""
    if (held := capability(subject, kind)) is None:
        raise UserError(f"{subject.info.name}: {what} is for {', '.join(types_with(kind))}")
    return held
