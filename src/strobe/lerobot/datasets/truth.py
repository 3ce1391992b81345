"""Read the numbers of all frames of a data set, and compare what ``meta/`` says with them. Nothing is decoded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.errors import error_line
from strobe.core.measure.sampling import Progress
from strobe.core.untrusted import contents, parse_json
from strobe.lerobot.datasets import finder, recording
from strobe.lerobot.datasets.fault import DatasetError, Fault, ways
from strobe.lerobot.datasets.frames import task_names
from strobe.lerobot.datasets.numbers import (
    ACTION,
    STATE,
    Numbers,
    compute_statistics,
    read_numbers,
    repeats,
    standing,
    still,
)
from strobe.lerobot.datasets.recording import Recording
from strobe.lerobot.datasets.results import DataFault, DataTruth, TaskTruth, VectorTruth

SECONDS = 120.0  # for the checker: on a machine that does nothing else 5,000 episodes take a fourth of it
MOST_CHUNKS = 20_000  # chunks that the statistics of relative actions are made from, at most


@dataclass(frozen=True)
class RelativeActions:
    """How a policy takes its actions: less the state at the first frame of their chunk.

    Args:
        chunk: actions of a chunk.
        mask: whether a dimension of the action is taken so.
    """

    chunk: int
    mask: Sequence[bool]


@dataclass(frozen=True)
class Reading:
    """What is read of a data set.

    Args:
        relative: of a policy with relative actions.
        episodes: those whose faults and motions are looked at; all by default. Statistics are of all frames, as
            LeRobot's are.
        decode: whether ``look`` decodes images.
        progress: told how many files were read.
        look: given the data set, the numbers of all frames and the chosen episodes, once they are read.
    """

    relative: RelativeActions | None = None
    episodes: Sequence[int] | None = None
    decode: bool = False
    progress: Callable[[Progress], None] = lambda _: None
    look: Callable[[Recording, Numbers, list[int]], None] = lambda _read, _numbers, _chosen: None


def read_truth(root: Path, reading: Reading | None = None) -> DataTruth:
    """Return what the frames of the data set at ``root`` say, with its faults."""
    asked = reading or Reading()
    step = _steps(root, asked.progress)
    searched = finder.search(root, episodes=asked.episodes, seconds=SECONDS, step=step)
    truth = _build_truth(root, searched)
    try:
        read = recording.read(root)
        numbers = read_numbers(read, step)
        _add_numbers(truth, read, numbers, asked, set(searched.chosen))
    except (DatasetError, AttributeError, IndexError, KeyError, ValueError, TypeError) as error:
        truth.unjudged.append(f"the frames' numbers: {_describe_error(error)}")
        return truth
    try:
        asked.look(read, numbers, searched.chosen)
    except (DatasetError, IndexError, KeyError, ValueError, TypeError) as error:
        truth.unjudged.append(f"the motion: {_describe_error(error)}")
    return truth


def glance(root: Path, episodes: Sequence[int] | None = None) -> DataTruth:
    """Return what the checker of data sets finds in two seconds; the frames' numbers are not read."""
    return _build_truth(root, finder.search(root, episodes=episodes))


def _build_truth(root: Path, searched: finder.Search) -> DataTruth:
    faults = [_fault(fault, searched.chosen) for fault in searched.faults]
    return DataTruth(root=str(root), episodes=len(searched.chosen), faults=faults, unjudged=list(searched.unread))


def _describe_error(error: Exception) -> str:
    return error.fault.what if isinstance(error, DatasetError) else error_line(error, 120)


def _steps(root: Path, progress: Callable[[Progress], None]) -> Callable[[], None]:
    try:
        read = recording.read(root)
        tables = len({read.data_file(episode) for episode in read.chosen})
        files = 2 * tables + len({read.video_file(one, camera) for camera in read.cameras for one in read.chosen})
    except (DatasetError, KeyError, ValueError, TypeError):
        files = 0  # the checker says why
    began, done = time.monotonic(), 0

    def step() -> None:
        nonlocal done
        done += 1
        seconds = time.monotonic() - began
        left = seconds * (files - done) / done if done <= files else None
        progress(Progress(done, files if done <= files else None, seconds, left, "files"))

    return step


def _add_numbers(truth: DataTruth, read: Recording, numbers: Numbers, asked: Reading, chosen: set[int]) -> None:
    truth.frames, truth.episodes = len(numbers.episode), len(numbers.bounds)
    stated = read_stated_statistics(read.root)
    truth.unjudged += [
        f"the statistics of {name}: their number of dimensions differs from its frames"
        for name, values in numbers.vectors.items()
        if "mean" in stated.get(name, {}) and len(_finite(stated[name]["mean"])) != values.shape[1]
    ]
    truth.vectors = [
        vector(name, recording.dimension_names(read.features[name]), stated.get(name, {}), values, numbers.episode)
        for name, values in numbers.vectors.items()
        if len(values)
    ]
    if asked.relative is not None:
        _add_relative(truth, read, numbers, asked.relative)
    bounds = [each for each in numbers.bounds if int(numbers.episode[each[0]]) in chosen]
    action, state = numbers.vectors.get(ACTION), numbers.vectors.get(STATE)
    truth.standing = standing(state, bounds)
    vectors = {name: values for name, values in ((ACTION, action), (STATE, state)) if values is not None}
    seen = [repeats(name, values, bounds) for name, values in vectors.items()]
    truth.repeats = [each for each in seen if each is not None]
    words, counts = task_names(read), np.unique(numbers.task, return_counts=True)
    truth.tasks = [
        TaskTruth(text=words[int(task)], frames=int(count))
        for task, count in zip(*counts, strict=True)
        if int(task) in words
    ]


