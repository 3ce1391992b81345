"""Read the vectors of all frames of a data set, and take their statistics. Nothing is decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow

from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.recording import Recording
from strobe.lerobot.datasets.results import Repeats, Standing, Statistics

ACTION, STATE = "action", "observation.state"
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
MOST_EPISODES = 200
MOVES = 0.01  # share of a joint's spread: a step above it is a motion
FEWEST = 30  # steps
FLAT = 1e-6  # share of a dimension's size: a spread below it is none
# A dimension that jitters moves in a tick as far as in the whole data, and by little of what the others do.
JITTER, LITTLE = 0.5, 0.05
STANDS = 0.05  # share of a joint's spread: within it the joint has not left its place
SWITCHES = 0.7  # share of the ticks near one end of its range: a dimension that is open or closed
NEAR_END = 0.1  # share of the range
HELD = 6  # ticks: a number that stands longer is a joint that stands
GRAINS = 3  # times a sensor's smallest step: a smaller change may be a slow motion that the sensor rounds
REGULAR = 0.9  # share of the changes of a held vector that come after the same number of ticks, or one more


@dataclass(frozen=True)
class Numbers:
    """The vectors of all frames, in the order of their episodes.

    Args:
        episode: (frames,) the number of each frame's episode.
        task: (frames,) the number of each frame's task; -1 where the tables have none.
        vectors: name → (frames, dimensions).
    """

    episode: np.ndarray
    task: np.ndarray
    vectors: dict[str, np.ndarray]

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Each episode's first frame, and that behind its last."""
        cuts = [0, *(np.flatnonzero(np.diff(self.episode)) + 1).tolist(), len(self.episode)]
        return list(pairwise(cuts)) if len(self.episode) else []


def read_numbers(read: Recording, step: Callable[[], None] = lambda: None) -> Numbers:
    """Return the vectors ``action`` and ``observation.*`` of all frames. Raises DatasetError for a broken file.

    Args:
        step: called after each file.
    """
    sizes = {
        name: int(feature["shape"][0])
        for name, feature in read.features.items()
        if (name == ACTION or name.startswith("observation."))
        and str(feature.get("dtype")) in ("float32", "float64")
        and len(feature.get("shape") or []) == 1
    }
    numbered = [name for name in ("episode_index", "task_index") if name in read.features or name == "episode_index"]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (*numbered, *sizes)}
    for file in dict.fromkeys(read.data_file(episode) for episode in read.chosen):
        table = recording.rows(read.root, read.named, read.root / file, list(parts))
        for name, part in parts.items():
            part.append(array(table[name]).reshape(len(table), -1))
        step()
    joined = {name: np.concatenate(part) if part else np.zeros((0, 1)) for name, part in parts.items()}
    episode = joined.pop("episode_index")[:, 0].astype(np.int64)
    task = joined.pop("task_index")[:, 0].astype(np.int64) if "task_index" in joined else np.full(len(episode), -1)
    if np.any(np.diff(episode) < 0):
        order = np.argsort(episode, kind="stable")
        episode, task = episode[order], task[order]
        joined = {name: values[order] for name, values in joined.items()}
    return Numbers(episode, task, {name: values for name, values in joined.items() if values.shape[1] == sizes[name]})


def array(column: pyarrow.ChunkedArray) -> np.ndarray:
    """Return the numbers of a column, flat."""
    flat = column.combine_chunks()
    while pyarrow.types.is_nested(flat.type):
        flat = flat.flatten()
    return flat.to_numpy(zero_copy_only=False)


