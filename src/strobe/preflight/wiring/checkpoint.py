"""Read a checkpoint's folder as its files are: config, processors with their statistics, the names of its weights."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.core.json_text import JsonObject, parse_json
from strobe.core.runs.contents import contents
from strobe.lerobot.policies.options import WEIGHTS, check_checkpoint

CONFIG = "config.json"
PREPROCESSOR, POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"
NORMALISERS = ("normalizer_processor", "unnormalizer_processor")
# LeRobot before 0.4 (`processor/migrate_policy_normalization.py` lists them): modules with statistics as buffers.
_OF_STATISTICS = (
    "normalize_inputs.", "unnormalize_outputs.", "normalize_targets.", "unnormalize_targets.", "normalize.",
    "unnormalize.", "input_normalizer.", "output_normalizer.",
)  # fmt: skip
_COMPILED = "_orig_mod."  # what torch.compile puts before the names of a module's weights
_LARGEST_HEADER = 100 * 2**20  # bytes, safetensors' own limit

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
        training: train_config.json, of the run that saved it; empty without one.
    """

    folder: Path
    config: JsonObject
    preprocessor: Processor | None
    postprocessor: Processor | None
    names: list[str] | None
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
    """Return the folder of a checkpoint; of a name on the Hub, that in the local cache, fetched if need be.

    Raises:
        UserError: there is no such folder, and the Hub does not give it.
    """
    check_checkpoint(policy)
    if Path(policy).is_dir():
        return Path(policy)
    from huggingface_hub import snapshot_download

    name, files = str(policy), ["*.json", "*.safetensors"]
    try:
        return Path(snapshot_download(name, allow_patterns=files, local_files_only=True))
    except Exception:  # it is not in the cache
        try:
            return Path(snapshot_download(name, allow_patterns=files))
        except Exception as error:
            reason = error_line(error, 120)
            raise UserError(f"{name} is not a folder, and the Hub has no such model: {reason}") from None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the files of ``folder``. Raises UserError where a file is missing or cannot be read."""
    check_checkpoint(folder)
    config = _json(folder / CONFIG)
    weights = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    training = folder / "train_config.json"
    return Checkpoint(
        folder=folder,
        config=config,
        preprocessor=_processor(folder / PREPROCESSOR),
        postprocessor=_processor(folder / POSTPROCESSOR),
        names=_names(weights) if weights is not None and weights.name == WEIGHTS[0] else None,
        training=_json(training) if training.is_file() else {},
    )


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


def _names(file: Path) -> list[str] | None:
    """Return the names in the header of a safetensors file: its length in 8 bytes, then JSON. None for another file."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = parse_json(opened.read(length)) if length <= _LARGEST_HEADER else None
    except (OSError, ValueError, struct.error):
        return None
    return [name for name in header if name != "__metadata__"] if isinstance(header, dict) else None
