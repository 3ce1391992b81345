"""Read a checkpoint's folder as its files are: config, processors with their statistics, weights, its training."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.core.untrusted import JsonObject, contents, parse_json
from strobe.lerobot.datasets import recording
from strobe.lerobot.policies.options import WEIGHTS, check_checkpoint
from strobe.open_loop.training_log import read_log
from strobe.preflight.results.wiring import SavedTraining

CONFIG, TRAINING = "config.json", "train_config.json"
PREPROCESSOR, POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"
NORMALISERS = ("normalizer_processor", "unnormalizer_processor")
# LeRobot before 0.4 (`processor/migrate_policy_normalization.py` lists them): modules with statistics as buffers.
_OF_STATISTICS = (
    "normalize_inputs.", "unnormalize_outputs.", "normalize_targets.", "unnormalize_targets.", "normalize.",
    "unnormalize.", "input_normalizer.", "output_normalizer.",
)  # fmt: skip
_COMPILED = "_orig_mod."  # what torch.compile puts before the names of a module's weights
_LARGEST_HEADER = 100 * 2**20  # bytes, safetensors' own limit
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # safetensors' dtypes as NumPy reads them
_READ = 1024  # numbers at the start of each tensor that are read: NaN of a training fills whole tensors

Statistics = dict[str, dict[str, list[float | None]]]


@dataclass(frozen=True)
class Normaliser:
    """A step of a processor that normalises or unnormalises.

    Args:
        features: name → its type and shape, as LeRobot writes them.
        modes: type → the mode of its normalisation.
        statistics: feature → statistic → a number for each dimension or channel.
    """

    features: Mapping[str, Mapping[str, Any]]
    modes: Mapping[str, str]
    statistics: Statistics


@dataclass(frozen=True)
class Processor:
    """A processor of a checkpoint: the names of its steps, and their configs."""

    file: Path
    steps: list[tuple[str, JsonObject]]
    normalisers: list[Normaliser]

    def config(self, step: str) -> JsonObject | None:
        """Return the config of the first step registered as ``step``; None without one."""
        return next((config for name, config in self.steps if name == step), None)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's files.

    Args:
        names: of its weights; None if their file could not be read as safetensors.
        nan: those that begin with NaN.
        training: train_config.json, of the run that saved it; empty without one.
    """

    folder: Path
    config: JsonObject
    preprocessor: Processor | None
    postprocessor: Processor | None
    names: list[str] | None
    nan: list[str] = field(default_factory=list)
    training: JsonObject = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        """Names of the policy's features."""
        return [*(self.config.get("input_features") or {}), *(self.config.get("output_features") or {})]

    def orphans(self, normaliser: Normaliser) -> list[str]:
        """Return names for which a normaliser has statistics and which are no features: misspelt, or of other data."""
        known = {*normaliser.features, *self.features}
        return sorted(
            name for name in normaliser.statistics if name not in known and name.startswith(("action", "observation"))
        )

    @property
    def statistics_in_weights(self) -> list[str]:
        """Names of statistics among the weights."""
        return [name for name in self.names or () if name.startswith(_OF_STATISTICS) or ".buffer_" in name]

    @property
    def compiled_names(self) -> list[str]:
        """Names that torch.compile has changed."""
        return [name for name in self.names or () if _COMPILED in name]


def checkpoint_folder(policy: str | Path) -> Path:
    """Return the folder of a checkpoint; of a name on the Hub, that in the cache. Raises UserError without one."""
    check_checkpoint(policy)
    if not Path(policy).is_dir():
        from strobe.lerobot.policies.checkpoints import locate  # imports torch

        return locate(policy)
    return Path(policy)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the files of ``folder``. Raises UserError where a file is missing or cannot be read."""
    check_checkpoint(folder)
    config = _json(folder / CONFIG)
    weights = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    names, odd = _tensors(weights) if weights is not None and weights.name == WEIGHTS[0] else (None, [])
    return Checkpoint(
        folder=folder,
        config=config,
        preprocessor=_processor(folder / PREPROCESSOR),
        postprocessor=_processor(folder / POSTPROCESSOR),
        names=names,
        nan=odd,
        training=read_json(folder / TRAINING),
    )


def read_json(file: Path) -> JsonObject:
    """Return the object in a file; an empty one where there is none that can be read."""
    with suppress(UserError):
        return _json(file)
    return {}


def _json(file: Path) -> JsonObject:
    try:
        content = parse_json(contents(file))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error_line(error, 120)}") from None
    if not isinstance(content, dict):
        raise UserError(f"{file} is not a JSON object")
    return content


def _processor(file: Path) -> Processor | None:
    if not file.is_file():
        return None
    steps: list[tuple[str, JsonObject]] = []
    normalisers = []
    listed = _json(file).get("steps", [])
    if not isinstance(listed, list) or not all(map(_is_step, listed)):
        raise UserError(f"{file} is not a processor of LeRobot: its 'steps' are not a list of steps")
    for step in listed:
        name = str(step.get("registry_name") or step.get("class") or "")
        config = step.get("config") or {}
        steps.append((name, config))
        if name in NORMALISERS:
            state = step.get("state_file")
            normalisers.append(
                Normaliser(
                    features=config.get("features") or {},
                    modes=config.get("norm_map") or {},
                    statistics=_statistics(file.parent / state) if state else {},
                )
            )
    return Processor(file, steps, normalisers)


def _is_step(step: Any) -> bool:
    if not isinstance(step, dict):
        return False
    config, state = step.get("config") or {}, step.get("state_file") or ""
    maps = isinstance(config, dict) and all(
        isinstance(config.get(name) or {}, dict) for name in ("features", "norm_map")
    )
    return maps and isinstance(state, str) and Path(state).name == state


def _statistics(file: Path) -> Statistics:
    """Return the statistics of a normaliser's state, ``feature.statistic`` → tensor in the file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} cannot be read: {error_line(error, 120)}") from None
    statistics: Statistics = {}
    for name, tensor in tensors.items():
        feature, _, statistic = name.rpartition(".")
        statistics.setdefault(feature, {})[statistic] = numbers(tensor)
    return statistics


