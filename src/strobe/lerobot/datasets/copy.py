"""Write a copy of a data set in which ``meta/`` says what the frames say. The original is left unchanged."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from strobe.core.errors import UserError
from strobe.core.untrusted import JsonObject, parse_json
from strobe.lerobot.datasets import recording, tables
from strobe.lerobot.datasets.fault import DatasetError, sentence
from strobe.lerobot.datasets.images import IMAGES, image_statistics
from strobe.lerobot.datasets.numbers import ACTION, compute_statistics, read_numbers
from strobe.lerobot.datasets.results import DataTruth, VectorTruth

NewRows = tuple[np.ndarray, str]  # (frames, dimensions) in the order of the episodes, and what is right in them


def write_copy(root: Path, target: Path, truth: DataTruth, rows: Mapping[str, NewRows] | None = None) -> list[str]:
    """Write the data set ``root`` into the folder ``target``. Return what is right in it, a sentence each.

    Statistics of vectors become those of all frames, those of ``action`` the relative ones where ``truth`` has them.
    Those of a camera that lacks some become those of a part of its images. Numbers of each episode's first and last
    frame become those that its rows have, and times that are off by less than half a frame those that LeRobot writes.

    Args:
        rows: vector → the rows that take the place of its own.

    Raises:
        UserError: ``target`` is there already, or there is nothing to be set right.
    """
    if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
        raise UserError(f"--fix_data={target}: exists already: use a new folder")
    try:
        shutil.copytree(root, target, dirs_exist_ok=True)
        done = _replace_rows(target, rows or {}) + _even_times(target)
        done += _statistics(target, truth, rows or {}) + _indices(target)
        if not done:
            raise UserError(f"--fix_data: the files in {root}/meta already match its frames")
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)  # half a copy would look like a whole one
        if isinstance(error, DatasetError):
            raise UserError(f"--fix_data: {sentence(error.fault, ())}") from None
        raise
    return done


def _replace_rows(target: Path, rows: Mapping[str, NewRows]) -> list[str]:
    if not rows:
        return []
    read = recording.read(target)
    numbers = read_numbers(read)
    for file in dict.fromkeys(read.data_file(each) for each in read.chosen):
        table = parquet.read_table(target / file)
        own = table["episode_index"].to_numpy()
        for name, (values, _) in rows.items():
            new = np.empty((len(table), values.shape[1]), values.dtype)
            for each in np.unique(own):
                new[own == each] = values[numbers.episode == each]
            offsets = np.arange(0, new.size + 1, new.shape[1], dtype=np.int32)
            table = _set_column(table, name, pa.ListArray.from_arrays(offsets, new.ravel()))
        parquet.write_table(table, target / file)
    for path in sorted((target / recording.EPISODES).rglob("*.parquet")):
        table = parquet.read_table(path)
        for name, (values, _) in rows.items():
            found = [compute_statistics(values[numbers.episode == each]) for each in table["episode_index"].to_pylist()]
            for key in found[0] if found else ():
                if f"stats/{name}/{key}" in table.column_names:
                    table = _set_column(table, f"stats/{name}/{key}", pa.array([each[key] for each in found]))
        parquet.write_table(table, path)
    return [f"data/: {name} {done}." for name, (_, done) in rows.items()]


def _set_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values.cast(table.schema.field(at).type))


def _even_times(target: Path) -> list[str]:
    """Set each row's time to its number / fps; none where one is half a frame off: rows may be lost there."""
    read = recording.read(target)
    episodes, most, files = set[int](), 0.0, dict[str, np.ndarray]()
    for file in dict.fromkeys(read.data_file(each) for each in read.chosen):
        table = recording.rows(target, "", target / file, ["episode_index", "timestamp"])
        own = table["episode_index"].to_numpy()
        due = tables.number_rows(own) / read.fps
        off = np.abs(table["timestamp"].to_numpy() - due) * read.fps
        most = max(most, float(off.max(initial=0.0)))
        if len(wrong := np.unique(own[off > tables.ODD])):
            episodes, files[file] = episodes | set(wrong.tolist()), due
    if not files or not most < tables.HALF:
        return []
    for file, due in files.items():
        parquet.write_table(_set_column(parquet.read_table(target / file), "timestamp", pa.array(due)), target / file)
    if any(fault.kind == "timestamps" for fault in tables.data(read, math.inf)):
        raise UserError("--fix_data: the times of the copy are still off")
    return [
        f"data/: the times of {len(episodes)} episode{'s' * (len(episodes) != 1)} are the number of the row / "
        f"{read.fps:g}, as LeRobot writes them; they were up to {most:.2g} frames off, and a second look finds none. "
        "Each row has its own image, exactly; the times that were measured are not in the copy."
    ]


