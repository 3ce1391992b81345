"""Mean and standard deviation of the relative values that the policy works with.

Relative means: an action minus the state at the chunk's start, dimension by dimension; action dimensions beyond the
state's stay absolute. The state's change is the state minus the state some frames before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.utils.constants import ACTION, OBS_STATE
from numpy.typing import NDArray

Array = NDArray[np.float64]

# What varies less than this is constant: dividing by its spread would blow up rounding errors.
_CONSTANT = 1e-6


@dataclass(frozen=True)
class Statistics:
    """Of the relative actions (action_dim,) and of the state's change (state_dim,)."""

    action_mean: Array
    action_std: Array
    delta_mean: Array
    delta_std: Array


def compute_statistics(root: Path, chunk_size: int, frames: int) -> Statistics:
    """Exact statistics over what training sees of the LeRobot dataset at ``root``; video is not touched.

    Every frame is the start of a chunk of ``chunk_size`` actions, of which those past its episode's end are padding
    and do not count. Before an episode's first frame the state is taken to be the first one, as LeRobot does.

    Raises ValueError if there are no parquet files or no frames in them.
    """
    episodes = list(_episodes(root))
    actions = _mean_std(lambda: (part for pair in episodes for part in _relative(*pair, chunk_size)))
    deltas = _mean_std(lambda: (_changes(states, frames) for _, states in episodes))
    return Statistics(*actions, *deltas)


def bounds(stats: Mapping[str, Mapping[str, Any]]) -> Statistics:
    """From the statistics of the absolute values: exact means, and the largest standard deviations they allow.

    std(a - s) ≤ std(a) + std(s), and so std(s - s') ≤ 2 std(s). Good enough to run random weights; a policy that is to
    learn wants `of_dataset`, whose values are usually much smaller. Raises KeyError where mean or std are missing.
    """
    mean, std, state_mean, state_std = (
        np.asarray(stats[key][name], np.float64).reshape(-1) for key in (ACTION, OBS_STATE) for name in ("mean", "std")
    )
    size = len(mean)
    return Statistics(
        mean - _fit(state_mean, size), _usable(std + _fit(state_std, size)), 0 * state_mean, _usable(2 * state_std)
    )


def _episodes(root: Path) -> Iterator[tuple[Array, Array]]:
    """(actions, states) of each episode, (frames, dim) each, in the order of the frames."""
    import pyarrow as pa  # comes with lerobot's dataset extra, which inference does without
    import pyarrow.parquet as pq

    files = sorted((root / "data").rglob("*.parquet"))
    columns = ["episode_index", "frame_index", ACTION, OBS_STATE]
    table = pa.concat_tables([pq.read_table(file, columns=columns) for file in files]) if files else None
    if table is None or not len(table):
        raise ValueError(
            "act_relative_rtc computes its statistics from the dataset's parquet files, of which there are none here: "
            "download the dataset's data folder (a streamed dataset has none)"
        )
    table = table.sort_by([("episode_index", "ascending"), ("frame_index", "ascending")])
    numbers = table["episode_index"].to_numpy()
    actions, states = (_matrix(table[key]) for key in (ACTION, OBS_STATE))
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield actions[start:stop], states[start:stop]


def _matrix(column: Any) -> Array:
    """A column of vectors, or of plain numbers where LeRobot stores a vector of one as a number."""
    values = column.combine_chunks()
    flat = values.flatten() if hasattr(values, "flatten") and hasattr(values.type, "value_type") else values
    return np.asarray(flat.to_numpy(zero_copy_only=False), np.float64).reshape(len(column), -1)


def _relative(actions: Array, states: Array, chunk_size: int) -> Iterator[Array]:
    origin = _fit(states, actions.shape[1])
    for ahead in range(min(chunk_size, len(actions))):
        yield actions[ahead:] - origin[: len(actions) - ahead]


def _changes(states: Array, frames: int) -> Array:
    return states - states[np.maximum(np.arange(len(states)) - frames, 0)]


def _mean_std(parts: Callable[[], Iterable[Array]]) -> tuple[Array, Array]:
    """Over the rows of all parts; in two passes, because a sum of squares would lose what is far from zero."""
    count = sum(len(part) for part in parts())
    mean = np.sum([part.sum(0) for part in parts()], axis=0) / count
    variance = np.sum([np.square(part - mean).sum(0) for part in parts()], axis=0) / count
    return mean, _usable(np.sqrt(variance))


def _usable(std: Array) -> Array:
    return np.where(std < _CONSTANT, 1.0, std)


def _fit(values: Array, size: int) -> Array:
    """``values`` with its last dimension cut or filled with zeros to ``size``."""
    kept = values[..., :size]
    return np.concatenate([kept, np.zeros((*kept.shape[:-1], size - kept.shape[-1]))], axis=-1)
