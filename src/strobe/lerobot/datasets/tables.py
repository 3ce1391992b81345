"""Faults of a dataset's numbers: its statistics, and the tables in ``data/``."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow

from strobe.core.untrusted import JsonObject, parse_json
from strobe.lerobot.datasets.fault import DatasetError, Fault, distance, format_episodes
from strobe.lerobot.datasets.numbers import array
from strobe.lerobot.datasets.recording import INFO, STATS, TASKS, Recording, column_names, rows

_NUMBERS = ("float16", "float32", "float64")
ODD = 0.01  # tolerance of times, as a share of a frame
HALF = 0.5  # share of a frame: a row that is further away may be another row
_ALWAYS = ("mean", "std", "min", "max")  # statistics that LeRobot writes of every feature
_READ_BY_POLICIES = ("observation.", "action")


def statistics(recording: Recording) -> Iterator[Fault]:
    """Yield faults of ``meta/stats.json``: missing, or not a number where normalisation reads one."""
    source = f"--repo_id={recording.named or 'local/' + recording.root.name} --root={recording.root}"
    together = (
        "write a dataset with the statistics of its episodes aggregated again "
        f"(lerobot-edit-dataset {source} --new_root=NEW --operation.type=split "
        """--operation.splits='{"whole": 1.0}')"""
    )
    file = recording.root / STATS
    if not file.is_file():
        yield Fault("statistics", f"{STATS} is missing, which normalisation needs", together)
        return
    try:
        written: JsonObject = parse_json(file.read_text())  # NaN and Infinity are read too
    except ValueError:
        yield Fault("statistics", f"{STATS} is not valid JSON", recording.restore(STATS))
        return
    # LeRobot's recompute_stats averages the quantiles of episodes, and leaves images out; so does a split.
    over_frames = "write a copy with the statistics of all frames (strobe preflight "
    over_frames += f"--dataset.root={recording.root} --fix_data=FOLDER)"
    for name, feature in recording.features.items():
        if not name.startswith(_READ_BY_POLICIES) or feature.get("dtype") not in (*_NUMBERS, "video", "image"):
            continue
        if name not in written:
            yield Fault(f"statistics {name}", f"{STATS} has no '{name}', which normalisation needs", over_frames)
            continue
        if lacking := [key for key in _ALWAYS if key not in written[name]]:
            what = f"{STATS} has no '{lacking[0]}' of {name}, which normalisation may need"
            yield Fault(f"statistics {name}", what, over_frames, stops=False)
            continue
        for statistic, values in written[name].items():
            flat = np.asarray(values, dtype=float).ravel()
            wrong = np.flatnonzero(~np.isfinite(flat))
            if len(wrong):
                number = f"number {wrong[0]} of " if len(flat) > 1 else ""
                what = f"{STATS}: {number}'{statistic}' of {name} is {flat[wrong[0]]}"
                yield Fault(f"statistics {name}", what, over_frames, stops=False)
                break


def data(recording: Recording, until: float, step: Callable[[], None] = lambda: None) -> Iterator[Fault]:
    """Yield faults of the tables in ``data/``, file by file.

    Args:
        until: time of `time.monotonic` after which no further file or column is read.
        step: called after each file.
    """
    seen: dict[bytes, int] = {}
    by_file: dict[str, list[int]] = {}
    for episode in recording.chosen:
        by_file.setdefault(recording.data_file(episode), []).append(episode)
    # LeRobot opens them all, whichever episodes are chosen.
    others = {str(file.relative_to(recording.root)) for file in recording.root.glob("data/*/*.parquet")}
    for file in [*by_file, *sorted(others - set(by_file))]:
        if time.monotonic() > until:
            return
        yield from _file(recording, file, by_file.get(file, []), until, seen)
        step()


def _file(
    recording: Recording, file: str, episodes: list[int], until: float, seen: dict[bytes, int]
) -> Iterator[Fault]:
    features = {name: feature for name, feature in recording.features.items() if feature.get("dtype") != "video"}
    path = recording.root / file
    try:
        names = column_names(recording.root, recording.named, path)
        # Of single images and texts only the columns' names are checked: they can be large.
        heavy = {name for name, feature in features.items() if feature.get("dtype") in ("image", "string")}
        table = rows(recording.root, recording.named, path, [name for name in names if name not in heavy] or None)
    except DatasetError as error:
        missing = not path.is_file()
        what = (
            error.fault.what.replace(file, f"{file} ({format_episodes(episodes)})", 1) if episodes else error.fault.what
        )
        yield Fault(f"data {file}", what, error.fault.repair, tuple(episodes) if missing else ())
        return
    for name in features:
        if name not in names:
            what = f"{file} has no column '{name}', which {INFO} names"
            # LeRobot puts None in its place, which a policy cannot read.
            yield Fault("columns", what, recording.restore(file), stops=name.startswith(_READ_BY_POLICIES))
    if (shape := _shape(recording, file, table, features)) is not None:
        yield shape
        return
    index = table["episode_index"].to_numpy()
    if len(index) and np.any(np.diff(index) < 0):
        table = table.sort_by([("episode_index", "ascending"), ("index", "ascending")])
        index = table["episode_index"].to_numpy()
    starts, ends = (np.searchsorted(index, episodes, side) for side in ("left", "right"))
    sound_episodes: list[int] = []
    number, task = table["index"].to_numpy(), table["task_index"].to_numpy()
    for episode, start, end in zip(episodes, starts.tolist(), ends.tolist(), strict=True):
        fault = _rows(recording, file, episode, number[start:end], task[start:end])
        if fault is None or not fault.stops:
            sound_episodes.append(episode)
        if fault is not None:
            yield fault
    vectors = {
        name: array(table[name]).reshape(len(table), -1)
        for name, feature in recording.features.items()
        if feature.get("dtype") in _NUMBERS and name.startswith(_READ_BY_POLICIES) and name in names
    }
    spans = zip(episodes, starts.tolist(), ends.tolist(), strict=True)
    yield from _copies({each: slice(*span) for each, *span in spans if each in sound_episodes}, vectors, seen)
    sound = np.isin(index, sound_episodes)
    frame = number_rows(index)
    yield from _times(recording, file, table["timestamp"].to_numpy().astype(float), index, frame, sound)
    for name, values in vectors.items():
        if time.monotonic() < until:
            yield from _find_nonfinite(file, name, values, index, frame, sound)


def _copies(spans: Mapping[int, slice], vectors: Mapping[str, np.ndarray], seen: dict[bytes, int]) -> Iterator[Fault]:
    """Yield the episodes whose vectors are those of an earlier one, number by number.

    Args:
        spans: episode → its rows.
        seen: digest → the first episode that has it; it is added to.
    """
    for episode, span in spans.items():
        parts = [values[span] for values in vectors.values()]
        if not any(len(part) > 1 and (part[0] != part).any() for part in parts):
            continue  # an arm that stands looks like every other
        digest = hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()
        first = seen.setdefault(digest, episode)
        if first != episode:
            what = f"episode {episode} has the same actions and states as episode {first}"
            why = "It counts twice in training. If one of the two is held out, that episode is not unseen."
            brief = f"Episode {episode} is episode {first} again"
            yield Fault("copy", what, episodes=(episode,), stops=False, why=why, brief=brief)


def _rows(recording: Recording, file: str, episode: int, number: np.ndarray, task: np.ndarray) -> Fault | None:
    """Return the first fault of an episode's rows: their ``number`` within the dataset, and that of their ``task``."""
    row = recording.episodes[episode]
    length = int(row["length"])
    if not len(number):
        listed = f", and meta/episodes says {length}" if length else ""
        return Fault("empty", f"episode {episode} has no frames in {file}{listed}", episodes=(episode,))
    if len(number) != length:
        what = f"episode {episode} has {len(number)} frames in {file}, and meta/episodes says {length}"
        return Fault("length", what, recording.restore(file), (episode,))
    if (last := int(task.max())) >= recording.tasks:
        what = f"episode {episode} is of task {last}, and {TASKS} lists {recording.tasks}"
        return Fault("tasks", what, recording.restore(TASKS), (episode,))
    begins, stated = int(number[0]), int(row["dataset_from_index"])
    end = int(row["dataset_to_index"])
    padded = float(((number < stated) | (number >= end)).mean())  # LeRobot's own rule
    if begins != stated or end != stated + length or padded:
        what = (
            f"episode {episode} is frames {begins:,} to {begins + length - 1:,} of the dataset in {file}, and "
            f"meta/episodes says {stated:,} to {end - 1:,}"
        )
        why = brief = ""
        if padded:
            brief = f"{100 * padded:.0f} % of episode {episode}'s actions count as padding"
            what += f": {100 * padded:.0f} % of its actions count as padding"
            why = "LeRobot treats an action outside this range as padding: a policy does not learn from it."
        return Fault("index", what, recording.restore("meta/episodes"), (episode,), False, why, brief)
    return None


