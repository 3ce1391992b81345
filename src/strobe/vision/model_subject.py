"""A vision or video backbone with its clips, and the call that a study runs and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Backbone
from strobe.core.families.family import Family
from strobe.core.families.modules import build_block_family
from strobe.core.families.registry import find_family, list_types_having
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import BackboneTraits, Traits
from strobe.core.results.units import metric
from strobe.core.subjects.subject import ITERATION, Abilities, InputSource, Latest, Phase, count, digest
from strobe.core.timeline.clock import synchronise
from strobe.core.timeline.probe import Hook
from strobe.core.timeline.sections import section
from strobe.lerobot.policies.options import InputOptions, ModelOptions
from strobe.vision import backbones, clips
from strobe.vision.backbones import Model
from strobe.vision.clips import Clips

Pixels = Tensor | dict[str, Tensor]
Prepare = Callable[[Tensor], Pixels]


@dataclass
class ModelSubject(Abilities):
    """A loaded backbone and its clips.

    Args:
        predictor: also run the predictor of a backbone that has one (V-JEPA 2), over all tokens; features need the
            encoder only.
        on_device: whether frames go to the device as bytes and are preprocessed there, not on the host.
    """

    model: Model
    clips: Clips
    predictor: bool = False
    on_device: bool = False

    def __post_init__(self) -> None:
        self._family = find_family(self.model.info.kind) or build_block_family(self.module)
        if self.predictor and not self._predictor:
            having = ", ".join(list_types_having(lambda family: _backbone(family).predictor))
            raise UserError(f"--model.predictor is for {having}: {self.model.info.kind} has none")
        self.model.info.anatomy = self.family.name
        self.model.info.inputs = self.clips.description
        self._count_what_runs()
        self._prepare, self._steps = _preprocessing(self.model, self.family)
        self._tokens: int | None = None

    @property
    def family(self) -> Family:
        return self._family

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
    def compiled_methods(self) -> Sequence[tuple[str, str]]:
        return self.family.compiled or (("", "forward"),)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def input_source(self) -> InputSource:
        """The kind and digest of its clips."""
        return InputSource("data", digest([self.clips.batch(0, 1)])) if self.clips.recorded else InputSource("made up")

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """Return a function of the iteration's index that computes features of ``batch_size`` clips from their frames.

        Sections: decode (of a video file), preprocessing, model. Raises UserError for a training phase.
        """
        if phase != "inference":
            raise UserError(f"a backbone has no loss: {phase} is not possible, only inference")
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
            return self._pool(features, batch_size)

        return run

    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Return the hooks of the family's probes, and below the first level those of the preprocessing's steps."""
        return self.family.hooks(self.module, training=False, depth=depth) + (self._steps if depth > 1 else [])

    def traits(self, phase: Phase, batch_size: int) -> Traits:
        """Return the sizes of what a call works on; ``tokens`` are those that the model returned per clip."""
        backbone = BackboneTraits(
            frames_per_clip=self.model.frames,
            image_size=self.model.img_size,
            tokens=self._tokens,
            predictor=True if self.predictor else None,
        )
        return Traits(batch_size=batch_size, backbone=backbone)

    def _count_what_runs(self) -> None:
        idle = getattr(self.module, "predictor", None) if self._predictor and not self.predictor else None
        if idle is None:
            return
        own = count(self.module)
        for name, value in count(*(child for child in self.module.children() if child is not idle)).items():
            setattr(self.model.info, name, value)
        left_out = own["parameters"] - self.model.info.parameters
        self.model.notes.append(
            f"{metric(left_out)} parameters of the predictor, which does not run, are not counted: --model.predictor"
        )

    @property
    def _predictor(self) -> str | None:
        return _backbone(self.family).predictor

    def _pixels(self, frames: Tensor) -> dict[str, Tensor]:
        dtype = next(self.module.parameters()).dtype
        pixels = self._prepare(frames.to(self.device) if self.on_device else frames)
        if isinstance(pixels, Tensor):
            pixels = {str(self.module.main_input_name): pixels if self.model.video else pixels.flatten(0, 1)}
        return {
            name: value.to(self.device, dtype if value.is_floating_point() else None) for name, value in pixels.items()
        }

    def _features(self, pixels: dict[str, Tensor]) -> Tensor:
        options: dict[str, object] = {self._predictor: not self.predictor} if self._predictor else {}
        try:
            output = self.module(**pixels, **options)
        except (TypeError, ValueError) as error:
            raise UserError(f"'{self.info.kind}' does not run on clips alone: {str(error).splitlines()[0]}") from error
        if getattr(output, "predictor_output", None) is not None:
            return output.predictor_output.last_hidden_state
        # The features of a tower are its merger's output.
        merged = _backbone(self.family).tower is not None
        features = getattr(output, "pooler_output" if merged else "last_hidden_state", None)
        return output[0] if features is None else features

    def _pool(self, features: Tensor, batch_size: int) -> Tensor:
        if features.ndim == 2:  # the tokens of all images in a row
            features = features.unflatten(0, (batch_size, -1))
        if features.ndim == 4:  # the places of a feature map count as tokens
            features = features.flatten(2).transpose(1, 2)
        if features.ndim == 3:
            self._tokens = features.shape[0] * features.shape[1] // batch_size
            self.latest = Latest(pooled=features.float().mean(1))
        return features


