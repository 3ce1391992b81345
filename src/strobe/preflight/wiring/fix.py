"""Write a copy of a checkpoint in which what is wrong with its files is fixed. The original is left unchanged.

Fixed are fields that the installed LeRobot does not know, names that torch.compile has changed, statistics that stand
under another name, are missing or of other data than the data set, and statistics inside the weights. LeRobot has a
converter for the last of these (``processor/migrate_policy_normalization.py``). It fails for configs with tuples, and
leaves an empty config behind.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.core.untrusted import parse_json
from strobe.lerobot.processors import READ
from strobe.lerobot.quiet import quiet
from strobe.preflight.results.wiring import Place, Wiring
from strobe.preflight.wiring.checkpoint import CONFIG, POSTPROCESSOR, PREPROCESSOR, Checkpoint, Normaliser, Processor
from strobe.preflight.wiring.dataset import DatasetFeatures

_BUFFER = "buffer_"
_WEIGHTS = "model.safetensors"


def write_fixed_copy(
    checkpoint: Checkpoint, wiring: Wiring, target: Path, recorded: DatasetFeatures | None
) -> list[str]:
    """Write the fixed copy into the folder ``target``. Return what was fixed, a sentence each.

    Args:
        recorded: the data set whose statistics are taken where the checkpoint has none.

    Raises:
        UserError: ``target`` is there already, or there is nothing that can be fixed.
    """
    if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
        raise UserError(f"--fix={target}: this folder exists; name a new one")
    try:
        # The weights are most of it. They are written once, when it is clear whether and how.
        shutil.copytree(checkpoint.folder, target, dirs_exist_ok=True,
                        ignore=lambda at, _: {_WEIGHTS} if Path(at) == checkpoint.folder else set())  # fmt: skip
        done = _fix_config(wiring, target)
        done += _fix_weights(checkpoint, target)
        done += _fix_processors(checkpoint, wiring, target, recorded)
        if not done:
            more = "" if recorded is not None else "; add --dataset.root=DATA to fill in missing statistics"
            raise UserError(f"--fix: Strobe found nothing to fix in the files of {checkpoint.folder}{more}")
        _copy_weights(checkpoint, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)  # half a copy would look like a whole one
        raise
    return done


def _fix_config(wiring: Wiring, target: Path) -> list[str]:
    if not wiring.unknown_fields:
        return []
    file = target / CONFIG
    config = parse_json(file.read_text(encoding="utf-8"))
    for name in wiring.unknown_fields:
        del config[name]
    file.write_text(json.dumps(config, indent=4), encoding="utf-8")
    return [f"config.json: removed {', '.join(wiring.unknown_fields)}."]


def _fix_weights(checkpoint: Checkpoint, target: Path) -> list[str]:
    compiled, statistics = checkpoint.compiled_names, checkpoint.statistics_in_weights
    if not compiled and not statistics:
        return []
    rename_weights(
        checkpoint.folder / _WEIGHTS,
        target / _WEIGHTS,
        dict.fromkeys(statistics) | {name: name.replace("_orig_mod.", "") for name in compiled},
    )
    done = [f"model.safetensors: removed '_orig_mod.' from {len(compiled)} names."] if compiled else []
    return done + ([f"model.safetensors: removed {len(statistics)} statistics."] if statistics else [])


def _copy_weights(checkpoint: Checkpoint, target: Path) -> None:
    """Copy the weights as they are, unless they are there; those of other names (PEFT's adapters) are."""
    source = checkpoint.folder / _WEIGHTS
    if source.is_file() and not (target / _WEIGHTS).exists():
        shutil.copy2(source, target)


def rename_weights(source: Path, target: Path, names: Mapping[str, str | None]) -> None:
    """Copy a safetensors file with other names of its tensors, and without those whose name is None.

    Raises UserError for a file that is cut off.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file

    try:
        with safe_open(source, framework="pt") as read:
            kept = {new: read.get_tensor(name) for name in read.keys() if (new := names.get(name, name)) is not None}  # noqa: SIM118
            save_file(kept, target, metadata=read.metadata())
    except SafetensorError as error:
        raise UserError(f"the weights' file cannot be read: {error_line(error, 120)}; download it again") from None


def _fix_processors(
    checkpoint: Checkpoint, wiring: Wiring, target: Path, recorded: DatasetFeatures | None
) -> list[str]:
    data = _dataset_statistics(recorded, wiring) if recorded is not None else {}
    unnormalised = any(each.level == "danger" for each in wiring.differences)
    if checkpoint.preprocessor is None or checkpoint.postprocessor is None or unnormalised:
        statistics = _inside(checkpoint) or {**data, **_read_processors(checkpoint)}
        if not statistics:
            return []
        _copy_weights(checkpoint, target)  # LeRobot wants the whole checkpoint
        return _make_processors(target, statistics)
    both: dict[Place, Processor] = {"preprocessor": checkpoint.preprocessor, "postprocessor": checkpoint.postprocessor}
    done = []
    for place, processor in both.items():
        foreign = {
            wire.name
            for wire in wiring.wires
            if not (wire.other_order(place) or wiring.absolute_where_relative(wire, place))
            and wire.foreign_dimensions(place)
        }
        done += _fix_statistics(checkpoint, processor, target, data, foreign)
    return done


def _inside(checkpoint: Checkpoint) -> dict[str, dict[str, np.ndarray]]:
    """Return the statistics among the weights: feature → statistic → numbers."""
    from safetensors import safe_open

    plain = {feature.replace(".", "_"): feature for feature in checkpoint.features}
    statistics: dict[str, dict[str, np.ndarray]] = {}
    with safe_open(checkpoint.folder / _WEIGHTS, framework="np") as opened:
        for name in checkpoint.statistics_in_weights:
            module, _, statistic = name.rpartition(".")
            feature = plain.get(module.rpartition(_BUFFER)[2])
            if feature is not None:
                statistics.setdefault(feature, {})[statistic] = opened.get_tensor(name).astype(np.float32)
    return statistics


def _read_processors(checkpoint: Checkpoint) -> dict[str, dict[str, np.ndarray]]:
    """Return the statistics that the processors have: feature → statistic → numbers."""
    return {
        name: _make_arrays(known, image="image" in name)
        for processor in (checkpoint.preprocessor, checkpoint.postprocessor) if processor is not None
        for each in processor.normalisers
        for name, known in each.statistics.items()
    }  # fmt: skip


def _make_arrays(known: Mapping[str, Sequence[float | None]], *, image: bool) -> dict[str, np.ndarray]:
    return {
        key: np.array(values, np.float32).reshape((-1, 1, 1) if image else (-1,))
        for key, values in known.items()
        if None not in values and key != "count"
    }


def _dataset_statistics(recorded: DatasetFeatures, wiring: Wiring) -> dict[str, dict[str, np.ndarray]]:
    """Return the statistics of the data set, as the policy takes its features.

    Those of all frames are taken where the data set's own ones are not theirs, and for relative actions.
    """
    statistics: dict[str, dict[str, np.ndarray]] = {}
    for own, feature in recorded.features.items():
        name = wiring.rename.get(own, own)
        wire = wiring.wire(name)
        known = feature.normalisation.statistics if feature.normalisation is not None else {}
        vector = wiring.truth.vector(own) if wiring.truth is not None else None
        if wire is not None and (wire.relative or (vector is not None and vector.differing())):
            known = wire.frames
        statistics[name] = _make_arrays(known, image=feature.kind == "image")
    return statistics


def _make_processors(target: Path, statistics: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    import torch
    from lerobot.policies.factory import make_pre_post_processors

    from strobe.lerobot.policies import lerobot_policies

    config = lerobot_policies.config_from_path(str(target), [])
    stats = {
        feature: {name: torch.from_numpy(np.asarray(values)) for name, values in numbers.items()}
        for feature, numbers in statistics.items()
    }
    with quiet():
        for processor in make_pre_post_processors(config, dataset_stats=stats):
            processor.save_pretrained(target)
    return [f"{PREPROCESSOR} and {POSTPROCESSOR}: written, with statistics of {', '.join(statistics)}."]


def _fix_statistics(
    checkpoint: Checkpoint,
    processor: Processor,
    target: Path,
    data: Mapping[str, Mapping[str, np.ndarray]],
    foreign: set[str],
) -> list[str]:
    """Fill in statistics that are missing, no numbers, or ``foreign``: of other data than the data set."""
    from safetensors.numpy import load_file, save_file

    document = parse_json(processor.file.read_text(encoding="utf-8"))
    done = []
    steps = [step for step in document.get("steps", []) if "norm_map" in (step.get("config") or {})]
    for normaliser, step in zip(processor.normalisers, steps, strict=False):
        state = step.get("state_file") or f"{processor.file.stem}_statistics.safetensors"
        file = target / state
        tensors = load_file(file) if file.is_file() else {}
        before = len(done)
        for feature, described in normaliser.features.items():
            if feature in foreign:
                name, numbers = "the data set", dict(data.get(feature, {}))
            elif _lacks(normaliser, feature, str(described.get("type"))):
                name, numbers = _source(checkpoint, normaliser, feature, described, data)
            else:
                continue
            if numbers:
                tensors |= {f"{feature}.{statistic}": values for statistic, values in numbers.items()}
                done.append(f"{processor.file.name}: statistics of {feature} from {name}.")
        if len(done) > before:
            save_file(tensors, file)
            step["state_file"] = state
    if done:
        (target / processor.file.name).write_text(json.dumps(document, indent=2), encoding="utf-8")
    return done


def _lacks(normaliser: Normaliser, feature: str, kind: str) -> bool:
    needed = READ.get(str(normaliser.modes.get(kind, "IDENTITY")), ())
    known = normaliser.statistics.get(feature, {})
    return any(not known.get(name) or None in known[name] for name in needed)


def _source(
    checkpoint: Checkpoint,
    normaliser: Normaliser,
    feature: str,
    described: Mapping[str, Any],
    data: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[str, dict[str, np.ndarray]]:
    size = int(described["shape"][0])
    fitting = {}
    for name in checkpoint.orphans(normaliser):
        numbers = {key: values for key, values in normaliser.statistics[name].items() if key != "count"}
        if all(len(values) == size and None not in values for values in numbers.values()):
            fitting[name] = numbers
    if len(fitting) == 1:
        ((name, numbers),) = fitting.items()
        return f"those under '{name}'", _make_arrays(numbers, image=described.get("type") == "VISUAL")
    return "the data set", dict(data.get(feature, {}))
