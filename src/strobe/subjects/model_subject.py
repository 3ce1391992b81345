"""A vision or video backbone with its clips, and the call that a study runs and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from strobe.errors import UserError
from strobe.results.subject import SubjectInfo
from strobe.subjects import anatomies  # noqa: F401  registers them
from strobe.subjects.anatomy import Anatomy, along_blocks, registered
from strobe.subjects.clips import Clips
from strobe.subjects.models import VJEPA2, Model
from strobe.subjects.subject import ITERATION, Facts, Phase
from strobe.timeline.clock import synchronise
from strobe.timeline.probe import Hook
from strobe.timeline.sections import section

# A ViT-L's features are 8 MB a clip, and every iteration's are kept to compare variants by.
TOKENS_KEPT = 128

Prepare = Callable[[Tensor], Tensor]


@dataclass
class ModelSubject:
    """A loaded backbone and what it is fed.

    ``predictor``: also run V-JEPA 2's predictor, over all tokens; features need the encoder only. ``pooled`` is the
    mean of the latest call's features over their tokens, ``(clips, width)``: what calls of unlike clips have in common.
    """

    model: Model
    clips: Clips
    predictor: bool = False

    def __post_init__(self) -> None:
        if self.predictor and self.model.info.kind != VJEPA2:
            raise UserError(f"--model.predictor is for vjepa2: {self.model.info.kind} has none")
        self.anatomy: Anatomy = registered(self.model.info.kind) or along_blocks(self.module)
        self.model.info.anatomy = self.anatomy.name
        self.model.info.inputs = self.clips.description
        self._prepare, self._steps = _preprocessing(self.model)
        self._tokens: int | None = None
        self.pooled: Tensor | None = None

    @property
    def module(self) -> torch.nn.Module:
        return self.model.module

    @property
    def info(self) -> SubjectInfo:
        return self.model.info

    @property
    def notes(self) -> list[str]:
        return self.model.notes

    @property
    def compiled(self) -> Sequence[tuple[str, str]]:
        return self.anatomy.compiled or (("", "forward"),)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """``batch_size`` clips from their frames to features, as a function of the iteration's index.

        Sections: decode (of a video file), preprocessing, model. Raises UserError for a training phase.
        """
        if phase != "inference":
            raise UserError(f"a backbone without a policy has no loss: no {phase}, only inference")
        clips = self.clips

        def run(index: int) -> Tensor:
            frames = None if clips.decoding else clips.batch(index, batch_size)
            with section(ITERATION), torch.no_grad():
                if frames is None:
                    with section("decode"):
                        frames = clips.batch(index, batch_size)
                with section("preprocessing"):
                    pixels = self._pixels(frames)
                with section("model"):
                    features = self._features(pixels)
                synchronise(self.device)
            return self._kept(features, batch_size)

        return run

    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Where the anatomy attaches, and below its first level the steps of the preprocessing."""
        return self.anatomy.hooks(self.module, training=False, depth=depth) + (self._steps if depth > 1 else [])

    def facts(self, phase: Phase, batch_size: int) -> Facts:
        """What a call works on; the tokens are those that the model gave back per clip."""
        return {
            "batch size": batch_size,
            "frames per clip": self.model.frames,
            "img size": self.model.img_size,
            "tokens": self._tokens,
            "predictor": True if self.predictor else None,
        }

    def _pixels(self, frames: Tensor) -> Tensor:
        dtype = next(self.module.parameters()).dtype
        return self._prepare(frames).to(self.device, dtype)

    def _features(self, pixels: Tensor) -> Tensor:
        options: dict[str, Any] = {} if self.info.kind != VJEPA2 else {"skip_predictor": not self.predictor}
        if not self.model.video:
            pixels = pixels.flatten(0, 1)
        try:
            output = self.module(**{str(self.module.main_input_name): pixels}, **options)
        except (TypeError, ValueError) as error:
            raise UserError(f"'{self.info.kind}' does not run on clips alone: {str(error).splitlines()[0]}") from error
        if getattr(output, "predictor_output", None) is not None:
            return output.predictor_output.last_hidden_state
        features = getattr(output, "last_hidden_state", None)
        return output[0] if features is None else features

    def _kept(self, features: Tensor, batch_size: int) -> Tensor:
        if features.ndim == 4:  # a feature map's places are its tokens
            features = features.flatten(2).transpose(1, 2)
        if features.ndim == 3:
            self._tokens = features.shape[0] * features.shape[1] // batch_size
            self.pooled = features.float().mean(1)
            features = features[:, :: max(features.shape[1] // TOKENS_KEPT, 1)]
        return features


def _preprocessing(model: Model) -> tuple[Prepare, list[Hook]]:
    """Frames → pixels, and the probes on its steps: V-JEPA 2's own processor, for others the same steps in torch."""
    if model.info.kind == VJEPA2:
        return _vjepa2(model)
    model.notes.append(
        "preprocessing is Strobe's own: shorter side resized and centre cropped to the model's size, ImageNet's mean "
        "and deviation"
    )
    return lambda frames: _resized(frames, model.img_size), []


def _vjepa2(model: Model) -> tuple[Prepare, list[Hook]]:
    from transformers import VJEPA2VideoProcessor

    files = ("video_preprocessor_config.json", "preprocessor_config.json")
    options: dict[str, Any] = {"crop_size": model.img_size}
    if model.folder is not None and any((model.folder / name).is_file() for name in files):
        processor: Any = VJEPA2VideoProcessor.from_pretrained(model.folder, **options)
    else:
        processor = VJEPA2VideoProcessor(**options)
    hooks = [Hook(processor, "resize", "resize"), Hook(processor, "center_crop", "centre crop")]
    hooks += [Hook(processor, "rescale_and_normalize", "rescale and normalise")]
    built_for = model.img_size

    def prepare(frames: Tensor) -> Tensor:
        side, sizes = model.img_size, {}
        if side != built_for:  # in its own proportion of resizing to cropping
            sizes = {"size": {"shortest_edge": int(side * 256 / 224)}, "crop_size": {"height": side, "width": side}}
        return processor(list(frames), return_tensors="pt", **sizes)["pixel_values_videos"]

    return prepare, hooks


def _resized(frames: Tensor, side: int) -> Tensor:
    batch, length, channels, height, width = frames.shape
    scale = side / min(height, width)
    size = (max(round(height * scale), side), max(round(width * scale), side))
    pixels = interpolate(frames.flatten(0, 1).float(), size, mode="bilinear", antialias=True)
    top, left = (size[0] - side) // 2, (size[1] - side) // 2
    pixels = pixels[..., top : top + side, left : left + side] / 255
    mean = pixels.new_tensor((0.485, 0.456, 0.406)).view(3, 1, 1)
    deviation = pixels.new_tensor((0.229, 0.224, 0.225)).view(3, 1, 1)
    return ((pixels - mean) / deviation).view(batch, length, channels, side, side)