def _statistics(target: Path, truth: DataTruth, rows: Mapping[str, NewRows]) -> list[str]:
    file = target / recording.STATS
    written: dict[str, Any] = parse_json(file.read_text(encoding="utf-8")) if file.is_file() else {}
    wanted: dict[str, tuple[VectorTruth, str]] = {
        vector.name: (vector, "all frames")
        for vector in truth.vectors
        if vector.differing() or not vector.stated or vector.counted not in (None, truth.frames)
    }
    if truth.relative is not None:
        wanted.pop(ACTION, None)
        if truth.relative.differing() or not truth.relative.stated:
            wanted[ACTION] = truth.relative, f"relative actions in chunks of {truth.chunk}"
    for name, (vector, _) in wanted.items():
        written[name] = {**vector.measured, "count": [truth.frames]}
    for name, (values, _) in rows.items():
        written[name] = {**compute_statistics(values), "count": [truth.frames]}
    said = {name: whose for name, (_, whose) in wanted.items()} | dict.fromkeys(rows, "all frames")
    for camera in _lacking(recording.read(target).features, written):
        channels = image_statistics(recording.read(target), camera)
        if channels:
            numbers = {name: [[[value]] for value in values] for name, values in channels.items()}
            written[camera] = {**numbers, "count": [IMAGES]}
            said[camera] = f"{IMAGES} images" if truth.frames > IMAGES else "its images"
    if said:
        file.write_text(json.dumps(written, indent=4), encoding="utf-8")
    return [f"{recording.STATS}: {name} has the statistics of {whose}." for name, whose in said.items()]


def _lacking(features: Mapping[str, JsonObject], written: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, feature in features.items()
        if feature.get("dtype") in ("video", "image")
        and not all(_finite(written.get(name) or {}, key) for key in ("mean", "std", "min", "max"))
    ]


def _finite(statistics: Mapping[str, Any], key: str) -> bool:
    values = np.asarray(statistics.get(key, ()), dtype=float)
    return bool(values.size and np.isfinite(values).all())


def _indices(target: Path) -> list[str]:
    read = recording.read(target)
    bounds: dict[int, tuple[int, int]] = {}
    for file in dict.fromkeys(read.data_file(episode) for episode in read.chosen):
        table = recording.rows(target, "", target / file, ["episode_index", "index"])
        episode, index = (table[name].to_numpy() for name in ("episode_index", "index"))
        for each in np.unique(episode).tolist():
            own = index[episode == each]
            bounds[int(each)] = int(own.min()), int(own.max()) + 1
    changed: set[int] = set()
    for path in sorted((target / recording.EPISODES).rglob("*.parquet")):
        changed |= _set_bounds(path, bounds)
    words = f"{len(changed)} episode{'s' * (len(changed) != 1)}"
    return [f"meta/episodes: the numbers of the frames of {words}."] if changed else []


def _set_bounds(path: Path, bounds: Mapping[int, tuple[int, int]]) -> set[int]:
    table = parquet.read_table(path)
    numbers = table["episode_index"].to_pylist()
    changed: set[int] = set()
    for end, name in enumerate(("dataset_from_index", "dataset_to_index")):
        stated = table[name].to_pylist()
        right = [bounds[each][end] if each in bounds else was for each, was in zip(numbers, stated, strict=True)]
        if right != stated:
            changed |= {each for each, one, two in zip(numbers, stated, right, strict=True) if one != two}
            table = _set_column(table, name, pa.array(right))
    if changed:
        parquet.write_table(table, path)
    return changed
