"""Messages of LeRobot's policy server: the policy to load, observations, and pickles of LeRobot's classes.

The server puts a robot's numbers together by the features that its client names on connecting. They come from a data
set, from a file, or from the config of a checkpoint on this machine.

A pickle can run any code. What a server sends is read with the few names that a chunk of actions needs, and all others
are refused. What stands for those names is made again for each message: a pickle can change whatever it names, also a
class or a function. Sizes are held to the message's own before anything is allocated.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.core.untrusted import JsonObject, contents, parse_json
from strobe.servers.protocols.observations import MOST_BYTES, STATE, TASK, Observations, Source
from strobe.servers.protocols.wire import MESSAGE_BYTES

IMAGES = "observation.images."
_HELPERS = "lerobot.async_inference.helpers"
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # a storage in torch's form without a zip archive begins with these
_BEGIN, _PICKLES = b"\x80", 5  # the first byte of a pickle; how many are in a storage
MOST_MADE = 2**26  # bytes of the tensors of one answer
MOST_NUMBERS = 2**22  # numbers in a chunk: 4,000 actions of 1,000 numbers


@dataclass(frozen=True)
class ServedPolicy:
    """The policy that a client of LeRobot's server chooses. Other servers choose theirs when they begin.

    Args:
        path: a checkpoint's folder on the server's machine, or its id on the Hub.
        kind: the policy's type, such as 'act'; None to read it in the folder.
        device: torch's name of the server's device.
        actions: of a chunk.
    """

    path: str
    kind: str | None = None
    device: str = "cpu"
    actions: int = 50

    def config(self) -> Mapping[str, object]:
        """Return the config of the checkpoint, where its folder is on this machine too; else an empty map."""
        file = Path(self.path) / "config.json"
        try:
            read = parse_json(contents(file)) if file.is_file() else {}
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read: {error_line(error, 120)}") from None
        return read if isinstance(read, dict) else {}

    @property
    def type(self) -> str:
        """The policy's type. Raises UserError where nothing says it."""
        kind = self.kind or str(self.config().get("type", ""))
        if not kind:
            raise UserError(f"{self.path} is not on this machine: give the policy's type with --policy.type")
        return kind


def check_features(policy: ServedPolicy) -> None:
    """Raise UserError for a policy that reads what LeRobot's server drops, as far as its config is on this machine.

    The server gives it what `lerobot.async_inference.helpers.prepare_raw_observation` returns. A policy that reads more
    raises, and each call is answered with nothing.
    """
    features = policy.config().get("input_features")
    names = features if isinstance(features, dict) else {}
    dropped = [name for name in names if name != STATE and not name.startswith(IMAGES)]
    if dropped:
        raise UserError(
            f"LeRobot's policy server would answer no call: it gives a policy {STATE}, {IMAGES}* and the task alone, "
            f"and this one also reads {error_line(', '.join(dropped), 120)}. Without the server: strobe breakdown "
            f"--policy.path={policy.path}"
        )


@dataclass(frozen=True)
class Robot:
    """A client's description of its robot, and the robot's observations.

    Args:
        features: as LeRobot's data sets describe them.
        joints: names of the state's numbers.
    """

    features: Mapping[str, Mapping[str, Any]]
    joints: Sequence[str]
    observations: Observations

    def state(self, observation: Mapping[str, object]) -> np.ndarray:
        """Return the state of an observation, of shape (state dim,)."""
        return np.array([observation[name] for name in self.joints])


