"""Read single frames of a LeRobotDataset without LeRobot and torch: numbers, images and the task in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from strobe.core.errors import UserError, error_line
from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.fault import DatasetError, Fault, sentence
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
            raise UserError(f"the dataset at {root} has no frames: record some first")
        starts = np.cumsum([0, *lengths])
        places = [(int(np.searchsorted(starts, at, "right")) - 1, at) for at in evenly_spaced(total, count)]
        table = cache(lambda file: recording.rows(root, None, root / file))
        tasks = task_names(read)
        return [_frame(read, table(read.data_file(each)), each, at - int(starts[each]), tasks) for each, at in places]
    except DatasetError as error:
        raise UserError(f"the dataset at {root}: {sentence(error.fault, ())}") from None


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
            with closing(ImageReader(read)) as reader:
                seen[name] = reader.image(episode, name, frame)
        elif dtype == "image":
            seen[name] = _image(row[name][0].as_py(), name)
        elif dtype in _NUMBERS:
            seen[name] = np.atleast_1d(np.asarray(row[name][0].as_py(), dtype=dtype))
    return seen


def task_names(read: Recording) -> dict[int, str]:
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


class ImageReader:
    """Images of a data set by episode and frame, from its videos or from its tables.

    A video of each camera and a table stay open, for the next image is often in them.
    """

    def __init__(self, read: Recording) -> None:
        self._read = read
        self.cameras = [name for name, feature in read.features.items() if feature.get("dtype") in ("video", "image")]
        self._table: tuple[str, str, pyarrow.Table] = "", "", None
        self._open: dict[str, tuple[str, Any]] = {}

    def close(self) -> None:
        """Close the files."""
        for _, container in self._open.values():
            container.close()
        self._open.clear()

    def image(self, episode: int, camera: str, frame: int) -> np.ndarray:
        """Return an image, (height, width, 3) uint8. Raises DatasetError where it is not there or cannot be read."""
        if camera in self._read.cameras:
            return self._read_video(episode, camera, frame)
        file = self._read.data_file(episode)
        if self._table[:2] != (file, camera):
            rows = recording.rows(self._read.root, "", self._read.root / file, ["episode_index", camera])
            self._table = file, camera, rows
        table = self._table[2]
        at = np.flatnonzero(table["episode_index"].to_numpy() == episode)
        if frame >= len(at):
            raise DatasetError(Fault("length", f"episode {episode} has {len(at)} frames in {file}"))
        return _image(table[camera][int(at[frame])].as_py(), camera)

    def _read_video(self, episode: int, camera: str, frame: int) -> np.ndarray:
        import av

        file = self._read.video_file(episode, camera)
        start = float(self._read.episodes[episode][f"videos/{camera}/from_timestamp"])
        due_s = start + frame / self._read.fps
        try:
            if self._open.get(camera, ("",))[0] != file:
                if camera in self._open:
                    self._open.pop(camera)[1].close()
                self._open[camera] = file, av.open(str(self._read.root / file))
            container = self._open[camera][1]
            stream = container.streams.video[0]
            if stream.time_base is not None:
                container.seek(max(int(due_s / stream.time_base), 0), stream=stream)  # to the key frame before it
            for image in container.decode(stream):
                if image.time is not None and image.time > due_s - 0.5 / self._read.fps:
                    return image.to_ndarray(format="rgb24")
        except (OSError, IndexError, av.FFmpegError) as error:
            raise self._make_error(file, f"{file} cannot be read ({error_line(error, 120)})") from None
        raise self._make_error(file, f"frame {frame} of episode {episode} is not in {file}")

    def _make_error(self, file: str, what: str) -> DatasetError:
        return DatasetError(Fault("video", what, self._read.restore(file)))

    def images(self, episode: int, camera: str, count: int) -> Iterator[np.ndarray]:
        """Yield an episode's first ``count`` images; of a video, as many as are there. Raises DatasetError."""
        if camera not in self._read.cameras:
            yield from (self.image(episode, camera, frame) for frame in range(count))
            return
        import av

        yield self.image(episode, camera, 0)
        file, container = self._open[camera]
        try:
            for number, image in enumerate(container.decode(container.streams.video[0]), 1):
                if number >= count:
                    return
                yield image.to_ndarray(format="rgb24")
        except (OSError, av.FFmpegError) as error:
            raise self._make_error(file, f"{file} cannot be read ({error_line(error, 120)})") from None
