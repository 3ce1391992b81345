"""Observations for openpi's policy server: frames of a data set, arrays of a file, a template, or synthetic ones.

openpi's names are those of the server's own config. The default ones are LIBERO's: ``observation/image``,
``observation/wrist_image``, ``observation/state`` and ``prompt``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from strobe.errors import UserError, in_a_line
from strobe.policies.options import check_dataset

IMAGES, STATE, PROMPT = ("observation/image", "observation/wrist_image"), "observation/state", "prompt"
STATE_DIM = 8  # of LIBERO
FRAMES = 16  # of a data set, sent in turn
MOST_BYTES = 1 << 30  # of a template's array
_KINDS = "biuf"


@dataclass(frozen=True)
class ObservationOptions:
    """Where observations come from: ``dataset``, ``file``, or else synthetic ones.

    Args:
        rename: a data set's names → openpi's; a dot in openpi's name begins a map within the map.
        image_size: height and width of synthetic images.
        prompt: in place of the data set's task.
    """

    dataset: Path | None = None
    file: Path | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    image_size: tuple[int, int] = (224, 224)
    prompt: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Observations:
    """Observations as openpi's protocol takes them.

    Args:
        description: their origin in words.
        recorded: whether their images are those of cameras, and no noise.
    """

    each: Sequence[Mapping[str, Any]]
    description: str
    recorded: bool


def load(options: ObservationOptions) -> Observations:
    """Return the observations. Raises UserError for a file or a data set that cannot be used."""
    if options.dataset is not None:
        return _of_dataset(options.dataset, options)
    if options.file is not None:
        made = _of_file(options.file, options.seed)
        if options.prompt is not None:
            made[PROMPT] = options.prompt
        return Observations([made], f"the observation of {options.file.name}", options.file.suffix == ".npz")
    generator = np.random.default_rng(options.seed)
    height, width = options.image_size
    made: dict[str, Any] = {name: generator.integers(0, 256, (height, width, 3), dtype=np.uint8) for name in IMAGES}
    made[STATE] = generator.standard_normal(STATE_DIM).astype(np.float32)
    made[PROMPT] = options.prompt or "pick up the cube"
    words = f"a synthetic observation with LIBERO's names, images of {height}×{width}"
    return Observations([made], words, recorded=False)


def _of_dataset(root: Path, options: ObservationOptions) -> Observations:
    from strobe.datasets.frames import frames

    check_dataset(root)
    read = frames(root, FRAMES)
    cameras = [name for name, value in read[0].items() if isinstance(value, np.ndarray) and value.ndim == 3]
    names = dict(options.rename) or _default_names(cameras)
    if unknown := [name for name in names if name not in read[0]]:
        known = ", ".join(sorted(read[0]))
        raise UserError(f"--rename_map: the dataset has no '{unknown[0]}', only {known}")
    made = []
    for seen in read:
        observation: dict[str, Any] = {}
        for name, value in seen.items():
            if name in names:
                _add_feature(observation, names[name].split("."), value)
        observation[PROMPT] = options.prompt if options.prompt is not None else observation.get(PROMPT, seen["task"])
        made.append(observation)
    return Observations(made, f"{len(made)} frames of the dataset {root.name}", recorded=True)


def _default_names(cameras: Sequence[str]) -> dict[str, str]:
    if len(cameras) > len(IMAGES):
        raise UserError(
            f"the dataset has {len(cameras)} cameras ({', '.join(cameras)}), and LIBERO's names are for "
            f"{len(IMAGES)}: give openpi's names with --rename_map"
        )
    return {**dict(zip(cameras, IMAGES, strict=False)), "observation.state": STATE}


def _add_feature(observation: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        inner = observation.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserError(f"--rename_map: '{name}' is to be an array and a map of arrays at once")
        observation = inner
    if path[-1] in observation:
        raise UserError(f"--rename_map: two features are renamed '{'.'.join(path)}'")
    observation[path[-1]] = value


def _of_file(file: Path, seed: int) -> dict[str, Any]:
    if file.suffix not in (".json", ".npz"):
        raise UserError(f"--policy.observation={file}: name a file that ends in .json or .npz")
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as stored:
                return {name: _array(name, stored[name]) for name in stored.files}
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, EOFError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else in_a_line(error, 120)
        raise UserError(f"--policy.observation={file} cannot be read: {reason}") from None
    if not isinstance(read, dict) or not read:
        raise UserError(f'--policy.observation={file}: write a map, such as {{"observation/state": {{"shape": [8]}}}}')
    generator = np.random.default_rng(seed)
    return {name: _made(name, value, generator) for name, value in read.items()}


def _array(name: str, value: np.ndarray) -> Any:
    """Return an array of a file as it is sent; text without a dimension is text."""
    if value.ndim == 0 and value.dtype.kind == "U":
        return str(value)
    if value.dtype.kind not in _KINDS:
        raise ValueError(f"'{name}' is of dtype {value.dtype}, which openpi's protocol does not send")
    return value


def _made(name: str, value: Any, generator: np.random.Generator) -> Any:
    """Return what a template's value stands for: ``{"shape": …, "dtype": …}`` is an array of random numbers."""
    if isinstance(value, list):
        array = np.asarray(value) if not any(isinstance(each, dict | list) for each in value) else None
        if array is None or array.dtype.kind not in _KINDS:
            raise UserError(f"--policy.observation: '{name}' is no list of numbers")
        return array.astype(np.float32)
    if not isinstance(value, dict):
        return value
    if "shape" not in value:
        return {inner: _made(f"{name}.{inner}", each, generator) for inner, each in value.items()}
    shape, kind = value["shape"], _dtype(value.get("dtype", "float32"))
    sound = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
    if not sound or kind is None:
        raise UserError(f"--policy.observation: '{name}' has no sound shape and dtype: {in_a_line(value, 80)}")
    if kind.itemsize * int(np.prod(shape, dtype=object)) > MOST_BYTES:
        raise UserError(f"--policy.observation: '{name}' would be over 1 GiB")
    if kind.kind == "f":
        return generator.standard_normal(shape).astype(kind)
    if kind.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    return generator.integers(0, min(np.iinfo(kind).max, 255) + 1, shape).astype(kind)


def _dtype(name: Any) -> np.dtype | None:
    """Return a dtype of numbers; None for another one, or for what is none."""
    try:
        made = np.dtype(str(name))
    except TypeError:
        return None
    return made if made.kind in _KINDS else None
