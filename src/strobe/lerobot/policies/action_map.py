"""Measure how a postprocessor scales a policy's actions: it is run on 0 and ±1, and its factors are read off.

Its configuration is not enough: LeRobot's unnormaliser silently leaves actions as they are if their statistics have
another name than 'action'.
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

from strobe.lerobot.processors import ENDS

IDENTITY = "IDENTITY"


@dataclass(frozen=True)
class ActionMap:
    """The output of each dimension: factor × number + offset.

    Args:
        mode: how the actions should be unnormalised, in LeRobot's word; `IDENTITY` if they should not.
        stats: the statistics of actions that the unnormaliser uses; empty for none.
        others: names of statistics of actions that it holds and does not use.
        factor, offset: (action dim,), possibly fewer than the statistics have; NaN for a dimension without such a line,
            such as a gripper that becomes 0 or 1; None if the postprocessor cannot be run on numbers.
        inert: whether the actions should be unnormalised, but are left as they are.
        relative: whether the state is added to the actions; ``offset`` then contains it.
    """

    mode: str = IDENTITY
    stats: Mapping[str, Any] = field(default_factory=dict)
    others: Sequence[str] = ()
    factor: Tensor | None = None
    offset: Tensor | None = None
    inert: bool = False
    relative: bool = False


def measure_action_map(postprocessor: object, width: int | None = None) -> ActionMap:
    """Measure what LeRobot's ``postprocessor`` does to actions of ``width`` numbers. Its state does not change.

    Args:
        width: None for the width of its statistics; without either it is not run.
    """
    steps = list(getattr(postprocessor, "steps", ()))
    step: Any = next((step for step in steps if isinstance(getattr(step, "stats", None), Mapping)), None)
    stats = dict(step.stats.get(ACTION) or {}) if step is not None else {}
    mode = _mode(step)
    own = next((len(flat(value)) for key, value in stats.items() if key != "count"), None)
    width = own or width
    if width is None:
        return ActionMap(mode, stats)
    whole, step_line = _line(postprocessor, width), _line(step, width, step=True)
    unchanged = step_line is not None and bool((step_line[0] == 1).all()) and bool((step_line[1] == 0).all())
    factor, offset = next((line for line in (whole, step_line) if line is not None), (None, None))
    scaled = factor is not None and bool((factor.nan_to_num(1.0) != 1).any())
    return ActionMap(
        mode,
        stats,
        others=[key for key in step.stats if key != ACTION and key.endswith(ACTION)] if step is not None else [],
        factor=factor,
        offset=offset,
        inert=mode != IDENTITY and not stats and unchanged and not scaled,
        relative=any(getattr(step, "relative_step", None) is not None and step.enabled for step in steps),
    )


def nominal(mode: str, stats: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """Return the factor and the offset that ``mode`` gives with ``stats``; None if these lack what it needs.

    Also None for `IDENTITY`, which a policy has whose own steps unnormalise.
    """
    if mode == "MEAN_STD":
        return (stats["std"], stats["mean"]) if {"mean", "std"} <= set(stats) else None
    if mode in ENDS:
        low, high = (stats.get(key) for key in ENDS[mode])
        return None if low is None or high is None else ((high - low) / 2, (high + low) / 2)
    return None


def flat(value: object) -> Tensor:
    """Return a statistic as (action dim,), in double precision on the CPU."""
    return torch.as_tensor(value).detach().double().cpu().flatten()


def _mode(step: object) -> str:
    mode = dict(getattr(step, "norm_map", None) or {}).get(FeatureType.ACTION)
    return IDENTITY if mode is None else str(getattr(mode, "value", mode))


def _line(part: Any, width: int, step: bool = False) -> tuple[Tensor, Tensor] | None:
    """Return the factor and the offset of ``part`` in each dimension; None if it does not take such actions."""
    try:
        # A copy: steps move their statistics to the actions' device, and some store what they saw.
        run = copy.deepcopy(part)
        given = [torch.full((1, 1, width), value).double() for value in (0, 1, -1)]
        made = [run({TransitionKey.ACTION: each})[TransitionKey.ACTION] if step else run(each) for each in given]
        middle, high, low = map(flat, made)
    except Exception:
        return None
    if len(middle) > width:
        return None
    factor = (high - low) / 2
    straight = (high + low - 2 * middle).abs() <= 1e-3 * factor.abs() + 1e-6 * middle.abs()
    return torch.where(straight, factor, torch.nan), torch.where(straight, middle, torch.nan)
