"""Vision and video backbones of transformers: from a folder or the Hub, or of a type with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from strobe.core.devices.accelerators import check_device, generators_restored
from strobe.core.errors import UserError, nearest
from strobe.core.families.capabilities import Backbone
from strobe.core.families.registry import find_family
from strobe.core.results import units
from strobe.core.results.subject import SubjectInfo
from strobe.core.subjects.subject import count
from strobe.lerobot.policies import checkpoints
from strobe.lerobot.policies.build import FastBuildError, build_fast
from strobe.lerobot.policies.standins import add_zoo_line
from strobe.lerobot.quiet import quiet
from strobe.lerobot.schema.registries import check_backbone_fields

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_TINY = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 128}
_TINY_STAGES = {"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 2, 1]}  # stages of a convolutional net

# What configs call the side of the image and the number of frames.
_SIDE = ("image_size", "crop_size")
_LENGTH = ("num_frames", "frames_per_clip")
_PIXELS = ("pixel_values", "pixel_values_videos")


@dataclass
class Model:
    """A backbone in eval mode on its device, and the shape of its inputs."""

    module: nn.Module
    config: Any
    info: SubjectInfo
    img_size: int
    frames: int
    video: bool  # takes (batch, frames, 3, height, width); else each frame of a clip is an image of the batch
    folder: Path | None = None
    notes: list[str] = field(default_factory=list)


def build_config(
    *,
    path: str | None = None,
    kind: str | None = None,
    size: str | None = None,
    img_size: int | None = None,
    num_frames: int | None = None,
    overrides: Sequence[str] = (),
) -> Any:
    """Return transformers' config of a checkpoint or a type, with the flags applied. Nothing heavy is built.

    Args:
        overrides: further fields of the config, ``--name=value``.

    Raises:
        UserError: an unknown type, size or field; a folder that is no model; sizes that do not fit the patches.
    """
    if path is not None:
        if size is not None:
            raise UserError("--model.size is only for random weights: the model in --model.path has a fixed size")
        config = _read(checkpoints.locate(path, what="model"), path)
    else:
        config = _config_of_type(kind or "", size)
    _check_kind(config)
    frames = num_frames
    if path is None and size != "tiny" and (known := _backbone(_model_type(config))) is not None:
        frames = num_frames or known.frames
    fields = {name: value for name, value in ((_first(config, _SIDE), img_size), (_first(config, _LENGTH), frames))
              if name is not None and value is not None}  # fmt: skip
    known = {item.name for item in dataclasses.fields(type(config))}
    for override in overrides:
        name, _, raw = override.removeprefix("--").partition("=")
        check_backbone_fields([name], known)
        fields[name] = yaml.safe_load(raw)
    for name, value in fields.items():
        try:
            setattr(config, name, value)
        except Exception as error:  # transformers' own checks of a field's type
            raise UserError(f"--model.{name}={value}: {_last_line(error)}") from None
    _check_shape(config, img_size, num_frames)
    return config


def load(
    config: object,
    *,
    path: str | None = None,
    size: str | None = None,
    img_size: int | None = None,
    num_frames: int | None = None,
    dtype: str | None = None,
    device: str | None = None,
    seed: int = 0,
) -> Model:
    """Build the model of ``config`` with random weights, or read it from ``path``.

    Raises:
        UserError: weights that do not fit the config, an unknown dtype, a missing device.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"--model.dtype={dtype}: {nearest(dtype, DTYPES)}")
    check_device(device)
    where, kind, notes = device or "cpu", _model_type(config), []
    folder = checkpoints.locate(path, what="model") if path is not None else None
    with quiet() as warned:
        if folder is not None:
            module = _weights(folder, config, dtype, notes).to(where)
        else:
            module = _random(config, DTYPES[dtype or "float32"], where, seed, notes)
    source = checkpoints.source(folder) if folder is not None else "random weights"
    if folder is not None:
        name = source.rstrip("/").split("/")[-1]
    else:
        known = _backbone(kind)
        name = f"{kind} {size or (known.usual if known is not None else '')}".strip()
    info = SubjectInfo(
        name=name,
        kind=kind,
        source=source,
        size="tiny" if size == "tiny" else "full",
        inputs="",
        **count(module),
    )
    length = _first(config, _LENGTH)
    return Model(
        module=module.eval(),
        config=config,
        info=info,
        img_size=_side(config) or img_size or 224,  # convolutional nets take any
        frames=getattr(config, length) if length else num_frames or 1,
        video=length is not None,
        folder=folder,
        notes=notes + [note for note in warned if note not in notes],
    )


def known_kinds() -> list[str]:
    """Return the model types that transformers lists as taking images or video."""
    from transformers.models.auto import modeling_auto

    listed = {*modeling_auto.MODEL_FOR_IMAGE_MAPPING_NAMES, *modeling_auto.MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES}
    return sorted({*listed, "clip_vision_model"})


def _backbone(kind: str) -> Backbone | None:
    family = find_family(kind)
    return family.get(Backbone) if family is not None else None


def _model_type(config: Any) -> str:
    """Return the type of a model. From transformers 5.2x on the tower of a Qwen-VL has one of its own, with _vision."""
    whole = config.model_type.removesuffix("_vision")
    return whole if _backbone(whole) is not None else config.model_type


def _read(folder: Path, path: str) -> Any:
    from transformers import AutoConfig

    try:
        with quiet():
            return _tower(AutoConfig.from_pretrained(folder))
    except (ValueError, OSError, KeyError) as error:
        raise UserError(
            f"{path} is not a model of transformers: its config.json has no known model_type; for a policy of "
            "LeRobot give --policy.path"
        ) from error


