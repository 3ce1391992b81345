"""Chunks of policies whose ``predict_action_chunk`` reads the queues of observations that ``select_action`` fills."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from lerobot.policies.utils import populate_queues
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE
from torch import Tensor

from strobe.core.subjects.subject import Batch, Observation

# Attributes that `reset` replaces: the queues, and the last plan, which TD-MPC starts from.
_STATE = ("_queues", "_prev_mean")

Images = Callable[[Any, Batch], Batch]


def stacked_cameras(policy: Any, batch: Batch) -> Batch:
    """Return the images of all cameras under the single key of the queues, (..., cameras, C, H, W)."""
    cameras = list(policy.config.image_features)
    return {OBS_IMAGES: torch.stack([batch[key] for key in cameras], dim=-4)} if cameras else {}


def queued_chunk(policy: Any, batch: Batch, options: Mapping[str, object], images: Images = stacked_cameras) -> Tensor:
    """Return the chunk of ``predict_action_chunk`` after ``select_action`` has seen the ticks of ``batch``.

    The policy is reset before, and its own queues are restored after, so that no chunk depends on an earlier one.

    Args:
        batch: preprocessed observations, with a dimension of ticks after the first or without one.
        images: policy, batch → the entries of its images under the names that its queues have.
    """
    seen = {key: value for key, value in batch.items() if key != ACTION}
    seen |= images(policy, seen)
    with _reset(policy):
        for tick in _ticks(policy, seen):
            populate_queues(policy._queues, tick)
        return policy.predict_action_chunk(seen, **options)


def _ticks(policy: Any, batch: Batch) -> Iterator[Observation]:
    queued = {key: value for key, value in batch.items() if key in policy._queues}
    if queued[OBS_STATE].ndim == 2:
        yield queued
        return
    for tick in range(queued[OBS_STATE].shape[1]):
        yield {key: value[:, tick] for key, value in queued.items()}


@contextlib.contextmanager
def _reset(policy: Any) -> Iterator[None]:
    state = {name: vars(policy)[name] for name in _STATE if name in vars(policy)}
    policy.reset()
    try:
        yield
    finally:
        vars(policy).update(state)
