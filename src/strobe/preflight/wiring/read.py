"""Compare every feature of policy, processors, data set and robot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, error_line
from strobe.lerobot.processors import lacking_normalisation
from strobe.lerobot.schema import registries
from strobe.lerobot.schema.source import UnreadableSourceError, fields
from strobe.preflight.results.wiring import (
    Camera,
    Feature,
    FeatureKind,
    Normalisation,
    Place,
    Timing,
    Weights,
    WiredFeature,
    Wiring,
)
from strobe.preflight.wiring.checkpoint import Checkpoint, Processor, read_checkpoint
from strobe.preflight.wiring.dataset import DatasetFeatures, read_dataset
from strobe.preflight.wiring.prompt import read_prompt
from strobe.preflight.wiring.reach import JointLimits, reach, relative_actions
from strobe.preflight.wiring.robot import Connected

_KINDS: dict[str, FeatureKind] = {"VISUAL": "image", "STATE": "state", "ACTION": "action"}
_LENGTHS = ("chunk_size", "horizon", "action_chunk_size", "action_horizon")
# What configs call the size to which an image is brought, then the size that is cut out of it; (height, width).
_RESIZED = ("resize_shape", "image_resize_shape", "resize_imgs_with_padding", "image_resolution", "resize_images_to")
_CROPPED = ("crop_shape", "image_crop_shape")
# What configs call their denoising steps.
_STEPS = (
    "num_inference_steps", "num_steps", "num_denoise_steps", "num_denoising_steps", "num_inference_timesteps",
    "action_num_inference_steps",
)  # fmt: skip
_ADDED = ("pretrained_path", "pretrained_revision", "type")  # fields of saved configs that not every class has
_BOUNDS = {"tdmpc": 1.0, "gaussian_actor": 1.0}  # where the code's clamp or tanh ends normalised actions


def read_wiring(
    policy: Path,
    dataset: Path | None = None,
    robot: Connected | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    task: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Wiring:
    """Read the files of a checkpoint's folder and of a data set. Neither torch nor LeRobot is imported.

    Args:
        robot: what a rollout would connect.
        rename: names in the inputs → names that the policy knows, in addition to those of checkpoint and rollout.
        task: the prompt of a loop that is no rollout.
        settings: fields of the policy's config that the command line sets.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    rename, settings = rename or {}, settings or {}
    with written_by_lerobot(policy, dataset):
        return _read(policy, dataset, robot, rename, task, settings)


@contextmanager
def written_by_lerobot(*files: Path | None) -> Iterator[None]:
    """Make a UserError of what a content of ``files`` raises that is not as LeRobot writes it."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError) as error:
        named = " or ".join(str(file) for file in files if file is not None)
        raise UserError(f"the files of {named} are not as LeRobot writes them: {error_line(error, 120)}") from error


def _read(
    policy: Path,
    dataset: Path | None,
    robot: Connected | None,
    rename: Mapping[str, str],
    task: str | None,
    settings: Mapping[str, object],
) -> Wiring:
    checkpoint = read_checkpoint(policy)
    unknown, unread = _unknown_fields(checkpoint.config)  # of the file: LeRobot itself refuses an unknown flag
    checkpoint = replace(checkpoint, config={**checkpoint.config, **settings})
    recorded = read_dataset(dataset) if dataset is not None else None
    step = checkpoint.preprocessor.config("rename_observations_processor") if checkpoint.preprocessor else None
    renamed = {**((step or {}).get("rename_map") or {}), **(robot.rename if robot is not None else {}), **rename}
    wires = _wires(checkpoint, recorded, robot, renamed)
    for wire in wires:
        relative = relative_actions(checkpoint) is not None or checkpoint.config.get("use_relative_actions")
        wire.relative = wire.name == "action" and bool(relative)
    files: dict[Place, str] = {place: str(processor.file) for place, processor in _processors(checkpoint).items()}
    sources: dict[Place, str] = {"policy": str(policy), **files}
    if recorded is not None:
        sources["dataset"] = str(recorded.root)
    if robot is not None:
        sources["robot"] = robot.robot
    if robot is not None and robot.unread:
        unread.append(robot.unread)
    config = checkpoint.config
    given = task if task is not None else (robot.task if robot is not None else None)
    wiring = Wiring(
        policy=str(config.get("type", "")),
        sources=sources,
        wires=wires,
        order=_order(checkpoint),
        engine=robot.engine if robot is not None else None,
        rename=renamed,
        weights=_weights(checkpoint),
        cameras=_cameras(config, wires),
        empty_cameras=_empty_cameras(config),
        timing=_timing(config, recorded, robot),
        prompt=read_prompt(checkpoint, given, recorded.tasks if recorded is not None else []),
        unknown_fields=unknown,
        clips=config.get("clip_sample_range") if config.get("clip_sample") else _BOUNDS.get(str(config.get("type"))),
        # pi0_fast has the settings of Real-Time Chunking, and refuses them.
        guidable="rtc_config" in config and config.get("type") != "pi0_fast",
        compiled=bool(config.get("compile_model")),
        rollout_compiles=robot.compiles if robot is not None else None,
        orphans={
            place: [name for normaliser in processor.normalisers for name in checkpoint.orphans(normaliser)]
            for place, processor in _processors(checkpoint).items()
        },
        unread=unread,
        differences=[
            each
            for place, processor in _processors(checkpoint).items()
            for each in lacking_normalisation(config, place, processor.steps)
        ],
        normalises=any(processor.normalisers for processor in _processors(checkpoint).values()),
    )
    wiring.reach = reach(wiring, checkpoint, robot.limits if robot is not None else JointLimits())
    return wiring


def _processors(checkpoint: Checkpoint) -> dict[Place, Processor]:
    both: dict[Place, Processor | None] = {
        "preprocessor": checkpoint.preprocessor, "postprocessor": checkpoint.postprocessor,
    }  # fmt: skip
    return {place: processor for place, processor in both.items() if processor is not None}


def _wires(
    checkpoint: Checkpoint, recorded: DatasetFeatures | None, robot: Connected | None, renamed: Mapping[str, str]
) -> list[WiredFeature]:
    """Return the policy's features first, in its order, then those that only another place has."""
    ends: dict[str, dict[Place, Feature]] = {}
    for side in ("input_features", "output_features"):
        for name, described in (checkpoint.config.get(side) or {}).items():
            ends.setdefault(name, {})["policy"] = _feature_from_config(name, described)
    for place, processor in _processors(checkpoint).items():
        for normaliser in processor.normalisers:
            for name, described in normaliser.features.items():
                if name == "action" and place == "preprocessor":
                    continue  # at inference, the preprocessor sees none
                feature = _feature_from_config(name, described)
                feature.normalisation = Normalisation(
                    mode=str(normaliser.modes.get(str(described.get("type")), "IDENTITY")),
                    statistics=normaliser.statistics.get(name, {}),
                )
                ends.setdefault(name, {})[place] = feature
    others: list[tuple[Place, Mapping[str, Feature]]] = []
    if recorded is not None:
        others.append(("dataset", recorded.features))
    if robot is not None:
        others.append(("robot", robot.features))
    for place, features in others:
        for name, feature in features.items():
            ends.setdefault(renamed.get(name, name), {})[place] = feature
    return [
        WiredFeature(name=name, kind=next(iter(places.values())).kind, ends=places) for name, places in ends.items()
    ]


