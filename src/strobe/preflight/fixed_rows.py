"""Rows of a data set without spikes and wraps, for a fixed copy, and the proof that nothing else changed in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from strobe.lerobot.datasets.numbers import ACTION, STATE
from strobe.motion.results import Motion
from strobe.motion.series import Column, Series, read_columns

FIXED = frozenset({"spikes", "wraps"})  # checks whose faults a copy can be without


def fix_rows(series: Series) -> dict[str, np.ndarray]:
    """Return the vectors that have spikes or wraps without them, (frames, dimensions) each.

    A spike becomes a line between the rows around it. A joint that wraps goes on over whole turns: in each episode
    around the turn where it mostly is, its action in the turn of its state.
    """
    columns = {name: read_columns(series, name) for name in series.vectors}
    found = {
        name: np.stack([each.clean for each in some], axis=1).astype(series.vectors[name].dtype)
        for name, some in columns.items()
        if any(len(each.spikes) or len(each.wraps) for each in some)
    }
    for joint, turn in _find_turns(series, columns).items():
        sides = [found[name][:, series.names[name].index(joint)] for name in (STATE, ACTION)
                 if name in found and joint in series.names[name]]  # fmt: skip
        if sides:
            _bring_to_one_turn(sides, turn, series.bounds)
    return found


def _find_turns(series: Series, columns: Mapping[str, list[Column]]) -> dict[str, float]:
    return {
        name: column.turn
        for vector, some in columns.items()
        for name, column in zip(series.names[vector], some, strict=True)
        if len(column.wraps)
    }


def _bring_to_one_turn(sides: list[np.ndarray], turn: float, bounds: list[tuple[int, int]]) -> None:
    first, others = sides[0], sides[1:]
    middle = float(np.angle(np.exp(2j * np.pi * first / turn).mean())) * turn / (2 * np.pi)
    for start, end in bounds:
        first[start:end] -= turn * np.round((np.median(first[start:end]) - middle) / turn)
        for other in others:
            other[start:end] -= turn * np.round(np.median(other[start:end] - first[start:end]) / turn)


def describe_fault(before: Motion, after: Motion | None) -> str | None:
    """Return why a copy is not sound, in words: a fault is there still, or a new one; None if it is."""
    named = {each.check for each in after.found} if after is not None else set()
    if left := sorted(named & FIXED):
        return f"its rows still have {' and '.join(left)}"
    new = sorted(named - {each.check for each in before.found})
    return f"its rows would have another fault: {', '.join(new)}" if new else None
