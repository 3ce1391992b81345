"""Read the numbers of all frames of a data set, and hold what ``meta/`` says against them. Nothing is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from strobe.core.errors import in_a_line
from strobe.core.json_text import parsed
from strobe.lerobot.datasets import finder, recording
from strobe.lerobot.datasets.fault import DatasetError, Fault, ways
from strobe.lerobot.datasets.recording import Recording
from strobe.preflight.results.truth import DataFault, DataTruth, JointShift, Standing, Statistics, VectorTruth

ACTION, STATE = "action", "observation.state"
SECONDS = 60.0  # for the checker: 5,000 episodes are read in it
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
MOST_CHUNKS = 20_000  # from which the statistics of relative actions are made
FLAT = 1e-6  # of a dimension's size: a spread below it is none
# A dimension that jitters moves in a tick as far as in the whole data, and by little of what the others do.
JITTER, LITTLE = 0.5, 0.05
STANDS = 0.05  # of a joint's spread: it has not left its place


@dataclass(frozen=True)
class Numbers:
    """The vectors of all frames, in the order of their episodes.

    Args:
        episode: (frames,) the number of each frame's episode.
        vectors: name → (frames, dimensions).
    """

    episode: np.ndarray
    vectors: dict[str, np.ndarray]

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Each episode's first frame, and that behind its last."""
        cuts = [0, *(np.flatnonzero(np.diff(self.episode)) + 1).tolist(), len(self.episode)]
        return list(pairwise(cuts)) if len(self.episode) else []


@dataclass(frozen=True)
class RelativeActions:
    """How a policy takes its actions: less the state at the first frame of their chunk.

    Args:
        chunk: actions of a chunk.
        mask: whether a dimension of the action is taken so.
    """

    chunk: int
    mask: Sequence[bool]


def read_truth(root: Path, relative: RelativeActions | None = None, episodes: Sequence[int] | None = None) -> DataTruth:
    """Return what the frames of the data set at ``root`` say, with its faults.

    Args:
        relative: of a policy with relative actions.
        episodes: those whose faults and motions are looked at; all by default. Statistics are of all frames, as
            LeRobot's are.
    """
    searched = finder.search(root, episodes=episodes, seconds=SECONDS)
    truth = DataTruth(root=str(root), unjudged=list(searched.unread))
    truth.faults = [_fault(fault, searched.chosen) for fault in searched.faults]
    try:
        read = recording.read(root)
        numbers = read_numbers(read)
    except (DatasetError, AttributeError, IndexError, KeyError, ValueError, TypeError) as error:
        what = error.fault.what if isinstance(error, DatasetError) else in_a_line(error, 120)
        truth.unjudged.append(f"the frames' numbers: {what}")
        return truth
    truth.frames, truth.episodes = len(numbers.episode), len(numbers.bounds)
    stated = _stated(root)
    truth.unjudged += [
        f"the statistics of {name}: they have another number of dimensions than its frames"
        for name, values in numbers.vectors.items()
        if "mean" in stated.get(name, {}) and len(_finite(stated[name]["mean"])) != values.shape[1]
    ]
    truth.vectors = [
        vector(name, recording.dimension_names(read.features[name]), stated.get(name, {}), values, numbers.episode)
        for name, values in numbers.vectors.items()
        if len(values)
    ]
    if relative is not None:
        _add_relative(truth, read, numbers, relative)
    truth.shifts = between(numbers.vectors.get(ACTION), numbers.vectors.get(STATE), numbers.bounds, *_names(read))
    truth.standing = _standing(numbers.vectors.get(STATE), numbers.bounds)
    return truth


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


def _names(read: Recording) -> tuple[list[str], list[str]]:
    """Return the dimensions' names of action and state."""
    described = [read.features.get(name, {}) for name in (ACTION, STATE)]
    action, state = (recording.dimension_names(each) for each in described)
    return action, state


