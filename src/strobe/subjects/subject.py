"""The subject: what a study runs. Policies are one kind of it, other models another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch

from strobe.results.subject import SubjectInfo
from strobe.subjects.families.family import Family
from strobe.timeline.probe import Hook

Phase = Literal["inference", "training forward", "training step"]
Facts = dict[str, str | int | float | bool | None]

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
    def device(self) -> torch.device: ...

    @property
    def compiled(self) -> Sequence[tuple[str, str]]:
        """Methods that ``--compile`` compiles, as (path of the object under ``module``, method)."""
        ...

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """One iteration of ``phase`` as a function of its index: opens the section `ITERATION`, returns a tensor.

        Raises UserError where the phase cannot be run.
        """
        ...

    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Where probes attach for ``phase``, down to ``depth`` levels."""
        ...

    def facts(self, phase: Phase, batch_size: int) -> Facts:
        """Facts to show beside the numbers: batch size, chunk size, steps, frames."""
        ...
