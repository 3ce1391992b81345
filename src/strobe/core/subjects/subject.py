"""The subject of a study: a policy or another model."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from strobe.core.families.family import Family
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import Traits
from strobe.core.timeline.probe import Hook
from strobe.core.torch_there import is_tensor

if TYPE_CHECKING:
    import torch

Phase = Literal["inference", "training forward", "training step"]

Observation = dict[str, Any]  # images, state and task text of one moment, by LeRobot's keys
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
    """Yield what is in lists, tuples and dicts, in their own order."""
    if isinstance(value, list | tuple | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _entries(entry)
    else:
        yield value


ITERATION = "iteration"  # the section around one run of the whole


class Subject(Protocol):
    """Something that runs, in sections, with places to attach probes to."""

    @property
    def module(self) -> torch.nn.Module:
        """The module that holds the weights."""
        ...

    @property
    def info(self) -> SubjectInfo:
        """Facts about the subject, for the result."""
        ...

    @property
    def family(self) -> Family:
        """The record of its family, or one that divides it along its modules."""
        ...

    @property
    def notes(self) -> list[str]:
        """Notes on how it was built."""
        ...

    @property
    def device(self) -> torch.device:
        """The device that it computes on; a `Processor` where torch is not installed."""
        ...

    @property
    def input_source(self) -> InputSource:
        """The kind and digest of its inputs."""
        ...

    @property
    def compiled(self) -> Sequence[tuple[str, str]]:
        """Methods that ``--compile`` compiles, as (path of the object under ``module``, method)."""
        ...

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """Return index → one iteration of ``phase``, which opens the section `ITERATION` and returns a tensor.

        Raises UserError if the phase cannot be run.
        """
        ...

    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Return the hooks for ``phase``, down to ``depth`` levels."""
        ...

    def traits(self, phase: Phase, batch_size: int) -> Traits:
        """Return what a call works on: batch size, chunk size, steps, frames."""
        ...


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
