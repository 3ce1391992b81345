"""The spread of each dimension of a policy's actions, in output units: the unit in which errors are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lerobot.utils.constants import ACTION
from torch import Tensor

from strobe.core.results.agreement import ActionScale, JudgedBy
from strobe.lerobot.policies.action_map import IDENTITY, ActionMap, flat, measure_action_map, nominal
from strobe.lerobot.processors import ENDS

OWN = "the policy's own normalisation statistics"
MEASURED = "the baseline's actions over the observations, because there are no statistics of actions"
NORMALISED = "the policy's normalised actions"
_TWO_VALUES = 0.02  # how far the variance may be from that of a dimension that only ever is at its two ends
# σ is at most so many times the spread of the baseline's actions. An outlier in the statistics could hide all
# that a dimension does: at 40, one that always gives its mean is 0.025 σ off and an inverted one 0.05 σ, and
# 0.02 σ are allowed. Less refuses sound rounding of a dimension that rests in the observations: it moves by a hundredth
# of its σ there, and rounding by up to half of that. Both sides: `benchmarks/planted/scales.py: resting`. Policies of
# random weights spread over 0.08 to 2 σ.
MOST = 40.0
# And at least this share of a dimension's size: 0.02 σ of it are three steps of float32, which no sum can go below.
LEAST = 1e-5
SMALLEST = 1e-8  # σ of a dimension that is always 0
FEWEST = 4  # actions that show how far a dimension moves


def measure_action_scale(
    postprocessor: object,
    stats: Mapping[str, object],
    names: Sequence[str] | None,
    inputs: str,
    chunks: Sequence[Tensor] = (),
) -> ActionScale | None:
    """Return the spread of each action dimension after ``postprocessor``.

    Each dimension is judged by itself: by its statistics, scaled as the postprocessor really scales; without these by
    the chunks; if these do not move either, by its own size. ``MOST`` and ``LEAST`` bound it.

    Args:
        postprocessor: LeRobot's, whose unnormaliser may hold statistics of the actions.
        stats: of the inputs, for a policy that has none.
        names: of the action's dimensions, if known.
        inputs: the source of the inputs' statistics, in words.
        chunks: of the baseline, (…, action dim), finite or not.

    Returns:
        None without statistics and chunks.
    """
    seen = _motion(chunks) if chunks else None
    made = measure_action_map(postprocessor, None if seen is None else len(seen.spread))
    taught = _spread_by_statistics(made, stats, inputs, seen)
    if taught is None and seen is None:
        return None
    return _scale(taught, seen, names, made)


@dataclass(frozen=True)
class _Spread:
    """Figures of each dimension, (action dim,); NaN if meaningless, ends of 0 if none are stated."""

    spread: Tensor
    low: Tensor
    high: Tensor
    mean: Tensor
    source: str
    faulty: Sequence[bool] = ()  # whether a dimension's statistics hold NaN or infinity
    actions: int = 0  # that it was computed from

    @property
    def size(self) -> Tensor:
        figures = torch.stack([self.low, self.high, self.mean])
        return figures.nan_to_num(0.0, 0.0, 0.0).abs().amax(0)


def _unknown(like: _Spread | None) -> _Spread:
    none = torch.full_like(like.spread, torch.nan) if like is not None else torch.empty(0)
    return _Spread(none, none, none, none, "")


def _motion(chunks: Sequence[Tensor]) -> _Spread:
    actions = torch.cat([chunk.detach().double().cpu().reshape(-1, chunk.shape[-1]) for chunk in chunks])
    columns = [column[column.isfinite()] for column in actions.T]
    figures = [
        (float(c.std(correction=0)), float(c.min()), float(c.max()), float(c.mean())) if len(c) else (torch.nan,) * 4
        for c in columns
    ]
    spread, low, high, mean = torch.tensor(figures, dtype=torch.float64).T
    return _Spread(spread, low, high, mean, MEASURED, actions=len(actions))


def _spread_by_statistics(
    made: ActionMap, stats: Mapping[str, Any], inputs: str, seen: _Spread | None
) -> _Spread | None:
    """Return the spread of the output actions by statistics; None without usable ones."""
    for source, statistics in ((OWN, made.stats), (f"the statistics of {inputs}", dict(stats.get(ACTION) or {}))):
        come_out = None if made.factor is None else len(made.factor)  # of an action that is padded inside the policy
        plain = {key: flat(value)[:come_out] for key, value in statistics.items() if key != "count"}
        spread = _deviation(plain)
        if spread is not None and (seen is None or len(spread) == len(seen.spread)):
            return _come_out(made, plain, spread, NORMALISED if made.inert else source)
    if made.factor is None or made.mode == IDENTITY or (seen is not None and len(made.factor) != len(seen.spread)):
        return None
    # Of normalised numbers alone: a deviation of 1, or what lies evenly between −1 and 1.
    spread, none = made.factor.abs() * (1.0 if made.mode == "MEAN_STD" else 3**-0.5), torch.zeros_like(made.factor)
    return _Spread(spread, none, none, none, NORMALISED if made.inert else "the postprocessor's own factors")


def _come_out(made: ActionMap, stats: Mapping[str, Tensor], spread: Tensor, source: str) -> _Spread:
    faulty = torch.stack([~value.isfinite() for value in stats.values()]).any(0).tolist()
    low, high, mean = (stats.get(key, torch.zeros_like(spread)) for key in ("min", "max", "mean"))
    meant = nominal(made.mode, stats)
    if made.factor is None or made.offset is None or len(made.factor) != len(spread) or meant is None:
        return _Spread(spread, low, high, mean, source, faulty)
    factor, offset = meant
    near = (made.factor - factor).abs() <= 1e-3 * factor.abs() + 1e-6 * offset.abs()
    scale = torch.where(near | (factor == 0), 1.0, made.factor / factor)
    shift = made.offset - scale * offset
    shift = torch.where(shift.abs() <= 1e-3 * made.factor.abs() + 1e-6 * offset.abs(), 0.0, shift)
    if made.relative:  # to the state: the statistics do not give the actions' place
        shift = torch.where(shift == 0, shift, torch.nan)
    ends = torch.stack([scale * low + shift, scale * high + shift])
    return _Spread(spread * scale.abs(), ends.amin(0), ends.amax(0), scale * mean + shift, source, faulty)


def _deviation(stats: Mapping[str, Tensor]) -> Tensor | None:
    ways = [stats["std"]] if "std" in stats else []
    for low, high in (ENDS["QUANTILES"], ENDS["MIN_MAX"]):
        if {low, high} <= set(stats):
            ways.append((stats[high] - stats[low]) / 12**0.5)
    if not ways:
        return None
    spread = ways[0]
    for other in ways[1:]:
        spread = torch.where(spread.isfinite() & (spread > 0), spread, other)
    return spread


def _scale(taught: _Spread | None, seen: _Spread | None, names: Sequence[str] | None, made: ActionMap) -> ActionScale:
    known, moved = taught or _unknown(seen), seen or _unknown(taught)
    width = len(known.spread)
    named = list(names) if names is not None and len(names) == width else [f"action {d}" for d in range(width)]
    usable = known.spread.isfinite() & (known.spread > 0)
    most = MOST * moved.spread if moved.actions >= FEWEST else moved.spread * torch.nan
    capped = usable & (known.spread > most)
    spread = torch.where(usable, torch.where(capped, most, known.spread), moved.spread)
    least = (LEAST * (moved if seen is not None else known).size).clamp(min=SMALLEST)
    still = ~(spread >= least)
    spread = torch.where(still, least, spread)
    judged: list[JudgedBy] = [
        "size" if small else "motion" if more else "statistics" if own else "chunks"
        for small, more, own in zip(still.tolist(), capped.tolist(), usable.tolist(), strict=True)
    ]
    stated = usable & known.low.isfinite() & known.high.isfinite() & known.mean.isfinite()
    wide, low, high, mean = (
        torch.where(stated, own, seen_figure).nan_to_num(0.0, 0.0, 0.0)
        for own, seen_figure in (
            (known.spread, moved.spread), (known.low, moved.low), (known.high, moved.high), (known.mean, moved.mean)
        )
    )  # fmt: skip
    ends = _two_ends(wide, low, high, mean)
    # A gripper that closes slowly passes through all values between its two; its name identifies it.
    decides = [bool(end) or ("gripper" in name.lower() and distance > 0)
               for name, end, distance in zip(named, ends, (high - low).tolist(), strict=True)]  # fmt: skip
    return ActionScale(
        source=_words(taught.source if taught is not None else MEASURED, judged, named, taught is not None),
        names=named,
        spread=spread.tolist(),
        decides=decides,
        middle=((low + high) / 2).tolist(),
        width=(high - low).tolist(),
        judged_by=judged,
        inert=made.inert,
        note=_note(made, known, named),
    )


def _two_ends(spread: Tensor, low: Tensor, high: Tensor, mean: Tensor) -> list[bool]:
    """Return, for each dimension, whether it is always at its lowest or its highest value.

    The variance of values in [a, b] with mean m is at most (b − m)(m − a), and it is just that where all of them are a
    or b (Bhatia and Davis 2000).
    """
    most = (high - mean) * (mean - low)
    return ((most > 0) & ((spread.square() - most).abs() <= _TWO_VALUES * most)).tolist()


def _words(source: str, judged: Sequence[JudgedBy], names: Sequence[str], stated: bool) -> str:
    """Return the source of σ, and the dimensions whose σ has another source."""
    words = {
        "chunks": "by the spread of the baseline's actions, because it has no statistics",
        "motion": f"by {MOST:g} times the spread of the baseline's actions, because its statistics are larger",
        "size": "by its own size, because it does not change",
    }
    parts = [source]
    for way, why in words.items():
        dimensions = [name for name, by in zip(names, judged, strict=True) if by == way]
        if dimensions and (stated or way != "chunks"):
            parts.append(f"{', '.join(dimensions)} {why}")
    return "; ".join(parts)


def _note(made: ActionMap, known: _Spread, names: Sequence[str]) -> str:
    parts: list[str] = []
    if made.inert:
        others = f" (it has {', '.join(made.others)})" if made.others else ""
        parts.append(
            f"the actions are still normalised: the postprocessor has no statistics of '{ACTION}'{others}, and LeRobot "
            "leaves them as they are"
        )
    faulty = [name for name, bad in zip(names, known.faulty, strict=bool(known.faulty)) if bad]
    if faulty:
        parts.append(f"the statistics of {', '.join(faulty)} have infinite values or NaN")
    return "; ".join(parts)
