"""Read single frames of a LeRobotDataset without LeRobot and torch: numbers, images and the task in words."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from strobe.core.errors import UserError, in_a_line
from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.fault import DatasetError, Fault
from strobe.lerobot.datasets.recording import Recording, evenly_spaced

_NUMBERS = ("float32", "float64", "int64", "int32", "bool")
_OBSERVATION = "observation."


def frames(root: Path, count: int) -> list[dict[str, Any]]:
    """Return ``count`` frames spread over the data set, or all where there are fewer.

    Each has the features ``observation.*`` (numbers as arrays of their dtype, images as (height, width, 3) uint8) and
    ``task``, in words.

    Raises:
        UserError: the data set has no frames, or cannot be read.
    """
    try:
        read = recording.read(root)
        lengths = [int(row["length"]) for row in read.episodes.values()]
        total = sum(lengths)
        if not total:
            raise UserError(f"the dataset at {root} has no frames; record some first")
        starts = np.cumsum([0, *lengths])
        places = [(int(np.searchsorted(starts, at, "right")) - 1, at) for at in evenly_spaced(total, count)]
        table = cache(lambda file: recording.rows(root, "", root / file))
        tasks = _tasks(read)
        return [_frame(read, table(read.data_file(each)), each, at - int(starts[each]), tasks) for each, at in places]
    except DatasetError as error:
        repair = f"; {error.fault.repair}" if error.fault.repair else ""
        raise UserError(f"the dataset at {root}: {error.fault.what}{repair}") from None


def _frame(read: Recording, table: pyarrow.Table, episode: int, frame: int, tasks: dict[int, str]) -> dict[str, Any]:
    rows = np.flatnonzero(table["episode_index"].to_numpy() == episode)
    if frame >= len(rows):
        raise DatasetError(Fault("length", f"episode {episode} has {len(rows)} frames in {read.data_file(episode)}"))
    row = table.slice(int(rows[frame]), 1)
    seen: dict[str, Any] = {"task": tasks.get(int(row["task_index"][0].as_py()), "")}
    for name, feature in read.features.items():
        if not name.startswith(_OBSERVATION):
            continue
        dtype = feature.get("dtype")
        if dtype == "video":
            seen[name] = _decoded(read, episode, name, frame)
        elif dtype == "image":
            seen[name] = _image(row[name][0].as_py(), name)
        elif dtype in _NUMBERS:
            seen[name] = np.atleast_1d(np.asarray(row[name][0].as_py(), dtype=dtype))
    return seen


def _tasks(read: Recording) -> dict[int, str]:
    """Return the tasks in words, by number. LeRobot keeps the words as the index of a table."""
    if not (read.root / recording.TASKS).is_file():
        return {}
    table = recording.rows(read.root, "", read.root / recording.TASKS)
    column = next((name for name in ("task", "__index_level_0__") if name in table.column_names), None)
    if column is None or "task_index" not in table.column_names:
        return {}
    return dict(zip(table["task_index"].to_pylist(), map(str, table[column].to_pylist()), strict=True))


def _image(stored: Any, name: str) -> np.ndarray:
    """Return an image that is stored in the table, as bytes of a PNG or a JPEG."""
    import cv2

    data = stored.get("bytes") if isinstance(stored, dict) else None
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    if pixels is None:
        raise DatasetError(Fault("image", f"an image of {name} cannot be decoded"))
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _decoded(read: Recording, episode: int, camera: str, frame: int) -> np.ndarray:
    """Return a frame of a video."""
    import av

    file = read.video_file(episode, camera)
    due_s = float(read.episodes[episode][f"videos/{camera}/from_timestamp"]) + frame / read.fps
    try:
        with av.open(str(read.root / file)) as container:
            stream = container.streams.video[0]
            if stream.time_base is not None:
                container.seek(max(int(due_s / stream.time_base), 0), stream=stream)  # to the key frame before it
            for image in container.decode(stream):
                if image.time is not None and image.time > due_s - 0.5 / read.fps:
                    return image.to_ndarray(format="rgb24")
    except (OSError, IndexError, av.FFmpegError) as error:
        reason = in_a_line(error, 120)
        raise DatasetError(Fault("video", f"{file} cannot be read ({reason})", read.restore(file))) from None
    what = f"frame {frame} of episode {episode} is not in {file}"
    raise DatasetError(Fault("video", what, read.restore(file)))