def read_numbers(read: Recording) -> Numbers:
    """Return the vectors ``action`` and ``observation.*`` of all frames. Raises DatasetError for a broken file."""
    sizes = {
        name: int(feature["shape"][0])
        for name, feature in read.features.items()
        if (name == ACTION or name.startswith("observation."))
        and str(feature.get("dtype")) in ("float32", "float64")
        and len(feature.get("shape") or []) == 1
    }
    files = dict.fromkeys(read.data_file(episode) for episode in read.chosen)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("episode_index", *sizes)}
    for file in files:
        table = recording.rows(read.root, read.named, read.root / file, list(parts))
        for name, part in parts.items():
            part.append(_array(table[name]).reshape(len(table), -1))
    joined = {name: np.concatenate(part) if part else np.zeros((0, 1)) for name, part in parts.items()}
    episode = joined.pop("episode_index")[:, 0].astype(np.int64)
    if np.any(np.diff(episode) < 0):
        order = np.argsort(episode, kind="stable")
        episode, joined = episode[order], {name: values[order] for name, values in joined.items()}
    return Numbers(episode, {name: values for name, values in joined.items() if values.shape[1] == sizes[name]})


def _array(column: pyarrow.ChunkedArray) -> np.ndarray:
    flat = column.combine_chunks()
    while pyarrow.types.is_nested(flat.type):
        flat = flat.flatten()
    return flat.to_numpy(zero_copy_only=False)


