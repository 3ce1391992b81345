"""What a postprocessor makes of the numbers that a policy gives: it is run on 0 and ±1, and its factors are read off.

What it is said to do is another thing: LeRobot's unnormaliser leaves actions as they are, in silence, where it holds
their statistics under another name than 'action'.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from lerobot.configs import FeatureType
from lerobot.lerobot_types import TransitionKey
from lerobot.utils.constants import ACTION
from torch import Tensor

IDENTITY = "IDENTITY"
# LeRobot's way of normalising → the statistics at −1 and +1. MEAN_STD has its mean at 0 and one deviation for a unit.
ENDS = {"MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}


@dataclass(frozen=True)
class ActionMap:
    """What comes out for each dimension: factor × number + offset.

    Args:
        mode: how the actions are to be unnormalised, in LeRobot's word; `IDENTITY` where they are not.
        stats: of actions, that the unnormaliser looks under; empty for none.
        others: names of statistics of actions that it holds and does not look under.
        factor, offset: (action dim,), which may be fewer than the statistics have; NaN where a dimension is no such
            line, as of a gripper that is made 0 or 1; None where the postprocessor cannot be run on numbers.
        inert: whether the actions are to be unnormalised, and are left as they are.
        relative: whether the state is added to the actions, which ``offset`` holds then.
    """

    mode: str = IDENTITY
    stats: Mapping[str, Any] = field(default_factory=dict)
    others: Sequence[str] = ()
    factor: Tensor | None = None
    offset: Tensor | None = None
    inert: bool = False
    relative: bool = False


def map_of(postprocessor: Any, width: int | None = None) -> ActionMap:
    """Measure what ``postprocessor``, LeRobot's, does to actions of ``width`` numbers. It is left as it was.

    Args:
        width: None for that of its statistics; without these it is not run.
    """
    steps = list(getattr(postprocessor, "steps", ()))
    step: Any = next((one for one in steps if isinstance(getattr(one, "stats", None), Mapping)), None)
    stats = dict(step.stats.get(ACTION) or {}) if step is not None else {}
    mode = _mode(step)
    own = next((len(flat(value)) for key, value in stats.items() if key != "count"), None)
    width = own or width
    if width is None:
        return ActionMap(mode, stats)
    whole, alone = _line(postprocessor, width), _line(step, width, step=True)
    unchanged = alone is not None and bool((alone[0] == 1).all()) and bool((alone[1] == 0).all())
    factor, offset = next((one for one in (whole, alone) if one is not None), (None, None))
    scaled = factor is not None and bool((factor.nan_to_num(1.0) != 1).any())
    return ActionMap(
        mode,
        stats,
        others=[key for key in step.stats if key != ACTION and key.endswith(ACTION)] if step is not None else [],
        factor=factor,
        offset=offset,
        inert=mode != IDENTITY and not stats and unchanged and not scaled,
        relative=any(getattr(one, "relative_step", None) is not None and one.enabled for one in steps),
    )


def nominal(mode: str, stats: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """Return the factor and the offset that ``mode`` gives with ``stats``; None where these lack what it takes.

    None for `IDENTITY` as well: a policy whose own steps unnormalise has it too.
    """
    if mode == "MEAN_STD":
        return (stats["std"], stats["mean"]) if {"mean", "std"} <= set(stats) else None
    if mode in ENDS:
        low, high = (stats.get(key) for key in ENDS[mode])
        return None if low is None or high is None else ((high - low) / 2, (high + low) / 2)
    return None


def flat(value: Any) -> Tensor:
    """Return a statistic as (action dim,), in double precision on the CPU."""
    return torch.as_tensor(value).detach().double().cpu().flatten()


def _mode(step: Any) -> str:
    found = dict(getattr(step, "norm_map", None) or {}).get(FeatureType.ACTION)
    return IDENTITY if found is None else str(getattr(found, "value", found))


def _line(part: Any, width: int, step: bool = False) -> tuple[Tensor, Tensor] | None:
    """The factor and the offset of ``part`` in each dimension; None where it does not take such actions."""
    try:
        # A copy: steps move their statistics to where the actions are, and some keep what they saw.
        run = copy.deepcopy(part)
        middle, high, low = (_through(run, torch.full((1, 1, width), value).double(), step) for value in (0, 1, -1))
    except Exception:
        return None
    if len(middle) > width:
        return None
    factor = (high - low) / 2
    straight = (high + low - 2 * middle).abs() <= 1e-3 * factor.abs() + 1e-6 * middle.abs()
    return torch.where(straight, factor, torch.nan), torch.where(straight, middle, torch.nan)


def _through(part: Any, actions: Tensor, step: bool) -> Tensor:
    return flat(part({TransitionKey.ACTION: actions})[TransitionKey.ACTION] if step else part(actions))
