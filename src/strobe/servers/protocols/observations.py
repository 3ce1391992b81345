"""Where observations for a policy server come from: frames of a data set, arrays of a file, a template, or none.

They are read before a server is called. Each protocol then gives them the names and shapes that its server takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.core.untrusted import parse_json
from strobe.lerobot.policies.options import check_dataset

if TYPE_CHECKING:
    from strobe.core.subjects.subject import Observation

STATE = "observation.state"  # feature of a data set
STATE_DIM = 8  # dimensions of LIBERO's state
TASK, OTHER_TASK = "pick up the cube", "wave at the camera"
FRAMES = 16  # frames of a data set, sent in turn
MOST_BYTES = 1 << 30  # size of a template's array
_KINDS = "biuf"


@dataclass(frozen=True)
class ObservationOptions:
    """Where observations come from: ``dataset``, ``file``, or else synthetic ones.

    Args:
        rename: a data set's names → the server's; a dot in the server's name begins a map within the map.
        image_size: height and width of synthetic images; None for those that the server expects.
        prompt: in place of the data set's task.
    """

    dataset: Path | None = None
    file: Path | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    image_size: tuple[int, int] | None = None
    prompt: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Observations:
    """Observations as a server's protocol takes them.

    Args:
        description: their origin in words.
        recorded: whether their images are those of cameras, and no noise.
    """

    each: Sequence[Mapping[str, Any]]
    description: str
    recorded: bool


@dataclass(frozen=True)
class Source:
    """Frames of a data set, or an observation of a file.

    Args:
        frames: of a data set, with its names and a ``task`` each; empty without a data set.
        features: of the data set, as its own file describes them.
        given: the observation of a file; None without a file.
    """

    options: ObservationOptions
    frames: Sequence[Mapping[str, Any]] = ()
    features: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    given: Mapping[str, Any] | None = None

    @property
    def description(self) -> str:
        """The origin of recorded observations, in words."""
        if self.options.dataset is not None:
            return f"{len(self.frames)} frames of the dataset {self.options.dataset.name}"
        return f"the observation of {self.options.file.name}" if self.options.file is not None else ""

    @property
    def is_recorded(self) -> bool:
        """Whether the images are those of cameras."""
        return bool(self.frames) or (self.options.file is not None and self.options.file.suffix == ".npz")

    @property
    def cameras(self) -> list[str]:
        """The names of the data set's images."""
        first = self.frames[0] if self.frames else {}
        return [name for name, value in first.items() if isinstance(value, np.ndarray) and value.ndim == 3]

    @property
    def generator(self) -> np.random.Generator:
        """A generator of the options' seed, for synthetic observations."""
        return np.random.default_rng(self.options.seed)

    @property
    def rename(self) -> Mapping[str, str]:
        """The options' map of names. Raises UserError for a name that no feature of the data set has."""
        if unknown := [name for name in self.options.rename if name not in self.frames[0]]:
            known = ", ".join(sorted(self.frames[0]))
            raise UserError(f"--rename_map: the dataset has no '{unknown[0]}', only {known}")
        return self.options.rename

    def task(self, frame: Mapping[str, object]) -> str:
        """Return the task of a frame in words."""
        return self.options.prompt if self.options.prompt is not None else str(frame["task"])

    def rename_frames(self, defaults: Callable[[Sequence[str]], Mapping[str, str]]) -> list[dict[str, object]]:
        """Return the frames with the server's names; ``defaults`` makes them of the cameras without a rename map.

        Raises:
            UserError: a name that no feature has, or two features of one name.
        """
        names = self.rename or defaults(self.cameras)
        made: list[dict[str, object]] = []
        for frame in self.frames:
            observation: Observation = {}
            for name, value in frame.items():
                if name in names:
                    _add_feature(observation, names[name].split("."), value)
            made.append(observation)
        return made


def read(options: ObservationOptions) -> Source:
    """Return what the options name. Raises UserError for a file or a data set that cannot be used."""
    if options.dataset is not None:
        from strobe.lerobot.datasets import recording
        from strobe.lerobot.datasets.frames import frames

        check_dataset(options.dataset)
        source = Source(options, frames(options.dataset, FRAMES), recording.read(options.dataset).features)
        if options.rename:
            source.rename_frames(lambda _: {})  # a name that does not fit is told before a server is connected to
        return source
    if options.file is not None:
        return Source(options, given=_load_observation(options.file, options.seed))
    return Source(options)