def _fault(fault: Fault, chosen: Sequence[int]) -> DataFault:
    return DataFault(
        kind=fault.kind.split(" ")[0],
        what=fault.what,
        brief=fault.brief,
        why=fault.why,
        do=ways(fault, chosen),
        episodes=len(fault.episodes),
        stops=fault.stops,
    )


def read_stated_statistics(root: Path) -> dict[str, dict[str, Any]]:
    """Return what ``meta/stats.json`` says: feature → statistic → numbers; {} if it cannot be read."""
    try:
        content = parse_json(contents(root / recording.STATS))
    except (OSError, ValueError):
        return {}  # the finder of faults says so
    return {name: each for name, each in content.items() if isinstance(each, dict)} if isinstance(content, dict) else {}


def vector(
    name: str, names: Sequence[str], stated: Mapping[str, Any], values: np.ndarray, episode: np.ndarray
) -> VectorTruth:
    """Return a vector's stated statistics and those of all its frames.

    Args:
        values: (frames, dimensions).
        episode: (frames,).
    """
    finite = values[np.isfinite(values).all(axis=1)]
    said = {key: _finite(numbers) for key, numbers in stated.items() if key != "count"}
    said = {key: numbers for key, numbers in said.items() if len(numbers) == values.shape[1]}
    found = VectorTruth(
        name=name,
        dimensions=[names[at] if at < len(names) else f"number {at}" for at in range(values.shape[1])],
        stated=said,
        measured=compute_statistics(finite),
        counted=_count(stated.get("count")),
    )
    found.still = still(values, episode, found.measured) if len(finite) == len(values) else []
    low, high = (said.get(key) or [] for key in ("q01", "q99"))
    if low and high and len(finite):
        for column, one, two in zip(finite.T, low, high, strict=True):
            place = np.zeros(1)
            if one is not None and two is not None and one < two:
                place = np.abs(2 * (column - one) / (two - one) - 1)
            found.outside = [*found.outside, float((place > 1).mean())]
            found.farthest = [*found.farthest, float(place.max())]
    return found


def relative_to_state(
    actions: np.ndarray, states: np.ndarray, bounds: Sequence[tuple[int, int]], relative: RelativeActions
) -> np.ndarray:
    """Return actions less the state of their chunk's first frame, (numbers, dimensions), of whole chunks alone.

    LeRobot's own rule (``compute_relative_action_stats``). Of many chunks an even part is taken.
    """
    chunk = max(1, relative.chunk)
    starts = np.concatenate([np.arange(start, max(start, end - chunk + 1)) for start, end in bounds])
    starts = starts[:: max(1, len(starts) // MOST_CHUNKS)].astype(np.int64)
    chunks = actions[starts[:, None] + np.arange(chunk)].astype(np.float32)
    mask = np.flatnonzero(np.asarray(relative.mask, dtype=bool)[: min(actions.shape[1], states.shape[1])])
    chunks[:, :, mask] -= states[starts][:, None, mask]
    return chunks.reshape(-1, actions.shape[1])


def _add_relative(truth: DataTruth, read: Recording, numbers: Numbers, relative: RelativeActions) -> None:
    actions, states = numbers.vectors.get(ACTION), numbers.vectors.get(STATE)
    if actions is None or states is None:
        truth.unjudged.append("relative actions: the dataset has no action or no observation.state")
        return
    made = relative_to_state(actions, states, numbers.bounds, relative)
    if not len(made):
        truth.unjudged.append(f"relative actions: no episode has {relative.chunk} frames, the length of a chunk")
        return
    plain = truth.vector(ACTION)
    stated = plain.stated if plain is not None else {}
    names = recording.dimension_names(read.features[ACTION])
    truth.relative = vector(ACTION, names, stated, made, np.zeros(len(made)))
    truth.relative.still = []
    truth.chunk = relative.chunk


def _finite(values: Any) -> list[float | None]:
    try:
        flat = np.asarray(values, dtype=float).ravel()
    except (TypeError, ValueError):
        return []
    return [float(value) if np.isfinite(value) else None for value in flat]


def _count(value: Any) -> int | None:
    numbers = _finite(value) if value is not None else []
    return int(numbers[0]) if numbers and numbers[0] is not None else None
