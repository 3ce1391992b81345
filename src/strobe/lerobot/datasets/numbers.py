"""Read the vectors of all frames of a data set, and take their statistics. Nothing is decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow

from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.recording import Recording
from strobe.lerobot.datasets.results import Statistics

ACTION, STATE = "action", "observation.state"
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)


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
    files = dict.fromkeys(read.data_file(episode) for episode in read.chosen)
    numbered = [name for name in ("episode_index", "task_index") if name in read.features or name == "episode_index"]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (*numbered, *sizes)}
    for file in files:
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