def numbers(values: object) -> list[float | None]:
    """Return nested numbers as a flat list, with None for what is no number."""
    flat = np.asarray(values, dtype=float).ravel()
    return [float(value) if np.isfinite(value) else None for value in flat]


def _tensors(file: Path) -> tuple[list[str] | None, list[str]]:
    """Return the names in a safetensors file, and those of tensors with NaN among their first numbers.

    Infinite numbers are none of them: a mask of attention may have them. The file begins with its header: its
    length in 8 bytes, then JSON. (None, []) for another file.
    """
    odd = []
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = parse_json(opened.read(length)) if length <= _LARGEST_HEADER else None
            if not isinstance(header, dict):
                return None, []
            header.pop("__metadata__", None)
            for name, tensor in header.items():
                first, last = tensor["data_offsets"]
                kind = np.dtype(_FLOATS.get(tensor["dtype"], "V1"))
                opened.seek(8 + length + first)
                read = opened.read(max(0, min(last - first, _READ * kind.itemsize)))
                numbers = np.frombuffer(read[: len(read) // kind.itemsize * kind.itemsize], kind)
                if kind.kind == "u":  # bfloat16: the upper half of a float32
                    numbers = (numbers.astype("<u4") << 16).view("<f4")
                if kind.kind != "V" and np.isnan(numbers).any():
                    odd.append(name)
    except (OSError, KeyError, TypeError, ValueError, struct.error):
        return None, []
    return list(header), odd


def read_training(checkpoint: Checkpoint, frames: int | None = None, log: Path | None = None) -> SavedTraining | None:
    """Return the training that saved ``checkpoint``; None without its train_config.json and a ``log``.

    Args:
        frames: of its data set.
        log: what lerobot-train printed, in a file.

    Raises:
        UserError: ``log`` cannot be read, or has no line of a training; a file is not as LeRobot writes it.
    """
    if not checkpoint.training and log is None:
        return None
    printed = read_log(log, checkpoint.training.get("log_freq")) if log is not None else None
    state = checkpoint.folder.resolve().parent / "training_state"
    try:
        return _read_state(checkpoint, state).model_copy(update={"frames": frames, "log": printed})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{checkpoint.folder}/train_config.json or {state}: {error_line(error, 120)}") from None


def find_held_out(policy: Path, dataset: Path) -> list[int]:
    """Return the episodes of ``dataset`` that the training left out; none if train_config.json names other data."""
    trained = read_json(policy / TRAINING).get("dataset")
    if not isinstance(trained, dict) or not isinstance(chosen := trained.get("episodes"), list):
        return []
    there, named = dataset.resolve().parts, [trained.get(key) for key in ("root", "repo_id")]
    if not any(there[-len(Path(name).parts) :] == Path(name).parts for name in named if isinstance(name, str) and name):
        return []
    total = int(recording.read(dataset).info.get("total_episodes", 0))
    return sorted({*range(total)} - {episode for episode in chosen if isinstance(episode, int)})


def _read_state(checkpoint: Checkpoint, state: Path) -> SavedTraining:
    config, step = checkpoint.training, read_json(state / "training_step.json")
    asked = {name: checkpoint.config.get(name) for name in ("use_amp", "dtype")}
    transforms = (config.get("dataset") or {}).get("image_transforms") or {}
    groups, file = state / "optimizer_param_groups.json", state / "optimizer_state.safetensors"
    listed = parse_json(contents(groups)) if groups.is_file() else []
    names = _tensors(file)[0] if listed and file.is_file() else None
    return SavedTraining(
        step=step.get("step"),
        planned=config.get("steps"),
        batch_size=step.get("batch_size", config.get("batch_size")),
        processes=step.get("num_processes"),
        precision={name: str(value) for name, value in asked.items() if value is not None},
        transforms=list(transforms.get("tfs") or ()) if transforms.get("enable") else [] if config else None,
        learning_rates=[group["lr"] for group in listed],
        trained=sum(len(group["params"]) for group in listed) if names is not None else None,
        stepped=len({name.split("/")[1] for name in names or () if name.startswith("state/")}),
    )
