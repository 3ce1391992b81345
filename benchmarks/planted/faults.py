"""Faults planted into a policy: each is a treatment that does something wrong, and claims to be harmless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.core.subjects.subject import Subject
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treatment import Effect, Treatment, Undo
from strobe.lerobot.config_fields import require_policy
from strobe.lerobot.policies.policy_subject import PolicySubject

Plant = Callable[[Patches, PolicySubject, dict[str, Any]], None]


@dataclass
class Planted(Treatment):
    """A fault: ``plant`` is given the patches and the subject, whenever the treatment is applied.

    Args:
        effect: what the fault claims to be: the effect of the treatment that it is an error of.
    """

    name: str
    effect: Effect
    plant: Plant
    kept: dict[str, Any] = field(default_factory=dict)  # what it remembers from one call to the next

    def apply(self, subject: Subject) -> Undo:
        patches = Patches()
        self.plant(patches, require_policy(subject), self.kept)
        return patches.undo


def plant_in_output(change: Callable[[Tensor, dict[str, Any]], Tensor]) -> Plant:
    """A fault of the chunk, (1, chunk, action dim), in the action's own units."""

    def plant(patches: Patches, subject: PolicySubject, kept: dict[str, Any]) -> None:
        made = subject.loaded.postprocessor
        patches.put(subject.loaded, "postprocessor", lambda chunk: change(made(chunk).clone(), kept))

    return plant


def plant_in_prefix(change: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]) -> Plant:
    """A fault of what ``embed_prefix`` returns: embeddings, their mask, their order."""

    def plant(patches: Patches, subject: PolicySubject, kept: dict[str, Any]) -> None:
        def wrap_call(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: change(call(*args, **kwargs), kept)

        patches.wrap(subject.policy.model, "embed_prefix", wrap_call)

    return plant


def plant_in_arguments(change: Callable[[list[Any], dict[str, Any]], list[Any]]) -> Plant:
    """A fault of what ``embed_prefix`` is given: images, their masks, tokens, their mask."""

    def plant(patches: Patches, subject: PolicySubject, kept: dict[str, Any]) -> None:
        def wrap_call(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: call(*change(list(args), kept), **kwargs)

        patches.wrap(subject.policy.model, "embed_prefix", wrap_call)

    return plant


def invert_decisions(chunk: Tensor, dimension: int, middle: float) -> Tensor:
    """The chunk with the decisions of one dimension inverted, about its ``middle``."""
    chunk[..., dimension] = 2 * middle - chunk[..., dimension]
    return chunk


def shift_early(chunk: Tensor) -> Tensor:
    """Each action one tick early; the last one is there twice."""
    return torch.cat([chunk[:, 1:], chunk[:, -1:]], dim=1)


def every(number: int, kept: dict[str, Any]) -> bool:
    """Whether this is the last of ``number`` calls."""
    kept["calls"] = kept.get("calls", 0) + 1
    return kept["calls"] % number == 0


def first(kept: dict[str, Any], key: str, value: Any) -> Any:
    """The first value that ``key`` ever had."""
    return kept.setdefault(key, value.clone() if isinstance(value, Tensor) else value)