def read_episode_statistics(read: Recording, column: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the episodes of each file in ``meta/episodes``, and the numbers of ``column``, (episodes, numbers).

    Files without the column are left out. Raises DatasetError for a file that cannot be read.
    """
    for file in sorted((read.root / recording.EPISODES).rglob("*.parquet")):
        if column in recording.column_names(read.root, read.named, file):
            table = recording.rows(read.root, read.named, file, ["episode_index", column])
            numbers = array(table[column])
            if len(numbers) and len(numbers) % len(table) == 0:
                yield table["episode_index"].to_numpy(), numbers.reshape(len(table), -1)


def compute_statistics(values: np.ndarray) -> Statistics:
    """Return the statistics of (frames, dimensions), under LeRobot's names."""
    if not len(values):
        return {}
    found = {
        "mean": values.mean(axis=0, dtype=float),
        "std": values.std(axis=0, dtype=float),
        "min": values.min(axis=0),
        "max": values.max(axis=0),
    }
    quantiles = np.quantile(values, QUANTILES, axis=0, overwrite_input=False)
    found |= {f"q{round(100 * q):02d}": row for q, row in zip(QUANTILES, quantiles, strict=True)}
    return {name: [float(each) for each in row] for name, row in found.items()}


# How they move: which dimensions only jitter, where the arm stands, at which rate a vector really changes.


def still(values: np.ndarray, episode: np.ndarray, measured: Statistics) -> list[bool]:
    """Return whether each dimension of (frames, dimensions) only jitters. ``measured``: their statistics."""
    spread = np.array([each or 0.0 for each in measured["std"]])
    inside = np.diff(episode) == 0
    if not inside.any():
        return [False] * len(spread)
    steps = np.abs(np.diff(values, axis=0)[inside]).mean(axis=0)  # not squared: a single jump is no jitter
    away = np.abs(values - values.mean(axis=0)).mean(axis=0)
    flat = np.maximum(np.abs(values).max(axis=0), 1.0) * FLAT
    others = np.median(spread[spread > flat]) if (spread > flat).any() else 0.0
    jitters = (spread > flat) & (steps > JITTER * away) & (spread < LITTLE * others)
    return [bool(each) for each in jitters]


def standing(states: np.ndarray | None, bounds: Sequence[tuple[int, int]]) -> Standing | None:
    """Return how long the arm stands at starts and ends; None without a state that moves."""
    if states is None or not bounds or not len(states) or not np.isfinite(states).all():
        return None
    spread = states.std(axis=0)
    moving = spread > np.maximum(np.abs(states).max(axis=0), 1.0) * FLAT
    if not moving.any():
        return None
    near, starts, ends, total = STANDS * spread[moving], [], [], 0
    for start, end in bounds:
        own = states[start:end][:, moving]
        starts.append(_frames_before_motion(own, near))
        ends.append(_frames_before_motion(own[::-1], near))
        total += len(own)
    return Standing(
        start_ticks=float(np.median(starts)),
        start_share=sum(starts) / total,
        end_ticks=float(np.median(ends)),
        end_share=sum(ends) / total,
    )


def _frames_before_motion(own: np.ndarray, near: np.ndarray) -> int:
    left = np.flatnonzero((np.abs(own - own[0]) > near).any(axis=1))
    return max(0, int(left[0]) - 1) if len(left) else len(own)


def repeats(name: str, values: np.ndarray, bounds: Sequence[tuple[int, int]]) -> Repeats | None:
    """Return how often a vector really changes while it moves; None if too little of it moves fast enough.

    A loop that reads a sensor too seldom writes its last numbers again. Such numbers change at even distances. A joint
    that stands, one that a rounding sensor sees move slowly, and a command that jumps now and then do not.

    Args:
        values: (frames, dimensions).
        bounds: each episode's first frame, and that behind its last.
    """
    some = bounds[:: max(1, len(bounds) // MOST_EPISODES)]
    if not some:
        return None
    rows = np.concatenate([np.arange(start, end) for start, end in some])
    episode = np.repeat(np.arange(len(some)), [end - start for start, end in some])
    inside = np.append(False, np.diff(episode) == 0)
    ticks = []
    for column in values[rows].astype(float).T:
        if not np.isfinite(column).all():
            continue
        steps = np.abs(np.diff(column, prepend=column[:1]))
        at = np.flatnonzero(inside & (steps > 0))
        grain = float(steps[at].min()) if len(at) else 0.0
        fast = steps[at] > max(MOVES * float(column.std()), GRAINS * grain)
        apart = np.diff(at)
        own = apart[fast[1:] & fast[:-1] & (apart <= HELD) & (np.diff(episode[at]) == 0)]
        least = int(own.mean()) if len(own) else 0
        if len(own) >= FEWEST and ((own == least) | (own == least + 1)).mean() >= REGULAR:
            ticks.append(float(own.mean()))
    return Repeats(name=name, ticks=float(np.median(ticks)), joints=len(ticks)) if ticks else None


def is_switch(rows: np.ndarray) -> np.ndarray:
    """Return which dimensions of (rows, dimensions) are mostly at one end or the other, as a gripper's is."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    place = (rows - low) / np.maximum(high - low, 1e-12)
    ends = (place < NEAR_END).mean(axis=0), (place > 1 - NEAR_END).mean(axis=0)
    return (ends[0] + ends[1] > SWITCHES) & (np.minimum(*ends) > NEAR_END)