def _backbone(family: Family) -> Backbone:
    return family.get(Backbone) or Backbone({}, "")


def _preprocessing(model: Model, family: Family) -> tuple[Prepare, list[Hook]]:
    """Return frames → pixels, and the probes on its steps: the family's processor, else the same steps in torch."""
    if (own := _backbone(family).preprocessing) is not None:
        return own(model)
    model.notes.append(
        "preprocessing is Strobe's own: shorter side resized and centre cropped to the model's size, ImageNet's mean "
        "and deviation"
    )
    return lambda frames: _resize_frames(frames, model.img_size), []


def _resize_frames(frames: Tensor, side: int) -> Tensor:
    batch, length, channels, height, width = frames.shape
    scale = side / min(height, width)
    size = (max(round(height * scale), side), max(round(width * scale), side))
    pixels = interpolate(frames.flatten(0, 1).float(), size, mode="bilinear", antialias=True)
    row, column = (size[0] - side) // 2, (size[1] - side) // 2
    pixels = pixels[..., row : row + side, column : column + side] / 255
    mean = torch.tensor((0.485, 0.456, 0.406), device=pixels.device).view(3, 1, 1)
    deviation = torch.tensor((0.229, 0.224, 0.225), device=pixels.device).view(3, 1, 1)
    return ((pixels - mean) / deviation).view(batch, length, channels, side, side)


def load_model(
    options: ModelOptions, source: InputOptions | None = None, *, device: str | None = None, seed: int = 0
) -> ModelSubject:
    """Load a backbone's checkpoint, or build its type with random weights, with clips.

    Args:
        source: where the clips come from; synthetic ones by default.
        device: cpu, cuda, cuda:1, mps; None for the CPU.
        seed: seed of weights and clips.

    Raises:
        UserError: a part cannot be loaded, or parts do not fit together.
    """
    source = source or InputOptions()
    size, shape = options.size, {"img_size": options.img_size, "num_frames": options.num_frames}
    config = backbones.build_config(
        path=options.path, kind=options.type, size=size, overrides=options.overrides, **shape
    )
    model = backbones.load(config, path=options.path, size=size, dtype=options.dtype, device=device, seed=seed, **shape)
    if source.video is not None:
        made = clips.from_video(source.video, model.frames)
    elif source.dataset is not None:
        dataset = source.dataset
        made = clips.from_dataset(dataset.root, dataset.repo_id, model.frames, episodes=dataset.episodes)
    else:
        frame = source.image_size or (clips.TINY_FRAME if size == "tiny" else clips.FRAME)
        made = clips.synthetic(model.frames, frame, seed=seed)
    return ModelSubject(model, made, options.predictor)
