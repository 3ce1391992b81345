"""Miswirings of a checkpoint's files, of its robot and of its loop, for `preflight.py`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from miswired.case import Case, Plant, Stage, apply_policy_flag, apply_rename_map, flag, use_fixed_copy
from miswired.data import ACTION, METAWORLD, STATE
from miswired.plants import FRAMES, LOOKED_AT
from miswired.training import ACT, DIFFUSION, save_random

from strobe.core.results.finding import Finding
from strobe.preflight.wiring.robot import Connected

Tensors = dict[str, np.ndarray]
Fix = Callable[[Finding, Case, Stage], Case]
ARM, DIFFUSER = (ACT, METAWORLD.name), (DIFFUSION, METAWORLD.name)
TWICE = "normalised_twice.safetensors"


def _file(name: str, rule: str, change: Callable[[Path], None], fix: Fix, says: str = "--fix", **more: Any) -> Plant:
    """Return a plant of a copy of the checkpoint; ``more``: arguments of `Plant`, and ``frames``."""
    frames, policy = more.pop("frames", 0), more.pop("policy", ARM)

    def make(stage: Stage) -> Case:
        folder = stage.copy()
        change(folder)
        return Case(folder, stage.data, frames=frames, episodes=range(LOOKED_AT) if frames else None)

    return Plant("hypotheses" if frames else "read", name, policy, (rule,), says, make, fix)


def _json(file: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))), encoding="utf-8")


def _config(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: _json(folder / "config.json", lambda config: config | fields)


def _statistics(change: Callable[[Tensors], Tensors]) -> Callable[[Path], None]:
    """Return the change of the statistics, ``feature.statistic`` → numbers, in the processors' files."""

    def change_statistics(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        for file in folder.glob("policy_*processor_step_*.safetensors"):
            save_file(change(load_file(file)), file)

    return change_statistics


def _weights(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    from safetensors.numpy import load_file, save_file

    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def _rename_action(stats: Tensors) -> Tensors:
    own = f"{ACTION}."
    return {key.replace(own, "action.arm.", 1) if key.startswith(own) else key: stats[key] for key in stats}


def _drop_state(stats: Tensors) -> Tensors:
    return {key: value for key, value in stats.items() if not key.startswith(f"{STATE}.")}


def _shift_statistics(stats: Tensors) -> Tensors:
    vectors = [key for key in stats if key.startswith((STATE, ACTION)) and stats[key].dtype.kind == "f"]
    return stats | {key: (stats[key] * 9 + 40).astype(stats[key].dtype) for key in vectors}


def _set_std_nan(stats: Tensors) -> Tensors:
    return {key: np.full_like(value, np.nan) if key == f"{STATE}.std" else value for key, value in stats.items()}


def _rename_compiled_weights(folder: Path) -> None:
    _weights(folder, lambda tensors: {name.replace("model.", "model._orig_mod.", 1): t for name, t in tensors.items()})


def _inside_the_weights(folder: Path) -> None:
    """Write the checkpoint as LeRobot before 0.4 did: statistics among the weights, no processors."""
    from safetensors.numpy import load_file

    (file,) = folder.glob("policy_preprocessor_step_*.safetensors")
    inside: Tensors = {}
    for key, value in load_file(file).items():
        feature, _, statistic = key.rpartition(".")
        if statistic in ("mean", "std"):
            modules = ("normalize_inputs",) if feature != ACTION else ("normalize_targets", "unnormalize_outputs")
            inside |= {f"{module}.buffer_{feature.replace('.', '_')}.{statistic}": value for module in modules}
    _weights(folder, lambda tensors: tensors | inside)
    for each in folder.glob("policy_p*"):
        each.unlink()


def _state_twice(folder: Path) -> None:
    """Let a second step of the preprocessor normalise the state once more."""
    from safetensors.numpy import load_file, save_file

    def duplicate_normalizer(processor: dict[str, Any]) -> dict[str, Any]:
        own = next(step for step in processor["steps"] if step.get("registry_name") == "normalizer_processor")
        again = json.loads(json.dumps(own))
        again["config"]["norm_map"] = dict.fromkeys(own["config"]["norm_map"], "IDENTITY") | {"STATE": "MEAN_STD"}
        again["state_file"] = TWICE
        save_file(load_file(folder / own["state_file"]), folder / TWICE)
        place = processor["steps"].index(own)
        return processor | {"steps": [*processor["steps"][: place + 1], again, *processor["steps"][place + 1 :]]}

    _json(folder / "policy_preprocessor.json", duplicate_normalizer)


def _byte_image_statistics(stats: Tensors) -> Tensors:
    """Return statistics of images of 0 to 255."""
    images = [key for key in stats if key.startswith("observation.images") and stats[key].dtype.kind == "f"]
    return stats | {key: stats[key] * np.float32(255) for key in images}


def _processors_of_the_training(finding: Finding, case: Case, stage: Stage) -> Case:
    named = any(words in (finding.do or "") for words in ("another training", "training run's checkpoint"))
    return replace(case, policy=stage.policy) if named else case


def _sensible_rename(finding: Finding, case: Case, stage: Stage) -> Case:
    """Correct the names as the finding says: those of the inputs before the colon, the policy's after it."""
    camera = stage.world.cameras[0]
    return replace(case, rename={camera: camera})


def _robot_plant(
    name: str, rule: str, says: str, robot: Callable[[Stage], Connected], fix: Fix,
    change: Callable[[Path], None] = lambda _: None, policy: tuple[str, str] = ARM,
) -> Plant:  # fmt: skip
    """Return a plant of the robot, its cameras or its loop."""

    def make(stage: Stage) -> Case:
        folder = stage.copy()
        change(folder)
        return Case(folder, stage.data, robot=robot(stage))

    return Plant("read", name, policy, (rule,), says, make, fix)


def _change_robot_feature(name: str, **changed: Any) -> Callable[[Stage], Connected]:
    """Return the robot that differs in one feature."""

    def make_robot(stage: Stage) -> Connected:
        fits = stage.robot()
        return replace(fits, features=fits.features | {name: fits.features[name].model_copy(update=changed)})

    return make_robot


def _other_camera(stage: Stage) -> Connected:
    fits, camera = stage.robot(), stage.world.cameras[0]
    features = {name: feature for name, feature in fits.features.items() if name != camera}
    other = fits.features[camera].model_copy(update={"name": "observation.images.front"})
    return replace(fits, features=features | {other.name: other})


def _large_images(stage: Stage) -> Connected:
    fits = stage.robot()
    large = {name: fits.features[name].model_copy(update={"shape": [3, 480, 640]}) for name in stage.world.cameras}
    return replace(fits, features=fits.features | large)


def _horizon(finding: Finding, case: Case, stage: Stage) -> Case:
    assert case.robot is not None
    horizon = int(flag(finding, "--inference.rtc.execution_horizon"))
    return replace(case, robot=replace(case.robot, execution_horizon=horizon))


def _fps(finding: Finding, case: Case, stage: Stage) -> Case:
    assert case.robot is not None
    return replace(case, robot=replace(case.robot, fps=float(flag(finding, "--fps"))))


def _recorded_in_order(finding: Finding, case: Case, stage: Stage) -> Case:
    """Let the data name its joints in the order that the finding has, and a policy be made for this data.

    It is not trained: what is read does not depend on its weights.
    """
    order = (finding.do or "").rpartition(": ")[2].rstrip(".").split(", ")

    def reorder_action_names(info: dict[str, Any]) -> dict[str, Any]:
        info["features"][ACTION]["names"] = order
        return info

    places = [stage.world.dimensions.index(name) for name in order]
    data = stage.write_dataset(
        [ticks | {ACTION: ticks[ACTION][:, places]} for ticks in stage.episodes], "data-in-order"
    )
    _json(data / "meta" / "info.json", reorder_action_names)
    folder = stage.work / "policy-in-order"
    shutil.rmtree(folder, ignore_errors=True)
    return replace(case, data=data, policy=save_random(ACT, data, folder, 0))


def _named_in_order(finding: Finding, case: Case, stage: Stage) -> Case:
    """Name the robot's joints in the order that the finding has."""
    order = (finding.do or "").rpartition(": ")[2].rstrip(".").split(", ")
    return replace(case, robot=_change_robot_feature(STATE, dimensions=order)(stage))


def _resize_images_first(finding: Finding, case: Case, stage: Stage) -> Case:
    """Bring images to the crop's size first, by the flag that the finding names."""
    crop = json.loads((case.policy / "config.json").read_text())["crop_shape"]
    return replace(case, settings={"resize_shape": crop}) if "--policy.resize_shape" in (finding.do or "") else case


BACKWARDS = [*METAWORLD.dimensions][::-1]
IN_FILES: Sequence[Plant] = (
    _file("action statistics under another name", "statistics-absent", _statistics(_rename_action), use_fixed_copy),
    _file("no state statistics", "statistics-absent", _statistics(_drop_state), use_fixed_copy),
    _file("statistics of other data", "statistics-of-other-data", _statistics(_shift_statistics), use_fixed_copy),
    _file("NaN statistics", "statistics-not-numbers", _statistics(_set_std_nan), use_fixed_copy),
    _file("statistics inside the weights", "statistics-in-weights", _inside_the_weights, use_fixed_copy),
    _file("compiled names", "weights-compiled", _rename_compiled_weights, use_fixed_copy),
    _file("compiled names, Diffusion", "weights-compiled", lambda folder: _weights(
        folder, lambda tensors: {name.replace("unet.", "unet._orig_mod.", 1): t for name, t in tensors.items()}
    ), use_fixed_copy, policy=DIFFUSER),
    _file("field of another LeRobot", "fields-unknown", _config(no_such_field=1), use_fixed_copy),
    _file("more executed than predicted", "chunk-short", _config(n_action_steps=17),
          lambda finding, case, stage: apply_policy_flag(finding, case, "n_action_steps"), "n_action_steps"),
    _file("state normalised twice", "processors-differ", _state_twice, _processors_of_the_training, "training run's",
          frames=FRAMES),
    _file("image statistics of 0 to 255", "wired-otherwise-image-range", _statistics(_byte_image_statistics),
          _processors_of_the_training, "0 to 255", frames=FRAMES, policy=DIFFUSER),
    Plant("read", "rename that nobody knows", ARM, ("rename-unknown",), "rename_map",
          lambda stage: replace(stage.sound, rename={"observation.images.frnt": stage.world.cameras[0]}),
          _sensible_rename),
    _robot_plant("order of the robot's joints", "action-order", "in this order",
               _change_robot_feature(ACTION, dimensions=BACKWARDS), _recorded_in_order),
    _robot_plant("order of the robot's state", "state-order", "in this order",
                 _change_robot_feature(STATE, dimensions=BACKWARDS),
               _named_in_order),
    _robot_plant("rate of the loop", "rates-differ", "--fps", lambda stage: stage.robot(fps=30.0), _fps),
    _robot_plant("RTC's horizon beyond the chunk", "horizon-long", "--inference.rtc.execution_horizon",
               lambda stage: stage.robot(engine="rtc", execution_horizon=40), _horizon),
    _robot_plant("camera of another name", "camera-missing", "--rename_map", _other_camera,
               lambda finding, case, stage: apply_rename_map(finding, case)),
    _robot_plant("crop of large images", "camera-cropped", "--policy.resize_shape", _large_images, _resize_images_first,
               _config(crop_shape=[84, 84]), DIFFUSER),
)  # fmt: skip