def make_robot(source: Source, policy: ServedPolicy) -> Robot:
    """Return the robot that gives the observations of ``source``. Raises UserError where its features are not known."""
    if source.frames:
        rename = source.rename
        frames = [{rename.get(name, name): value for name, value in frame.items()} for frame in source.frames]
        tasks = [source.task(frame) for frame in source.frames]
        recorded_as = next((name for name, new in rename.items() if new == STATE), STATE)
        names = _joints(source.features.get(recorded_as, {}).get("names"))
        words, recorded = source.description, True
    elif source.given is not None:
        frames, names, recorded = [dict(source.given)], [], source.is_recorded
        tasks = [source.options.prompt or str(source.given.get("task", source.given.get("prompt", TASK)))]
        words = source.description
    else:
        frames, names, recorded = [_synthetic(source, policy)], [], False
        tasks = [source.options.prompt or TASK]
        words = f"a synthetic observation of the shapes in the config of {Path(policy.path).name}"
    state = frames[0].get(STATE)
    if not isinstance(state, np.ndarray) or state.ndim != 1:
        raise UserError(f"LeRobot's server needs {STATE} of shape (joints,); --rename_map names it in a data set")
    joints = names if len(names) == len(state) else [f"joint_{number}.pos" for number in range(len(state))]
    cameras = {name: value for name, value in frames[0].items() if name.startswith(IMAGES)}
    pictures = {name: np.asarray(value) for name, value in cameras.items()}
    if wrong := [name for name, value in pictures.items() if value.dtype != np.uint8 or value.ndim != 3]:
        raise UserError(f"LeRobot's server takes images of (height, width, 3) in uint8, and {wrong[0]} is none")
    features: dict[str, JsonObject] = {STATE: {"dtype": "float32", "shape": (len(state),), "names": joints}}
    for name, value in cameras.items():
        features[name] = {"dtype": "image", "shape": tuple(value.shape), "names": ["height", "width", "channels"]}
    each = [
        {
            **dict(zip(joints, frame[STATE].tolist(), strict=True)),
            **{name.removeprefix(IMAGES): frame[name] for name in cameras},
            "task": task,
        }
        for frame, task in zip(frames, tasks, strict=True)
    ]
    return Robot(features, joints, Observations(each, words, recorded))


def _joints(names: Any) -> list[str]:
    if isinstance(names, Mapping):
        names = next(iter(names.values()), None)
    read = [str(name) for name in names] if isinstance(names, list) else []
    return read if len(set(read)) == len(read) else []


def _synthetic(source: Source, policy: ServedPolicy) -> JsonObject:
    """Return an observation of the shapes that a checkpoint's config names."""
    features = policy.config().get("input_features")
    if not isinstance(features, dict) or not features:
        raise UserError(
            f"{policy.path} is not on this machine, so nothing says what its observations are: give --dataset.root or "
            "--policy.observation"
        )
    generator, made = source.generator, {}
    for name, feature in features.items():
        shape = feature.get("shape") if isinstance(feature, dict) else None
        whole = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
        if shape is None or not whole or 4 * math.prod(shape) > MOST_BYTES:
            raise UserError(f"{policy.path}: the config has no sound shape of {name}: {error_line(feature, 80)}")
        if name.startswith(IMAGES) and len(shape) == 3:
            height, width = source.options.image_size or (shape[1], shape[2])
            made[name] = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        elif name == STATE:
            made[name] = generator.standard_normal(shape).astype(np.float32)
    return made


def instructions(policy: ServedPolicy, features: Mapping[str, Any]) -> bytes:
    """Return the message that has the server load ``policy`` for a robot of ``features``."""
    from lerobot.async_inference.helpers import RemotePolicyConfig

    described: JsonObject = {name: dict(feature) for name, feature in features.items()}
    return pickle.dumps(RemotePolicyConfig(policy.type, policy.path, described, policy.actions, policy.device))


def encode(observation: Mapping[str, object], now: float, step: int, *, must_go: bool) -> bytes:
    """Return the message of an observation.

    Args:
        now: seconds since 1970.
        step: its number, by which the server knows what it has answered.
        must_go: whether the server's filter lets it through.
    """
    from lerobot.async_inference.helpers import TimedObservation

    return pickle.dumps(TimedObservation(now, step, dict(observation), must_go))


def check(data: bytes) -> None:
    """Raise ValueError for a message that would take more memory than its own bytes do.

    An instruction of a pickle may ask for a table or an array of any size before a byte of it is read.
    """
    if len(data) > MESSAGE_BYTES:
        raise ValueError(f"ValueError: an answer of {len(data):,} bytes")
    try:
        _check_pickle_size(io.BytesIO(data), len(data))
    except Exception as error:  # a damaged pickle raises whatever its bytes make it
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _check_pickle_size(file: io.BytesIO, size: int) -> None:
    for operation, argument, _ in pickletools.genops(file):
        if "PUT" in operation.name and argument is not None and int(argument) > size:
            raise ValueError("it numbers more things than it holds")
        if isinstance(argument, bytes | bytearray) and argument[:1] == _BEGIN:
            inner = io.BytesIO(argument)
            for _ in range(_PICKLES):
                _check_pickle_size(inner, len(argument))


