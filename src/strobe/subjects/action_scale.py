"""The spread of a policy's actions, in which errors are told: from its own statistics where it has some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lerobot.utils.constants import ACTION
from torch import Tensor

from strobe.results.agreement import ActionScale

OWN = "the policy's own normalisation statistics"
MEASURED = "the untouched policy's actions over the observations, as there are no statistics of actions"
_NARROW = 1e-4  # of the largest spread: a dimension below it does not move in the data
_TWO_VALUES = 0.02  # how far the variance may be from that of a dimension that only ever is at its two ends


def scale_of(
    postprocessor: Any,
    stats: Mapping[str, Any],
    names: Sequence[str] | None,
    inputs: str,
    chunks: Sequence[Tensor] = (),
) -> ActionScale | None:
    """Return the spread of each action dimension.

    Args:
        postprocessor: LeRobot's, whose unnormaliser may hold statistics of the actions.
        stats: of the inputs, for a policy that has none.
        names: of the action's dimensions, where they are known.
        inputs: what the inputs' statistics are of, in words.
        chunks: of the untouched policy, (…, action dim), for a policy and inputs without any.

    Returns:
        None where there are neither statistics nor chunks.
    """
    for source, found in ((OWN, _own(postprocessor)), (f"the statistics of {inputs}", dict(stats.get(ACTION) or {}))):
        spread = _spread(found)
        if spread is not None and (not chunks or chunks[0].shape[-1] == len(spread)):
            return _scale(spread, {key: _flat(value) for key, value in found.items()}, names, source)
    if not chunks:
        return None
    actions = torch.cat([chunk.double().reshape(-1, chunk.shape[-1]) for chunk in chunks])
    measured = {"min": actions.amin(0), "max": actions.amax(0), "mean": actions.mean(0)}
    return _scale(actions.std(0, correction=0), measured, names, MEASURED)


def _own(postprocessor: Any) -> dict[str, Any]:
    for step in getattr(postprocessor, "steps", ()):
        stats = getattr(step, "stats", None)
        if isinstance(stats, Mapping) and stats.get(ACTION):
            return dict(stats[ACTION])
    return {}


def _spread(stats: Mapping[str, Any]) -> Tensor | None:
    if "std" in stats:
        return _flat(stats["std"])
    if {"min", "max"} <= set(stats):  # of values that lie evenly between the two
        return (_flat(stats["max"]) - _flat(stats["min"])) / 12**0.5
    if {"q01", "q99"} <= set(stats):
        return (_flat(stats["q99"]) - _flat(stats["q01"])) / 12**0.5
    return None


def _scale(spread: Tensor, stats: Mapping[str, Tensor], names: Sequence[str] | None, source: str) -> ActionScale:
    width = len(spread)
    named = list(names) if names is not None and len(names) == width else [f"action {d}" for d in range(width)]
    moving = spread[spread.isfinite() & (spread > _NARROW * spread.nan_to_num(0.0).max())]
    still = ~spread.isfinite() | (spread <= _NARROW * spread.nan_to_num(0.0).max())
    if still.any():
        usual = float(moving.median()) if len(moving) else 1.0
        spread = torch.where(still, usual, spread)
        quiet = ", ".join(name for name, one in zip(named, still.tolist(), strict=True) if one)
        source += f"; {quiet} does not move in them and takes the middle spread of the others"
    low, high = (stats.get(key, torch.zeros(width)) for key in ("min", "max"))
    ends = _two_ends(spread, stats)
    # A gripper's name tells what two values cannot: one that closes slowly passes through all that lies between.
    decides = [bool(end) or ("gripper" in name.lower() and wide > 0)
               for name, end, wide in zip(named, ends, (high - low).tolist(), strict=True)]  # fmt: skip
    return ActionScale(
        source=source,
        names=named,
        spread=spread.tolist(),
        decides=decides,
        middle=((low + high) / 2).tolist(),
        width=(high - low).tolist(),
    )


def _two_ends(spread: Tensor, stats: Mapping[str, Tensor]) -> list[bool]:
    """Whether each dimension only ever is at its lowest or its highest value.

    The variance of values in [a, b] with mean m is at most (b − m)(m − a), and it is just that where all of them are a
    or b (Bhatia and Davis 2000).
    """
    if not {"min", "max", "mean"} <= set(stats):
        return [False] * len(spread)
    most = (stats["max"] - stats["mean"]) * (stats["mean"] - stats["min"])
    return ((most > 0) & ((spread.square() - most).abs() <= _TWO_VALUES * most)).tolist()


def _flat(value: Any) -> Tensor:
    return torch.as_tensor(value).detach().double().cpu().flatten()
