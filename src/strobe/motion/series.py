"""The input of the checks of motion: each dimension, its spikes and wraps, and the means in ``meta/``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.numbers import STATE, Numbers, read_episode_statistics
from strobe.lerobot.datasets.recording import Recording

SAMPLE = 200_000  # rows that a dimension's range and speeds are taken from
TURNS = (360.0, 2 * np.pi)  # of a joint in degrees, in radians
WHOLE = 0.8  # share of a turn: no joint moves so far in a tick, and a jump from end to end of ± half a turn does
WIDEST = 1.05  # turns between both sides of all jumps: with more they are no wraps of one turn
FEW_BEYOND = 0.01  # share of the values outside of both sides: of an angle that wraps they hold all
FAST = 0.995  # quantile of a dimension's own steps
BEYOND = 4.0  # times that: the noise of an encoder has 1.4 times it in 10,000 ticks, a jerk less
LEAST = 0.1  # share of a dimension's range: below it a spike changes no statistic
BACK = 0.3  # share of a spike that may remain when it is over: else it is a step
FEW = 12  # values: a dimension that has no more is a switch


@dataclass(frozen=True)
class Series:
    """The numbers of the episodes that are looked at.

    Args:
        fps: rows in a second.
        vectors: name → (frames, dimensions), of all frames.
        names: name → names of the dimensions, as many as there are.
        episodes: (episodes,) their numbers.
        bounds: of each episode, its first row and that behind its last.
        task: (frames,) number of each row's task; −1 where the tables have none.
        tasks: tasks that ``meta/tasks`` lists.
        means: name → (episodes, dimensions) of ``meta/episodes``, with NaN where it has none.
        servos: part of a joint's name → its servo and the servo's speed without load; None: not known.
    """

    fps: float
    vectors: dict[str, np.ndarray]
    names: dict[str, list[str]]
    episodes: np.ndarray
    bounds: list[tuple[int, int]]
    task: np.ndarray
    tasks: int = 0
    means: dict[str, np.ndarray] = field(default_factory=dict)
    servos: dict[str, tuple[str, float]] | None = None

    @property
    def rows(self) -> dict[int, int]:
        """Episode → its rows."""
        return {int(number): end - start for number, (start, end) in zip(self.episodes, self.bounds, strict=True)}

    def inside(self) -> np.ndarray:
        """Return whether the step from each row to the next is inside of one episode, (frames − 1,)."""
        found = np.zeros(len(self.task), bool)
        for start, end in self.bounds:
            found[start : end - 1] = True
        return found[:-1]


def make_series(read: Recording, numbers: Numbers, chosen: Collection[int]) -> Series:
    """Return what the checks read. Episodes with a number that is not finite are left out: other checks name them.

    Args:
        chosen: the episodes that are looked at.

    Raises:
        DatasetError: a file of ``meta/episodes`` cannot be read.
    """
    finite = np.ones(len(numbers.episode), bool)
    for values in numbers.vectors.values():
        finite &= np.isfinite(values).all(axis=1)
    wanted = set(chosen)
    bounds = [(a, b) for a, b in numbers.bounds if int(numbers.episode[a]) in wanted and finite[a:b].all()]
    episodes = np.array([numbers.episode[start] for start, _ in bounds], dtype=np.int64)
    names = {}
    for name, values in numbers.vectors.items():
        named = recording.dimension_names(read.features[name])
        whole = len(named) == values.shape[1] == len(set(named))
        names[name] = named if whole else [f"number {at}" for at in range(values.shape[1])]
    means = {name: _read_means(read, name, values.shape[1], episodes) for name, values in numbers.vectors.items()}
    unnamed = "number 0" in names.get(STATE, ["number 0"])
    servos = None if unnamed else recording.find_servos(read.info.get("robot_type"))
    return Series(read.fps, numbers.vectors, names, episodes, bounds, numbers.task, read.tasks, means, servos)


def _read_means(read: Recording, name: str, dimensions: int, episodes: np.ndarray) -> np.ndarray:
    found = np.full((len(read.episodes), dimensions), np.nan)
    for numbers, means in read_episode_statistics(read, f"stats/{name}/mean"):
        if means.shape[1] == dimensions:
            found[numbers] = means
    return found[episodes]


def sample_rows(series: Series) -> np.ndarray:
    """Return rows of the episodes, evenly spread, at most `SAMPLE` of them."""
    rows = np.concatenate([np.arange(start, end) for start, end in series.bounds])
    return rows[:: max(1, -(-len(rows) // SAMPLE))]


@dataclass(frozen=True)
class Column:
    """One dimension of a vector.

    Args:
        spikes: rows within a spike.
        wraps: rows before a jump of nearly a whole turn.
        turn: the whole turn, in the dimension's unit.
        clean: (frames,) its values without both.
        reach: its range, from the 1st to the 99th percentile; that of ``clean``.
    """

    spikes: np.ndarray
    wraps: np.ndarray
    turn: float
    clean: np.ndarray
    reach: float


def read_columns(series: Series, vector: str) -> list[Column]:
    """Return the dimensions of a vector."""
    inside, some = series.inside(), sample_rows(series)
    values = series.vectors[vector]
    turns = find_turns(values[some])
    return [_read_column(series, *each, inside, some) for each in zip(values.T, turns, strict=True)]


def _read_column(series: Series, values: np.ndarray, turn: float, inside: np.ndarray, some: np.ndarray) -> Column:
    steps = np.where(inside, np.diff(values), 0)
    wraps = np.flatnonzero((np.abs(steps) >= WHOLE * turn) & (np.abs(steps) <= turn * (2 - WHOLE)))
    clean, ends = values, np.concatenate([values[wraps], values[wraps + 1]])
    if len(wraps) and (
        np.ptp(ends) > WIDEST * turn or np.mean((values < ends.min()) | (values > ends.max())) > FEW_BEYOND
    ):
        wraps = wraps[:0]
    if len(wraps):
        clean = values.copy()
        for start, end in series.bounds:
            clean[start:end] = np.unwrap(values[start:end], period=turn)
        steps = np.where(inside, np.diff(clean), 0)
    reach = float(np.subtract(*np.quantile(clean[some], (0.99, 0.01))))
    limit = max(BEYOND * float(np.quantile(np.abs(steps[some[:-1]]), FAST)), LEAST * reach)
    spikes = np.zeros(0, np.int64)
    if limit > 0 and len(np.unique(values[some[: 20 * FEW]])) > FEW:
        spikes = _find_spikes(clean, steps, inside, limit)
    if len(spikes):
        kept = np.setdiff1d(np.arange(len(clean)), spikes)
        clean = np.where(np.isin(np.arange(len(clean)), spikes), np.interp(np.arange(len(clean)), kept, clean[kept]),
                         clean)  # fmt: skip
    return Column(spikes, wraps, turn, clean, reach)


def find_turns(values: np.ndarray) -> np.ndarray:
    """Return the whole turn in the unit of each dimension of (rows, dimensions).

    Values within two turns are radians, unless most dimensions have more: then the arm is in degrees, and the others
    move little.
    """
    degrees = np.quantile(np.abs(values), 0.99, axis=0) > 2 * TURNS[1]
    return np.where(degrees | (2 * degrees.sum() > len(degrees)), *TURNS)


def cut(columns: list[np.ndarray], start: int, end: int) -> np.ndarray:
    """Return (rows, columns): the rows from ``start`` to before ``end``. Of all rows it would copy the set."""
    return np.stack([column[start:end] for column in columns], axis=1)


def _find_spikes(values: np.ndarray, steps: np.ndarray, inside: np.ndarray, limit: float) -> np.ndarray:
    """Return the rows that are far from the row before them, one or two rows before the values are back there."""
    found: list[int] = []
    for before in np.flatnonzero(np.abs(steps) > limit).tolist():
        for long in (1, 2):
            after = before + 1 + long
            if found and before <= found[-1]:
                break  # the way back
            if after < len(values) and inside[before:after].all():
                size = abs(float(steps[before]))
                if abs(float(values[after] - values[before])) < BACK * size:
                    found += range(before + 1, after)
    return np.unique(np.array(found, np.int64))
