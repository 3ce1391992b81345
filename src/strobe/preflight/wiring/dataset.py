"""Read what a LeRobotDataset says of its features: their names, order, sizes, statistics, and its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError
from strobe.core.untrusted import JsonObject
from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.fault import DatasetError, sentence
from strobe.lerobot.datasets.frames import task_names
from strobe.lerobot.datasets.recording import Recording
from strobe.lerobot.datasets.truth import read_stated_statistics
from strobe.lerobot.policies.options import check_dataset
from strobe.preflight.results.wiring import Feature, FeatureKind, Normalisation
from strobe.preflight.wiring.checkpoint import numbers

_IMAGES = ("video", "image")


@dataclass(frozen=True)
class DatasetFeatures:
    """A data set's features by name, its rate in Hz, and its tasks in words."""

    root: Path
    features: dict[str, Feature]
    fps: float
    tasks: list[str]
    robot_type: str


def read_dataset(root: Path) -> DatasetFeatures:
    """Read the files in ``meta/``. Raises UserError where the data set is missing or broken."""
    check_dataset(root)
    try:
        read = recording.read(root)
    except DatasetError as error:
        raise UserError(f"the dataset at {root}: {sentence(error.fault, ())}") from None
    statistics = read_stated_statistics(root)
    features = {
        name: _feature(name, described, statistics.get(name, {}))
        for name, described in read.features.items()
        if name == "action" or name.startswith("observation.")
    }
    return DatasetFeatures(root, features, read.fps, _tasks(read), str(read.info.get("robot_type") or ""))


def _feature(name: str, described: JsonObject, statistics: dict[str, object]) -> Feature:
    dtype, shape = str(described.get("dtype", "")), list(described.get("shape", []))
    kind: FeatureKind = "other"
    if dtype in _IMAGES:
        kind = "image"
        shape = _channels_first(shape, described.get("names"))
    elif name == "action":
        kind = "action"
    elif name == "observation.state":
        kind = "state"
    return Feature(
        name=name,
        kind=kind,
        shape=[int(size) for size in shape],
        dtype=dtype,
        dimensions=recording.dimension_names(described) if kind != "image" else [],
        normalisation=Normalisation(
            mode="", statistics={key: numbers(values) for key, values in statistics.items() if key != "count"}
        ),
    )


def _channels_first(shape: list[int], names: Any) -> list[int]:
    """Return (channels, height, width) of an image's shape, which data sets give in either order."""
    if isinstance(names, list) and len(names) == len(shape) == 3 and str(names[-1]).startswith("channel"):
        return [shape[2], shape[0], shape[1]]
    if len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4):
        return [shape[2], shape[0], shape[1]]
    return shape


def _tasks(read: Recording) -> list[str]:
    try:
        return list(task_names(read).values())
    except DatasetError:
        return []  # the finder of faults says so