def decode(data: bytes) -> Any:
    """Return what a server answers, once `check` let it pass.

    Raises ValueError for what is no pickle, or one of other things.
    """
    try:
        return _Reader(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle raises whatever its bytes make it
        raise ValueError(f"{type(error).__name__}: {error}") from None


def extract_actions(answer: Any) -> tuple[np.ndarray | None, str]:
    """Return the actions of an answer, of shape (actions, action dim); None and what it holds for one without any."""
    import torch

    values = [getattr(each, "action", None) for each in answer] if isinstance(answer, list) else []
    actions = [value for value in values if isinstance(value, torch.Tensor)]
    if not actions or len(actions) != len(values):
        kind = f"a list of {len(answer)}" if isinstance(answer, list) else f"a {type(answer).__name__}"
        return None, f"TypeError: no list of actions; the answer is {kind}"
    if sum(value.numel() for value in actions) > MOST_NUMBERS:
        return None, f"ValueError: more than {MOST_NUMBERS:,} numbers"
    if len({tuple(value.shape) for value in actions}) > 1:
        return None, "ValueError: its actions differ in shape"
    return torch.stack(actions).float().cpu().numpy(), ""


class _Reader(pickle.Unpickler):
    """Reads a pickle of a chunk, and no other."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)

        made = 0

        def count(bytes_made: int) -> None:
            nonlocal made
            made += bytes_made
            if made > MOST_MADE:
                raise ValueError(f"tensors of over {MOST_MADE >> 20} MiB")

        def tensor(storage: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: object) -> object:
            if not isinstance(storage, _Stored):
                raise TypeError("a tensor of no storage")
            count(len(storage.numbers))
            return _tensor(storage, offset, shape, stride)

        def storage(data: bytes) -> Any:
            count(len(data))
            return _storage(data)

        def hooks(*_: object) -> JsonObject:
            return {}

        self._known: dict[tuple[str, str], Any] = {
            (_HELPERS, "TimedAction"): type("TimedAction", (), {}),
            ("torch._utils", "_rebuild_tensor_v2"): tensor,
            ("torch.storage", "_load_from_bytes"): storage,
            ("collections", "OrderedDict"): hooks,
        }

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"a chunk of actions has no {module}.{name}")
        return self._known[module, name]


class _Stored:
    """The numbers of a storage of torch, and their type."""

    def __init__(self, numbers: bytes, dtype: Any) -> None:
        self.numbers, self.dtype = numbers, dtype


def _tensor(storage: _Stored, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """Return the tensor in a storage. Raises ValueError where it has more numbers than that."""
    import torch

    held = len(storage.numbers) // storage.dtype.itemsize
    if not all(type(size) is int and size >= 0 for size in (offset, *shape, *stride)) or math.prod(shape) > held:
        raise ValueError(f"a tensor of shape {shape} in {held:,} numbers")
    if not math.prod(shape):
        return torch.empty(shape, dtype=storage.dtype)
    flat = torch.frombuffer(bytearray(storage.numbers), dtype=storage.dtype)
    return torch.as_strided(flat, shape, stride, offset).clone()


class _StorageReader(pickle.Unpickler):
    """Reads what torch writes of a storage; numbers follow it, and its device is of no matter here."""

    def find_class(self, module: str, name: str) -> object:
        if module != "torch" or not name.endswith("Storage"):
            raise pickle.UnpicklingError(f"a storage has no {module}.{name}")
        return name

    def persistent_load(self, pid: Any) -> object:
        _, kind, _, _, count, *_ = pid
        return kind, count


def _storage(data: bytes) -> _Stored:
    import torch

    file = io.BytesIO(data)
    if data[:1] != _BEGIN or (_StorageReader(file).load(), _StorageReader(file).load()) != (_MAGIC, _PROTOCOL):
        raise ValueError("a tensor in a form that LeRobot's server does not send")
    _StorageReader(file).load()  # sizes of numbers there
    kind, count = _StorageReader(file).load()
    _StorageReader(file).load()  # the storages' names: it is one
    types = {
        "FloatStorage": torch.float32, "DoubleStorage": torch.float64, "HalfStorage": torch.float16,
        "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
        "ShortStorage": torch.int16, "ByteStorage": torch.uint8, "CharStorage": torch.int8, "BoolStorage": torch.bool,
    }  # fmt: skip
    dtype = types[kind]
    numbers = file.read()[8:]
    if type(count) is not int or len(numbers) != count * dtype.itemsize:
        raise ValueError(f"a storage of {count} numbers in {len(numbers):,} bytes")
    return _Stored(numbers, dtype)
