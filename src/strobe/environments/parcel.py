"""The parcel for another environment: the policy's place, observations, a training batch, in files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Calls
from strobe.core.families.registry import GROUP, record_entry
from strobe.core.untrusted import JsonObject
from strobe.environments.unpublished import save_unregistered
from strobe.lerobot.policies.checkpoints import locate
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.refusals import make_refusal

FEW_WEIGHTS = 20_000_000  # a policy of so many has its tensors recorded whole, or nearly
_ELEMENTS, _ELEMENTS_OF_FEW = 4096, 65536  # of a tensor, that are recorded
CHECKS = 16  # observations that actions are compared on


@dataclass(frozen=True)
class Parcel:
    """A folder with ``parcel.json`` and the arrays.

    Args:
        timed: observations that timed calls take in turn.
        checked: observations that actions are compared on.
        untrained: why it has no training batch, in words.
    """

    folder: Path
    timed: int
    checked: int
    untrained: str | None


def pack(
    subject: PolicySubject, folder: Path, *, overridden: bool, tiny: bool, batch_size: int, checks: int = CHECKS
) -> Parcel:
    """Write the parcel of ``subject``.

    A checkpoint of the user's is read where it lies, by each environment in its own way, unless its config is
    overridden by flags. A policy with random weights is saved.

    Args:
        overridden: whether flags change the config of the checkpoint.

    Raises:
        UserError: the policy cannot be saved, or an observation cannot be written.
    """
    made = subject.policy.config.pretrained_path is None
    policy = folder / "policy" if made or overridden else locate(str(subject.policy.config.pretrained_path))
    if made or overridden:
        _save(subject, policy)
    observations, checked = subject.inputs.observations, subject.checks(checks).observations
    texts: JsonObject = {}
    for number, observation in enumerate([*observations, *checked]):
        texts[f"observation_{number}"] = _write(observation, folder / f"observation_{number}.npz")
    untrained = Calls.from_family(subject.family).untrained
    if not untrained:
        texts["batch"] = _write(subject.inputs.batch(batch_size), folder / "batch.npz")
    config: Any = subject.policy.config
    facts = {
        "policy": str(policy.resolve()),
        "kind": config.type,
        "tiny": tiny,
        "strobe": str(_source(folder, config)) if made else "",
        "rename": next((step.rename_map for step in subject.preprocessor.steps if hasattr(step, "rename_map")), {}),
        "queues": getattr(config, "n_obs_steps", 1) > 1 or Calls.from_family(subject.family).chunk is not None,
        "timed": len(observations),
        "elements": _ELEMENTS_OF_FEW if subject.info.parameters < FEW_WEIGHTS else _ELEMENTS,
        "texts": texts,
    }
    (folder / "parcel.json").write_text(json.dumps(facts))
    return Parcel(folder, len(observations), len(checked), untrained)


def _source(folder: Path, config: object) -> Path:
    """Return a folder that holds Strobe's source, and that of the package which brought the policy's record.

    It holds nothing else: the other packages here are not the other side's, and the policy itself is not either.
    """
    source = folder / "source"
    source.mkdir()
    (source / "strobe").symlink_to(Path(__file__).resolve().parents[1], target_is_directory=True)
    kind = getattr(config, "type", "")
    entry = record_entry(kind)
    if entry is None or entry.dist is None or _top_package(entry.module) == _top_package(type(config).__module__):
        return source
    file = Path(str(import_module(_top_package(entry.module)).__file__))
    place = file.parent if file.stem == "__init__" else file
    (source / place.name).symlink_to(place)
    name, version = entry.dist.name, entry.dist.version
    facts = source / f"{name.replace('-', '_')}-{version}.dist-info"  # by which the other side finds the record
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "entry_points.txt").write_text(f"[{GROUP}]\n{kind} = {entry.value}\n")
    return source


def _top_package(module: str) -> str:
    return module.partition(".")[0]


def _save(subject: PolicySubject, folder: Path) -> None:
    try:
        subject.policy.save_pretrained(folder)
        subject.preprocessor.save_pretrained(folder)
        subject.postprocessor.save_pretrained(folder)
        save_unregistered(subject.policy, folder)
    except OSError:
        raise
    except Exception as error:
        raise make_refusal(error, f"{subject.info.name} cannot be saved for the other environment") from error


def _write(data: JsonObject, file: Path) -> JsonObject:
    arrays = {key: value.detach().cpu().numpy() for key, value in data.items() if isinstance(value, Tensor)}
    np.savez(file, **arrays)  # type: ignore[arg-type]
    rest = {key: value for key, value in data.items() if key not in arrays and value is not None}
    try:
        json.dumps(rest)
    except TypeError as error:
        raise UserError(f"an observation has an entry that no file can carry: {error}") from error
    return rest
