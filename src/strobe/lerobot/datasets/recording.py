"""Read the files in ``meta/`` of a dataset without LeRobot, which fails at the first fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet as parquet

from strobe.core.errors import error_line
from strobe.core.untrusted import JsonObject, parse_json
from strobe.lerobot.datasets.fault import DatasetError, Fault

INFO, STATS, TASKS, EPISODES = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/episodes"
FORMAT = "v3"  # version of LeRobot's datasets
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_NEEDED = ("codebase_version", "fps", "features")
_OF_AN_EPISODE = ("episode_index", "length", "data/chunk_index", "data/file_index", "dataset_from_index",
                  "dataset_to_index")  # fmt: skip

# Degrees a second without load, by the makers: 0.192 s for 60° at 7.4 V (Feetech, STS3215 of 1:345); 61 rpm at 12 V and
# 104 rpm at 5 V (ROBOTIS e-manual). Robots by the start of their type → part of a joint's name → servo and speed.
_STS3215, _XL430, _XL330 = ("STS3215", 312.0), ("XL430-W250", 366.0), ("XL330-M288", 624.0)
SERVOS: dict[tuple[str, ...], dict[str, tuple[str, float]]] = {
    ("so_", "so100", "so101", "bi_so"): {"": _STS3215},
    ("koch",): {"shoulder": _XL430, "": _XL330},
    ("omx",): {"shoulder": _XL430, "elbow": _XL430, "": _XL330},
}


@dataclass
class Recording:
    """A dataset as its ``meta/`` describes it.

    Args:
        named: its name on the Hub.
        episodes: the rows of ``meta/episodes``, less their statistics, by the episode's number.
        chosen: the episodes to read.
    """

    root: Path
    named: str | None
    info: JsonObject
    episodes: dict[int, JsonObject]
    chosen: list[int]
    tasks: int

    @property
    def fps(self) -> float:
        """Frames in a second."""
        return float(self.info["fps"])

    @property
    def features(self) -> dict[str, JsonObject]:
        """Name → shape, dtype and names of the dimensions, as ``meta/info.json`` has them."""
        return self.info["features"]

    @property
    def cameras(self) -> list[str]:
        """The cameras whose images are stored as video."""
        return [name for name, feature in self.features.items() if feature.get("dtype") == "video"]

    def data_file(self, episode: int) -> str:
        """Return the path of an episode's parquet file, relative to the root."""
        row = self.episodes[episode]
        places = {"chunk_index": int(row["data/chunk_index"]), "file_index": int(row["data/file_index"])}
        return str(self.info.get("data_path") or DATA_PATH).format(**places)

    def video_file(self, episode: int, camera: str) -> str:
        """Return the path of an episode's video, relative to the root."""
        row = self.episodes[episode]
        chunk, number = (int(row[f"videos/{camera}/{what}_index"]) for what in ("chunk", "file"))
        path = str(self.info.get("video_path") or VIDEO_PATH)
        return path.format(video_key=camera, chunk_index=chunk, file_index=number)

    def restore(self, file: str) -> str:
        """Return in words how to restore ``file``."""
        return restore_hint(self.root, self.named, file)


def find_servos(robot: object) -> dict[str, tuple[str, float]] | None:
    """Return the servos of a robot by its type, as `SERVOS` has them; None if they are not known."""
    return next((servos for kinds, servos in SERVOS.items() if str(robot).startswith(kinds)), None)


def dimension_names(feature: JsonObject) -> list[str]:
    """Return the names of a feature's dimensions, as ``info.json`` describes it; [] if it has none."""
    names = feature.get("names")
    if isinstance(names, dict):  # {"motors": [...]}, as older data sets have it
        names = next((value for value in names.values() if isinstance(value, list)), None)
    return [str(name) for name in names or []]


def restore_hint(root: Path, named: str | None, file: str) -> str:
    """Return in words how to restore ``file`` of a dataset."""
    if named is None or named.count("/") != 1 or named.startswith("local/"):
        return "copy that file again from where the dataset was recorded"
    return f"fetch that file again (hf download {named} {file} --repo-type=dataset --local-dir={root})"


def read(root: Path, named: str | None = None, chosen: Sequence[int] | None = None) -> Recording:
    """Read a dataset's ``meta/``.

    Raises:
        DatasetError: a file is missing, cannot be read, or has content that makes reading impossible.
    """
    info = _info(root, named)
    episodes = _episodes(root, named, info)
    if chosen is not None and (missing := [episode for episode in chosen if episode not in episodes]):
        raise DatasetError(Fault("chosen", f"it has no episode {missing[0]}, only 0 to {max(episodes, default=0)}"))
    tasks = len(rows(root, named, root / TASKS)) if info.get("total_tasks", 0) else 0
    return Recording(root, named, info, episodes, list(episodes if chosen is None else chosen), tasks)