def number_rows(index: np.ndarray) -> np.ndarray:
    """Return the number of each row in its episode. ``index``: the episode of each row, ascending."""
    return np.arange(len(index)) - np.searchsorted(index, index)


def _times(
    recording: Recording, file: str, times: np.ndarray, index: np.ndarray, frame: np.ndarray, sound: np.ndarray
) -> Iterator[Fault]:
    fps = recording.fps
    steps = np.diff(times)[np.diff(index) == 0]
    step = float(np.median(steps)) if len(steps) else 1 / fps
    if step > 0 and abs(step * fps - 1) > ODD:
        what = f"{INFO} says {fps:g} frames per second, and those of {file} are {1 / step:.4g} per second"
        yield Fault("rate", what, f"correct 'fps' in {INFO}", stops=False)
        return
    late = times - frame / fps
    even = f", or write a copy with even times (strobe preflight --dataset.root={recording.root} --fix_data=FOLDER)"
    repair = recording.restore(file) + even * bool(np.abs(late).max(initial=0.0) < HALF / fps)
    for episode, row in _first_rows(sound & (np.abs(late) > ODD / fps), index):
        what = (
            f"episode {episode}, frame {frame[row]}: its timestamp in {file} is {times[row]:.4g} s, "
            f"{distance(late[row], fps)} off {frame[row] / fps:.4g} s"
        )
        yield Fault("timestamps", what, repair, (episode,), stops=bool(recording.cameras))