def _add_feature(observation: Observation, path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        inner = observation.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserError(f"--rename_map: '{name}' is to be an array and a map of arrays at once")
        observation = inner
    if path[-1] in observation:
        raise UserError(f"--rename_map: two features are renamed '{'.'.join(path)}'")
    observation[path[-1]] = value


def _load_observation(file: Path, seed: int) -> Observation:
    if file.suffix not in (".json", ".npz"):
        raise UserError(f"--policy.observation={file}: name a file that ends in .json or .npz")
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as stored:
                return {name: _array(name, stored[name]) for name in stored.files}
        read = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, EOFError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error_line(error, 120)
        raise UserError(f"--policy.observation={file} cannot be read: {reason}") from None
    if not isinstance(read, dict) or not read:
        raise UserError(f'--policy.observation={file}: write a map, such as {{"observation/state": {{"shape": [8]}}}}')
    generator = np.random.default_rng(seed)
    return {name: _make_value(name, value, generator) for name, value in read.items()}


def _array(name: str, value: np.ndarray) -> object:
    if value.ndim == 0 and value.dtype.kind == "U":
        return str(value)
    if value.dtype.kind not in _KINDS:
        raise ValueError(f"'{name}' is of dtype {value.dtype}, which no server takes")
    return value


def _make_value(name: str, value: Any, generator: np.random.Generator) -> object:
    """Return what a template's value stands for: ``{"shape": …, "dtype": …}`` is an array of random numbers."""
    if isinstance(value, list):
        array = np.asarray(value) if not any(isinstance(each, dict | list) for each in value) else None
        if array is None or array.dtype.kind not in _KINDS:
            raise UserError(f"--policy.observation: '{name}' is no list of numbers")
        return array.astype(np.float32)
    if not isinstance(value, dict):
        return value
    if "shape" not in value:
        return {inner: _make_value(f"{name}.{inner}", each, generator) for inner, each in value.items()}
    shape, kind = value["shape"], _dtype(value.get("dtype", "float32"))
    sound = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
    if not sound or kind is None:
        raise UserError(f"--policy.observation: '{name}' has no sound shape and dtype: {error_line(value, 80)}")
    if kind.itemsize * int(np.prod(shape, dtype=object)) > MOST_BYTES:
        raise UserError(f"--policy.observation: '{name}' would be over 1 GiB")
    if kind.kind == "f":
        return generator.standard_normal(shape).astype(kind)
    if kind.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    return generator.integers(0, min(np.iinfo(kind).max, 255) + 1, shape).astype(kind)


def leaves(observation: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each input, also in the maps within, with a dot between their names."""
    for name, value in observation.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def change(observation: Mapping[str, object], form: Callable[[str, object], object], prefix: str = "") -> Observation:
    """Return the observation with what ``form`` makes of the name and the value of each input."""
    return {
        name: change(value, form, f"{prefix}{name}.") if isinstance(value, Mapping) else form(f"{prefix}{name}", value)
        for name, value in observation.items()
    }


def replace_each(
    observation: Mapping[str, object], generator: np.random.Generator
) -> Iterator[tuple[str, Observation]]:
    """Yield the name of each input, and the observation with noise or another text in its place.

    Numbers with a fraction, such as LeRobot's joints, are one input.
    """
    names = [name for name, each in leaves(observation) if isinstance(each, str | list | np.ndarray) and np.size(each)]
    numbers = [name for name, value in leaves(observation) if isinstance(value, float)]
    for group in [*([name] for name in names), *([numbers] if numbers else [])]:

        def replace(name: str, value: object, group: Sequence[str] = group) -> object:
            return _replace_value(name, value, generator) if name in group else value

        yield " to ".join(dict.fromkeys([group[0], group[-1]])), change(observation, replace)


def _replace_value(name: str, value: object, generator: np.random.Generator) -> object:
    if isinstance(value, list):
        return [_replace_value(name, each, generator) for each in value]
    if isinstance(value, np.ndarray):
        return _make_value(name, {"shape": list(value.shape), "dtype": value.dtype.str}, generator)
    return value + float(generator.standard_normal()) if isinstance(value, float) else OTHER_TASK


def _dtype(name: object) -> np.dtype | None:
    """Return a dtype of numbers; None for another one, or for what is none."""
    try:
        made = np.dtype(str(name))
    except TypeError:
        return None
    return made if made.kind in _KINDS else None
