"""Miswirings for `preflight.py`: in the data, as a robot that is wired otherwise records it, and in the files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _preflight_data import ACTION, HAND, STATE, TOP, Ticks


@dataclass(frozen=True)
class DataPlant:
    """A change of the recording.

    Args:
        rules: of findings, any of which names it.
        mend: words that are in what is said to mend it.
        policy: that it is shown to.
    """

    name: str
    change: Callable[[Ticks], Ticks]
    rules: tuple[str, ...]
    mend: str
    policy: str = "act"


@dataclass(frozen=True)
class FilePlant:
    """A change of a copy of the checkpoint, or of the names that the inputs get."""

    name: str
    change: Callable[[Path], None]
    rules: tuple[str, ...]
    mend: str
    rename: dict[str, str] = field(default_factory=dict)


def _each(change: Callable[[np.ndarray], np.ndarray], *keys: str) -> Callable[[Ticks], Ticks]:
    return lambda ticks: ticks | {key: change(ticks[key]) for key in keys}


def _mirrored(values: np.ndarray) -> np.ndarray:
    return np.stack([512 - values[:, 0], values[:, 1]], axis=1)


def _shifted(ticks: Ticks, by: int) -> Ticks:
    """Return actions that come so many ticks too early."""
    return {key: value[by:] if key == ACTION else value[:-by] for key, value in ticks.items()}


RADIANS = np.pi / 180
IN_DATA = (
    # An ACT takes its cameras in any order (its features have no sign of their camera): nothing is wrong there.
    DataPlant("cameras swapped", lambda t: t | {TOP: t[HAND], HAND: t[TOP]}, ("wired-otherwise-cameras",),
              "rename_map", "diffusion"),
    DataPlant("BGR", _each(lambda v: v[..., ::-1], TOP, HAND), ("wired-otherwise-channels",), "color_mode",
              "act of images"),
    DataPlant("state order", _each(lambda v: v[:, ::-1], STATE), ("wired-otherwise-state-order",), "observation.state"),
    DataPlant("action order", _each(lambda v: v[:, ::-1], ACTION), ("wired-otherwise-action-order",),
              "action_feature_names"),
    DataPlant("radians", _each(lambda v: v * RADIANS, STATE, ACTION),
              ("wired-otherwise-units", "statistics-of-other-data"), ""),
    DataPlant("x reversed", _each(_mirrored, ACTION), ("wired-otherwise-sign",), "x"),
    DataPlant("relative actions", lambda t: t | {ACTION: t[ACTION] - t[STATE]},
              ("wired-otherwise-relative", "statistics-of-other-data"), ""),
    DataPlant("actions two ticks early", lambda t: _shifted(t, 2), ("wired-otherwise-shift",), "tick"),
    DataPlant("half the rate", lambda t: {key: value[::2] for key, value in t.items()}, ("wired-otherwise-rate",),
              "--fps"),
)  # fmt: skip


def _config(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields), encoding="utf-8")


def _statistics(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], *, processors: str = "*") -> None:
    """Change the statistics, ``feature.statistic`` → numbers, in the processors' state files."""
    from safetensors.numpy import load_file, save_file

    for file in folder.glob(f"policy_{processors}processor_step_*.safetensors"):
        save_file(change(load_file(file)), file)


def _without(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        _statistics(
            folder, lambda stats: {key: value for key, value in stats.items() if not key.startswith(f"{name}.")}
        )

    return change


def _renamed(folder: Path) -> None:
    def change(stats: dict[str, Any]) -> dict[str, Any]:
        own = f"{ACTION}."
        return {key.replace(own, "action.arm.", 1) if key.startswith(own) else key: stats[key] for key in stats}

    _statistics(folder, change)


def _of_other_data(folder: Path) -> None:
    def change(stats: dict[str, Any]) -> dict[str, Any]:
        vectors = [key for key in stats if key.startswith((STATE, ACTION)) and stats[key].dtype.kind == "f"]
        return stats | {key: (stats[key] * 9 + 4000).astype(stats[key].dtype) for key in vectors}

    _statistics(folder, change)


def _not_numbers(folder: Path) -> None:
    def change(stats: dict[str, Any]) -> dict[str, Any]:
        return {key: np.full_like(value, np.nan) if key == f"{STATE}.std" else value for key, value in stats.items()}

    _statistics(folder, change)


def _compiled(folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    file = folder / "model.safetensors"
    save_file({name.replace("model.", "model._orig_mod.", 1): value for name, value in load_file(file).items()}, file)


IN_FILES = (
    FilePlant("action statistics under another name", _renamed, ("statistics-absent",), "--mend"),
    FilePlant("no state statistics", _without(STATE), ("statistics-absent",), "--mend"),
    FilePlant("statistics of other data", _of_other_data, ("statistics-of-other-data",), "trained on"),
    FilePlant("NaN statistics", _not_numbers, ("statistics-not-numbers",), "--mend"),
    FilePlant("compiled names", _compiled, ("weights-compiled",), "--mend"),
    FilePlant("field of another LeRobot", lambda folder: _config(folder, no_such_field=1), ("fields-unknown",),
              "--mend"),
    FilePlant("more executed than predicted", lambda folder: _config(folder, n_action_steps=17), ("chunk-short",),
              "n_action_steps"),
    FilePlant("rename that nobody knows", lambda folder: None, ("rename-unknown",), "rename_map",
              rename={"observation.images.front": "observation.images.frnt"}),
)  # fmt: skip


def planted(plant: FilePlant, checkpoint: Path, folder: Path) -> Path:
    """Return a copy of the checkpoint with the fault in it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkpoint, folder)
    plant.change(folder)
    return folder