def _first_rows(wrong: np.ndarray, index: np.ndarray) -> Iterator[tuple[int, int]]:
    rows = np.flatnonzero(wrong)
    episodes, firsts = np.unique(index[rows], return_index=True)
    for episode, first in zip(episodes.tolist(), firsts.tolist(), strict=True):
        yield int(episode), int(rows[first])


def _find_nonfinite(
    file: str, name: str, values: np.ndarray, index: np.ndarray, frame: np.ndarray, sound: np.ndarray
) -> Iterator[Fault]:
    wrong = ~np.isfinite(values)
    bad = sound & wrong.any(axis=1)
    for episode, row in _first_rows(bad, index):
        number, frames = int(np.argmax(wrong[row])), int((bad & (index == episode)).sum())
        more = f", and so in {frames - 1} more frames" if frames > 1 else ""
        what = (
            f"episode {episode}, frame {frame[row]}: number {number} of {name} in {file} is {values[row, number]}{more}"
        )
        yield Fault(f"not a number {name}", what, episodes=(episode,), stops=False)


def _shape(recording: Recording, file: str, table: pyarrow.Table, features: JsonObject) -> Fault | None:
    for name, feature in features.items():
        shape = list(feature.get("shape") or [1])
        if name not in table.column_names or len(shape) != 1 or not len(table):
            continue
        column = table[name]
        listed = pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type)
        lengths = np.diff(_offsets(column)) if listed else np.ones(1, int)
        other = next((int(length) for length in np.unique(lengths) if length != shape[0]), None)
        if other is not None:
            what = f"{name} has {other} numbers in {file}, and {INFO} says {shape[0]}"
            return Fault("shape", what, f"correct its 'shape' in {INFO}, or {recording.restore(file)}")
    return None


def _offsets(column: pyarrow.ChunkedArray) -> np.ndarray:
    if pyarrow.types.is_fixed_size_list(column.type):
        return np.arange(2) * column.type.list_size
    return np.asarray(column.combine_chunks().offsets)