def _stated(root: Path) -> dict[str, dict[str, Any]]:
    try:
        content = parsed((root / recording.STATS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # the finder of faults says so
    return {name: each for name, each in content.items() if isinstance(each, dict)} if isinstance(content, dict) else {}


def vector(
    name: str, names: Sequence[str], stated: Mapping[str, Any], values: np.ndarray, episode: np.ndarray
) -> VectorTruth:
    """Return a vector's stated statistics beside those of all its frames.

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
        measured=statistics_of(finite),
        counted=_count(stated.get("count")),
    )
    found.still = _still(values, episode, found.measured) if len(finite) == len(values) else []
    low, high = (said.get(key) or [] for key in ("q01", "q99"))
    if low and high and len(finite):
        for at in range(values.shape[1]):
            one, two = low[at], high[at]
            if one is None or two is None or two <= one:
                found.outside, found.farthest = [*found.outside, 0.0], [*found.farthest, 0.0]
                continue
            place = np.abs(2 * (finite[:, at] - one) / (two - one) - 1)
            found.outside = [*found.outside, float((place > 1).mean())]
            found.farthest = [*found.farthest, float(place.max())]
    return found


def statistics_of(values: np.ndarray) -> Statistics:
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
        truth.unjudged.append("relative actions: the data set has no action or no observation.state")
        return
    made = relative_to_state(actions, states, numbers.bounds, relative)
    if not len(made):
        truth.unjudged.append(f"relative actions: no episode has {relative.chunk} frames, as a chunk has")
        return
    plain = truth.vector(ACTION)
    stated = plain.stated if plain is not None else {}
    names = recording.dimension_names(read.features[ACTION])
    truth.relative = vector(ACTION, names, stated, made, np.zeros(len(made)))
    truth.relative.still = []
    truth.chunk = relative.chunk


def _still(values: np.ndarray, episode: np.ndarray, measured: Statistics) -> list[bool]:
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


def _standing(states: np.ndarray | None, bounds: Sequence[tuple[int, int]]) -> Standing | None:
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
        starts.append(_until_it_moves(own, near))
        ends.append(_until_it_moves(own[::-1], near))
        total += len(own)
    return Standing(
        start_ticks=float(np.median(starts)),
        start_share=sum(starts) / total,
        end_ticks=float(np.median(ends)),
        end_share=sum(ends) / total,
    )


def _until_it_moves(own: np.ndarray, near: np.ndarray) -> int:
    """Return the frames after the first until a joint is farther from it than ``near``."""
    left = np.flatnonzero((np.abs(own - own[0]) > near).any(axis=1))
    return max(0, int(left[0]) - 1) if len(left) else len(own)


def _finite(values: Any) -> list[float | None]:
    try:
        flat = np.asarray(values, dtype=float).ravel()
    except (TypeError, ValueError):
        return []
    return [float(value) if np.isfinite(value) else None for value in flat]


def _count(value: Any) -> int | None:
    numbers = _finite(value) if value is not None else []
    return int(numbers[0]) if numbers and numbers[0] is not None else None


# By how many ticks a data set's state repeats its action: found in its numbers, joint by joint.

EARLIEST, LATEST = -3, 10  # ticks that are tried
MOST_EPISODES = 200
EQUAL = 1e-3  # of a joint's spread: two numbers that are this near are one
MOVES = 0.01  # of a joint's spread: a step above it is a motion
ENOUGH = 0.95  # of the frames in which it moves
ALIKE = 0.8  # correlation of the steps above which state and action are of one motion
FEWEST = 30  # steps


def between(
    action: np.ndarray | None,
    state: np.ndarray | None,
    bounds: Sequence[tuple[int, int]],
    action_names: Sequence[str],
    state_names: Sequence[str],
) -> list[JointShift]:
    """Return the shift of each joint that both have; [] where they have none in common, or one is not finite.

    Args:
        action, state: (frames, dimensions).
        bounds: each episode's first frame, and that behind its last.
    """
    if action is None or state is None or not bounds:
        return []
    pairs = _pairs(action, state, action_names, state_names)
    some = bounds[:: max(1, len(bounds) // MOST_EPISODES)]
    rows = np.concatenate([np.arange(start, end) for start, end in some])
    episode = np.repeat(np.arange(len(some)), [end - start for start, end in some])
    found = []
    for name, to, at in pairs:
        commanded, moved = action[rows, to].astype(float), state[rows, at].astype(float)
        if np.isfinite(commanded).all() and np.isfinite(moved).all():
            found.append(_shift(name, commanded, moved, episode))
    return found


def _pairs(
    action: np.ndarray, state: np.ndarray, action_names: Sequence[str], state_names: Sequence[str]
) -> list[tuple[str, int, int]]:
    """Return the joints of both, with their places: by name, or by place where neither has names."""
    if not action_names and not state_names and action.shape[1] == state.shape[1]:
        return [(f"number {at}", at, at) for at in range(action.shape[1])]
    common = [name for name in action_names if name in state_names]
    return [(name, list(action_names).index(name), list(state_names).index(name)) for name in common]


def _shift(name: str, commanded: np.ndarray, moved: np.ndarray, episode: np.ndarray) -> JointShift:
    found, spread = JointShift(joint=name), float(commanded.std())
    steps = np.abs(np.diff(commanded, append=commanded[-1:]))
    moving = steps > MOVES * spread
    if spread <= 0 or moving.sum() < FEWEST or not 0.5 < moved.std() / spread < 2.0:
        return found
    if abs(commanded.mean() - moved.mean()) > spread:  # no positions, but steps or speeds
        return found
    matches = []
    inside = np.append(np.diff(episode) == 0, False)
    ahead, behind = (np.diff(each, append=each[-1:]) for each in (commanded, moved))
    for ticks in range(EARLIEST, LATEST + 1):
        first, last = max(0, -ticks), min(len(episode), len(episode) - ticks)
        here, there = slice(first, last), slice(first + ticks, last + ticks)
        same = episode[here] == episode[there]
        own = same & moving[here]
        share = float((np.abs(commanded[here] - moved[there]) <= EQUAL * spread)[own].mean()) if own.any() else 0.0
        if share > found.share:
            found.share = share
            found.equal = ticks if share >= ENOUGH else None
        both = same & inside[here] & inside[there]
        matches.append(_correlation(ahead[here][both], behind[there][both]))
    found.alike = _peak(np.array(matches))
    return found


def _correlation(one: np.ndarray, two: np.ndarray) -> float:
    spread = one.std() * two.std() if len(one) >= FEWEST else 0.0
    return float(((one - one.mean()) * (two - two.mean())).mean() / spread) if spread > 0 else 0.0


def _peak(matches: np.ndarray) -> float | None:
    """Return the ticks of the highest correlation, to a part of a tick; None where it is low, or at the last one."""
    peak = int(np.argmax(matches))
    if matches[peak] < ALIKE or peak == len(matches) - 1:
        return None
    if peak == 0:
        return float(EARLIEST)
    before, here, after = matches[peak - 1 : peak + 2]
    curve = before - 2 * here + after
    return float(EARLIEST + peak + (0.5 * (before - after) / curve if curve < 0 else 0.0))