def rows(root: Path, named: str | None, file: Path, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Read a parquet file.

    Raises:
        DatasetError: it cannot be read.
    """
    shown = str(file.relative_to(root))
    try:
        return parquet.read_table(file, columns=list(columns) if columns is not None else None)
    except FileNotFoundError:
        raise DatasetError(Fault("file", f"{shown} is missing", restore_hint(root, named, shown))) from None
    except (OSError, pyarrow.ArrowException) as error:
        # Arrow names the file again, with its whole path.
        reason = error_line(error, 300).replace(f"Could not open Parquet input source '{file}': ", "")
        raise DatasetError(
            Fault("file", f"{shown} cannot be read ({reason[:120].rstrip('.')})", restore_hint(root, named, shown))
        ) from None


def _info(root: Path, named: str | None) -> JsonObject:
    repair = restore_hint(root, named, INFO)
    try:
        info = parse_json((root / INFO).read_text())
    except FileNotFoundError:
        raise DatasetError(Fault("info", f"{INFO} is missing", repair)) from None
    except (OSError, ValueError) as error:
        raise DatasetError(Fault("info", f"{INFO} cannot be read ({error_line(error, 120)})", repair)) from None
    lacking = [key for key in _NEEDED if key not in info] if isinstance(info, dict) else list(_NEEDED)
    if lacking:
        raise DatasetError(Fault("info", f"{INFO} has no '{lacking[0]}'", repair))
    version = str(info["codebase_version"])
    if not version.startswith(FORMAT):
        convert = "python -m lerobot.scripts.convert_dataset_v21_to_v30"
        how = f"convert it: {convert} --repo-id={named or 'OWNER/NAME'} --root={root} --push-to-hub=false"
        raise DatasetError(Fault("info", f"it is in LeRobot's format {version}, and LeRobot reads {FORMAT}", how))
    if not isinstance(info["fps"], int | float) or not info["fps"] > 0:
        raise DatasetError(Fault("info", f"{INFO} says {info['fps']} frames per second", "correct 'fps' in it"))
    if not isinstance(info["features"], dict) or not info["features"]:
        raise DatasetError(Fault("info", f"{INFO} names no features", repair))
    return info


def _episodes(root: Path, named: str | None, info: JsonObject) -> dict[int, JsonObject]:
    files = sorted((root / EPISODES).rglob("*.parquet"))
    if not files:
        repair = restore_hint(root, named, EPISODES)
        raise DatasetError(Fault("episodes", f"there is no parquet file in {EPISODES}", repair))
    parts = []
    for file in files:
        # The statistics of each episode are most of the file.
        names = [name for name in column_names(root, named, file) if not name.startswith(("stats/", "tasks"))]
        parts.append(rows(root, named, file, names).to_pandas())
    table = pd.concat(parts, ignore_index=True)
    shown = str(files[0].relative_to(root))
    videos = [name for name, feature in info["features"].items() if feature.get("dtype") == "video"]
    columns = [*_OF_AN_EPISODE, *(f"videos/{name}/{what}" for name in videos for what in (
        "chunk_index", "file_index", "from_timestamp", "to_timestamp"))]  # fmt: skip
    if lacking := [name for name in columns if name not in table]:
        raise DatasetError(Fault("episodes", f"{shown} has no column '{lacking[0]}'", restore_hint(root, named, shown)))
    table = table.sort_values("episode_index")
    total = int(info.get("total_episodes", 0))
    if not np.array_equal(table["episode_index"], np.arange(total)):
        raise DatasetError(
            Fault(
                "episodes",
                f"{INFO} counts {total:,} episodes, and {EPISODES} lists {len(table):,}",
                f"{restore_hint(root, named, EPISODES)}, or correct 'total_episodes'",
            )
        )
    return dict(enumerate(table.to_dict("records")))


def column_names(root: Path, named: str | None, file: Path) -> list[str]:
    """Return the columns of a parquet file. Raises DatasetError for one that cannot be read."""
    try:
        return list(parquet.read_schema(file).names)
    except (OSError, pyarrow.ArrowException):
        return list(rows(root, named, file).column_names)  # raises with the reason


def evenly_spaced(frames: int, count: int) -> list[int]:
    """Return the places of ``count`` of ``frames``, or of all if these are fewer, each in the middle of its share."""
    count = min(count, frames)
    return [min(int((number + 0.5) * frames / count), frames - 1) for number in range(count)]
