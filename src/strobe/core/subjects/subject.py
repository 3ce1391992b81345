"""The subject of a study: a policy or another model."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from typing_extensions import Self

from strobe.core.families.family import Family
from strobe.core.measure.compilations import CompileLog
from strobe.core.measure.guard import Of
from strobe.core.results.agreement import ActionScale
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import Traits
from strobe.core.subjects.check_inputs import COUNT, Checks, Observation
from strobe.core.subjects.outputs import Numbers
from strobe.core.timeline.probe import Hook
from strobe.core.torch_there import is_tensor

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Phase = Literal["inference", "training forward", "training step"]

Batch = dict[str, Any]  # what a policy is called with: tensors and texts, by LeRobot's keys
Kind = Literal["data", "made up", "pending"]


@dataclass(frozen=True)
class InputSource:
    """Observations that a subject is called with: recorded ``data``, or what was ``made up`` in their shapes.

    The inputs of a policy that a program loads for its own observations, still ``pending``, are made up too.

    ``digest``: of recorded data, to recognise measurements on other data.
    """

    kind: Kind
    digest: str = ""

    @property
    def name(self) -> str:
        """Name for files."""
        return self.digest or self.kind.replace(" ", "-")


def digest(observations: Sequence[object]) -> str:
    """Return a short digest of ``observations``: of the bytes of their tensors and arrays, and of their texts."""
    hashed = hashlib.blake2b(digest_size=6)
    for leaf in _entries(observations):
        if is_tensor(leaf):
            import torch

            hashed.update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        elif isinstance(leaf, np.ndarray):
            hashed.update(np.ascontiguousarray(leaf).tobytes())
        else:
            hashed.update(repr(leaf).encode())
    return hashed.hexdigest()


def _entries(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _entries(entry)
    else:
        yield value


ITERATION = "iteration"  # the section around one run of the whole


@dataclass(frozen=True)
class Latest:
    """What a subject says of its latest call, besides the tensor that the call returned.

    Args:
        took_ms: its own time on the host, in milliseconds; None where all of the call counts.
        place: of its input, which other indices have too.
        form: the numbers of an output whose meaning is not known, without their values.
        pooled: mean of features over their tokens, (clips, width), for clips of any size.
    """

    took_ms: float | None = None
    place: int = 0
    form: Numbers | None = None
    pooled: Tensor | None = None


class Abilities(Protocol):
    """What a subject can do besides running. One that says nothing returns features and can do nothing else.

    Attributes:
        returns: what a call in inference returns: actions, features, or outputs whose meaning is not known.
        latest: of its latest call.
    """

    returns: ClassVar[Of] = "features"
    latest: Latest = Latest()

    @property
    def acting(self) -> ActingSubject | None:
        """The subject itself if it acts: `ActingSubject` says what is known of its actions."""
        return None

    @property
    def caveats(self) -> Sequence[str]:
        """Notes that every verdict must show."""
        return ()

    def compiled_before(self, name: str) -> CompileLog:
        """Return, once, what torch.compile did in calls of ``name`` before it was measured."""
        return CompileLog()


class Subject(Abilities, Protocol):
    """Something that runs, in sections, with places to attach probes to."""

    @property
    @abstractmethod
    def module(self) -> torch.nn.Module:
        """The module that holds the weights."""

    @property
    @abstractmethod
    def info(self) -> SubjectInfo:
        """Facts about the subject, for the result."""

    @property
    @abstractmethod
    def family(self) -> Family:
        """The record of its family, or one that divides it along its modules."""

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """Notes on how it was built."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that it computes on; a `Processor` where torch is not installed."""

    @property
    @abstractmethod
    def input_source(self) -> InputSource:
        """The kind and digest of its inputs."""

    @property
    @abstractmethod
    def compiled_methods(self) -> Sequence[tuple[str, str]]:
        """Methods that ``--compile`` compiles, as (path of the object under ``module``, method)."""

    @abstractmethod
    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """Return index → one iteration of ``phase``, which opens the section `ITERATION` and returns a tensor.

        Raises UserError if the phase cannot be run.
        """

    @abstractmethod
    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Return the hooks for ``phase``, down to ``depth`` levels."""

    @abstractmethod
    def traits(self, phase: Phase, batch_size: int) -> Traits:
        """Return what a call works on: batch size, chunk size, steps, frames."""


class ActingSubject(Subject, ABC):
    """A subject with chunks of actions, observations to check them on, and a loss.

    A policy of LeRobot is one (`strobe.lerobot.policies.policy_subject`). Studies ask for `Subject.acting` where they
    compare actions, train, or put on what only a policy has.

    Attributes:
        seed: of the noise; observation ``index`` gets ``seed + index``.
        inputs: its observations.
        training: how a training step is made; treatments change it.
    """

    returns: ClassVar[Of] = "actions"
    seed: int
    inputs: Any
    training: Any

    @property
    def acting(self) -> Self:
        """The subject itself."""
        return self

    @property
    @abstractmethod
    def policy(self) -> Any:
        """The policy's own object, a torch module with a ``config``."""

    @property
    @abstractmethod
    def executed_actions(self) -> int | None:
        """Actions of a chunk that the robot executes before the next one; None if nothing says how many."""

    @abstractmethod
    def act(self, observation: Observation, seed: int) -> Tensor:
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
    def gradient(self, raw: Observation, index: int = 0, scale: float = 1.0) -> Tensor:
        """Return the loss of a raw batch, and leave its gradient in the parameters' ``grad``."""


_FINGERPRINT_NUMBERS = 64  # numbers of each tensor: training changes them all


def fingerprint(module: torch.nn.Module) -> str:
    """Return a digest of the names and shapes of ``module``'s parameters and buffers, and the first numbers of each."""
    seen = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        first = tensor.detach().flatten()[:_FINGERPRINT_NUMBERS].to("cpu")
        seen.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        seen.update(first.double().numpy().tobytes() if not first.is_complex() else b"")
    return seen.hexdigest()[:16]


def count(*modules: torch.nn.Module) -> dict[str, Any]:
    """Return the figures of the weights in `SubjectInfo`: their number, their bytes, and their number per dtype."""
    parameters = list(dict.fromkeys(parameter for module in modules for parameter in module.parameters()))
    dtypes: Counter[str] = Counter()
    for parameter in parameters:
        dtypes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return {
        "parameters": sum(p.numel() for p in parameters),
        "weight_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "dtypes": dict(dtypes),
    }