def _feature_from_config(name: str, described: Mapping[str, Any]) -> Feature:
    kind = _KINDS.get(str(described.get("type")), "other")
    return Feature(name=name, kind=kind, shape=[int(size) for size in described.get("shape") or []])


def _order(checkpoint: Checkpoint) -> list[str]:
    names = checkpoint.config.get("action_feature_names")
    if not names and checkpoint.preprocessor is not None:
        names = (checkpoint.preprocessor.config("relative_actions_processor") or {}).get("action_names")
    return [str(name) for name in names or []]


def _weights(checkpoint: Checkpoint) -> Weights | None:
    if checkpoint.names is None:
        return None
    return Weights(
        tensors=len(checkpoint.names),
        nan=checkpoint.nan,
        statistics=checkpoint.statistics_in_weights,
        compiled=checkpoint.compiled_names,
    )


def _cameras(config: Mapping[str, Any], wires: list[WiredFeature]) -> list[Camera]:
    cameras = []
    for wire in wires:
        end = wire.ends.get("robot") or wire.ends.get("dataset") or wire.ends.get("policy")
        if wire.kind != "image" or "policy" not in wire.ends or end is None or len(end.shape) != 3:
            continue
        height, width = end.shape[1:]
        resized, cropped = _size(config, _RESIZED), _size(config, _CROPPED)
        if resized is not None and cropped is None and 0 < float(config.get("crop_ratio") or 1.0) < 1:
            share = float(config["crop_ratio"])
            cropped = (int(resized[0] * share), int(resized[1] * share))
        seen_of = resized or (height, width)
        area = cropped[0] * cropped[1] / (seen_of[0] * seen_of[1]) if cropped is not None and all(seen_of) else 1.0
        cameras.append(
            Camera(name=wire.name, source=end.name, height=height, width=width, resized=resized, cropped=cropped,
                   seen_share=min(area, 1.0))
        )  # fmt: skip
    return cameras


def _empty_cameras(config: Mapping[str, Any]) -> list[str]:
    """Return the images that the config itself adds, as many as ``empty_cameras`` says: LeRobot masks them."""
    count = config.get("empty_cameras")
    names = [f"observation.images.empty_camera_{number}" for number in range(count if isinstance(count, int) else 0)]
    return [name for name in names if name in (config.get("input_features") or {})]


def _size(config: Mapping[str, Any], names: tuple[str, ...]) -> tuple[int, int] | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, list) and len(value) == 2:
            return int(value[0]), int(value[1])
    return None


def _timing(config: Mapping[str, Any], recorded: DatasetFeatures | None, robot: Connected | None) -> Timing:
    chunk = next((int(config[name]) for name in _LENGTHS if config.get(name)), None)
    observed = int(config.get("n_obs_steps") or 1)
    steps_field = next((name for name in _STEPS if isinstance(config.get(name), int)), "")
    # A policy with a horizon predicts actions from its first observation on (LeRobot's diffusion and its kin).
    reach = int(config["horizon"]) - observed + 1 if config.get("horizon") else chunk
    return Timing(
        chunk=chunk,
        executed=config.get("n_action_steps"),
        most_executed=reach,
        observed=observed,
        execution_horizon=robot.execution_horizon if robot is not None else None,
        data_fps=recorded.fps if recorded is not None else None,
        loop_fps=robot.fps if robot is not None else None,
        camera_fps=robot.camera_fps if robot is not None else {},
        averages=config.get("temporal_ensemble_coeff"),
        steps=config.get(steps_field) if steps_field else None,
        steps_field=steps_field,
    )


def _unknown_fields(config: Mapping[str, object]) -> tuple[list[str], list[str]]:
    kind = str(config.get("type", ""))
    try:
        types = registries.choices(registries.POLICY)
        if kind not in types:
            return [], [f"the fields of config.json are not judged: no policy of the type '{kind}' is installed"]
        known = fields(types[kind])
    except UnreadableSourceError as error:
        return [], [f"the fields of config.json are not judged: those of '{kind}' cannot be read: {error}"]
    return sorted(name for name in config if name not in known and name not in _ADDED), []