def _config_of_type(kind: str, size: str | None) -> Any:
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        raise UserError(f"no model type '{kind}': {nearest(kind, known_kinds())}")
    known, whole = _backbone(kind), CONFIG_MAPPING[kind]
    sizes = list(known.sizes) if known is not None else ["full", "tiny"]
    if size is not None and size not in sizes:
        raise UserError(f"--model.size={size}: {nearest(size, sizes)}")
    if known is not None:
        chosen = known.sizes[size or known.usual]
        return _tower(whole(**({"vision_config": chosen} if known.tower is not None else chosen)))
    config = _tower(whole())
    return _shrunken(config) if size == "tiny" else config


def _tower(config: object) -> Any:
    return getattr(config, "vision_config", config)


def _shrunken(config: Any) -> Any:
    known = {item.name for item in dataclasses.fields(type(config))}
    if _TINY_STAGES.keys() <= known:
        return type(config)(**_TINY_STAGES)
    if not _TINY.keys() - {"intermediate_size"} <= known:
        raise UserError(
            f"--model.size=tiny is not available for '{config.model_type}': set its own fields, as in "
            "--model.<field of its config>=…"
        )
    values = {name: value for name, value in _TINY.items() if name in known}
    patch = getattr(config, "patch_size", None)
    if "image_size" in known and isinstance(patch, int):
        values["image_size"] = 4 * patch
    return type(config)(**values)


@add_zoo_line
def _check_kind(config: Any) -> None:
    from transformers import MODEL_MAPPING

    kind = _model_type(config)
    if (known := _backbone(kind)) is not None and known.tower is not None:
        return
    try:
        choices: Any = MODEL_MAPPING[type(config)]
    except KeyError:
        raise UserError(f"transformers has no plain model of type '{kind}'") from None
    choice = choices[0] if isinstance(choices, tuple) else choices
    if choice.main_input_name not in _PIXELS or hasattr(config, "text_config"):
        raise UserError(f"'{kind}' needs other inputs than images or video: {nearest(kind, known_kinds())}")


def _check_shape(config: object, img_size: int | None, num_frames: int | None) -> None:
    for name, value in (("img_size", img_size), ("num_frames", num_frames)):
        if value is not None and value < 1:
            raise UserError(f"--model.{name}={value}: must be at least 1")
    side, patch = _side(config) or img_size, getattr(config, "patch_size", None)
    tubelet = getattr(config, "tubelet_size", None)
    if isinstance(tubelet, list | tuple):
        tubelet, patch = tubelet[0], tubelet[-1]
    if side is not None and isinstance(patch, int) and side % patch:
        hint = _multiples(side, patch)
        raise UserError(f"--model.img_size={side} is not divisible by the patch size {patch}: {hint}")
    length = _first(config, _LENGTH)
    frames = getattr(config, length) if length else None
    if frames is not None and isinstance(tubelet, int) and frames % tubelet:
        raise UserError(
            f"--model.num_frames={frames} is not divisible by the tubelet size {tubelet}: {_multiples(frames, tubelet)}"
        )


def _multiples(value: int, divisor: int) -> str:
    below = value // divisor * divisor
    return f"take {f'{below} or ' if below else ''}{below + divisor}"


def _random(config: object, dtype: torch.dtype, device: str, seed: int, notes: list[str]) -> nn.Module:
    from transformers import AutoModel

    kind = _model_type(config)

    def make() -> nn.Module:
        if (known := _backbone(kind)) is not None and known.tower is not None:
            return known.tower(kind)._from_config(config, dtype=dtype)
        return AutoModel.from_config(config, dtype=dtype)

    try:
        return build_fast(make, device, seed, known=True)
    except FastBuildError as error:
        notes.append(f"built in the usual, slower way: {error}")
        with generators_restored(torch.device(device)):
            torch.manual_seed(seed)
            return make().to(device)


def _weights(folder: Path, config: object, dtype: str | None, notes: list[str]) -> nn.Module:
    from transformers import AutoModel

    kind = _model_type(config)
    known, options = _backbone(kind), {}
    choice: Any = AutoModel
    if known is not None and known.tower is not None:
        choice, options = known.tower(kind), {"key_mapping": {known.weights: ""}}
    try:
        module, loading = choice.from_pretrained(
            folder, config=config, dtype=DTYPES[dtype] if dtype else "auto", output_loading_info=True, **options
        )
    except Exception as error:  # shapes, unreadable files: of many types, all of them about this folder
        raise UserError(f"the weights in {checkpoints.source(folder)} cannot be read: {_last_line(error)}") from error
    # A checkpoint with a classifier's head has no pooler, whose weights are not needed.
    missing = sorted(loading["missing_keys"])
    needed = [name for name in missing if "pooler" not in name]
    if needed:
        lack = f"{units.count(len(needed), 'weight')} {'is' if len(needed) == 1 else 'are'} missing"
        raise UserError(
            f"the weights in {checkpoints.source(folder)} do not fit {type(module).__name__} "
            f"({lack}, the first is {needed[0]})"
        )
    if missing:
        notes.append(f"the checkpoint has no weights for the pooler, whose {len(missing)} are random")
    return module


def _first(config: object, names: Sequence[str]) -> str | None:
    return next((name for name in names if hasattr(config, name)), None)


def _side(config: object) -> int | None:
    name = _first(config, _SIDE)
    side = getattr(config, name) if name else None
    return side[0] if isinstance(side, list | tuple) else side


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
