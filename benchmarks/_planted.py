"""Faults planted into a policy: each is a treatment that does something wrong, and claims to be harmless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.subjects.subject import Facts, Subject
from strobe.treatments.patch import Patches
from strobe.treatments.treatment import Effect, Treatment, Undo, policy_of

Around = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass
class Planted(Treatment):
    """A fault: ``plant`` is given the patches and the policy, whenever the treatment is put on.

    Args:
        effect: what the fault claims to be: the effect of the treatment that it is an error of.
    """

    name: str
    effect: Effect
    plant: Callable[[Patches, Any, dict[str, Any]], None]
    kept: dict[str, Any] = field(default_factory=dict)  # what it remembers from one call to the next

    def facts(self) -> Facts:
        return {"planted": self.name}

    def apply(self, subject: Subject) -> Undo:
        patches = Patches()
        self.plant(patches, policy_of(subject).policy, self.kept)
        return patches.undo


def of_output(change: Callable[[Tensor, dict[str, Any]], Tensor]) -> Callable[[Patches, Any, dict[str, Any]], None]:
    """A fault of the chunk, (1, chunk, action dim), in the policy's own normalised units."""

    def plant(patches: Patches, policy: Any, kept: dict[str, Any]) -> None:
        def around(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
            return lambda *args, **kwargs: change(call(*args, **kwargs).clone(), kept)

        patches.wrap(policy, "predict_action_chunk", around)

    return plant


def of_prefix(change: Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]) -> Any:
    """A fault of what ``embed_prefix`` returns, given its arguments and its result."""

    def plant(patches: Patches, policy: Any, kept: dict[str, Any]) -> None:
        def around(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: change(args, call(*args, **kwargs), kept)

        patches.wrap(policy.model, "embed_prefix", around)

    return plant


def with_arguments(change: Callable[[list[Any], dict[str, Any]], list[Any]]) -> Any:
    """A fault of what ``embed_prefix`` is given: images, their masks, tokens, their mask."""

    def plant(patches: Patches, policy: Any, kept: dict[str, Any]) -> None:
        def around(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: call(*change(list(args), kept), **kwargs)

        patches.wrap(policy.model, "embed_prefix", around)

    return plant


def inverted(chunk: Tensor, dimension: int, middle: float) -> Tensor:
    """The chunk with the decisions of one dimension inverted; ``middle`` in normalised units."""
    chunk[..., dimension] = 2 * middle - chunk[..., dimension]
    return chunk


def shifted(chunk: Tensor) -> Tensor:
    """Each action one tick early; the last one is there twice."""
    return torch.cat([chunk[:, 1:], chunk[:, -1:]], dim=1)


def every(number: int, kept: dict[str, Any]) -> bool:
    """Whether this is the last of ``number`` calls."""
    kept["calls"] = kept.get("calls", 0) + 1
    return kept["calls"] % number == 0


def first(kept: dict[str, Any], key: str, value: Any) -> Any:
    """The first value that ``key`` ever had."""
    return kept.setdefault(key, value.clone() if isinstance(value, Tensor) else value)
