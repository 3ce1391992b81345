"""Inputs: fewer frames of a clip, smaller images, and images that are prepared on the device.

Another input gives another answer, so the first two are lossy. No comparison of outputs shows what they cost in
accuracy: that takes an evaluation on the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from strobe.core.errors import UserError, error_line
from strobe.core.families.capabilities import Backbone, InputFacts
from strobe.core.measure.components import share
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import ActingSubject, Subject
from strobe.core.timeline.sections import recording, section
from strobe.core.treatments.switch import Switch, entry
from strobe.core.treatments.treatment import FOR_INFERENCE, Spec, Treatment, Undo
from strobe.lerobot.config_fields import require_policy
from strobe.vision.model_subject import ModelSubject

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject

_IMAGE_DIMENSIONS = 4  # the least that an observation's images have: batch, channels, height, width
_WORTHWHILE = 0.02  # share of a call from which its preprocessing is worth a try


@dataclass
class FewerFrames(Treatment, key="frames"):
    """``count`` frames of each clip of a video backbone: the last one of each of as many equal stretches."""

    count: int
    phases = FOR_INFERENCE
    changes_input = True

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.count)

    def apply(self, subject: Subject) -> Undo:
        if not isinstance(subject, ModelSubject) or not subject.model.video:
            raise UserError(f"{subject.info.name} has no clips: frames is for video backbones")
        model, clips = subject.model, subject.clips
        tubelet = getattr(model.config, "tubelet_size", 1)
        tubelet = tubelet[0] if isinstance(tubelet, list | tuple) else tubelet
        if self.count > model.frames:
            raise UserError(f"frames={self.count}: the clips have {model.frames}")
        if self.count % tubelet:
            raise UserError(f"frames={self.count} is not divisible by {tubelet}, the frames that make one token")
        chosen = evenly(model.frames, self.count)
        return _set_attributes((model, "frames", self.count), (clips, "chosen", chosen))


def evenly(length: int, count: int) -> tuple[int, ...]:
    """Return the last of each of ``count`` equal stretches of ``length`` frames: the newest is always among them.

    >>> evenly(16, 4)
    (3, 7, 11, 15)
    """
    return tuple((step + 1) * length // count - 1 for step in range(count))


@dataclass
class OtherImages(Treatment, key="images"):
    """Images of another size: ``height`` × ``width``, or with ``height`` alone that many pixels on the shorter side.

    A backbone's clips are squares, so there ``height`` is the side. A policy's cameras keep their shape. What a policy
    does to its images itself (Diffusion's resizing and cropping) is scaled by the same factor.
    """

    height: int
    width: int | None = None
    _scaled: list[_Scaled] | None = field(default=None, init=False, repr=False)
    _keys: tuple[str, ...] = field(default=(), init=False, repr=False)
    phases = FOR_INFERENCE
    changes_input = True

    def traits(self) -> TreatmentTraits:
        value = str(self.height) if self.width is None else f"{self.height}x{self.width}"
        return TreatmentTraits(key=self.key, value=value)

    def apply(self, subject: Subject) -> Undo:
        if isinstance(subject, ModelSubject):
            return self._resize_model_images(subject)
        if isinstance(subject, ActingSubject):
            return self._resize_policy_images(require_policy(subject))
        raise UserError(f"{subject.info.name} has no images")

    def _resize_model_images(self, subject: ModelSubject) -> Undo:
        model = subject.model
        if self.width not in (None, self.height):
            raise UserError(f"{model.info.name} needs square images: images={self.height}")
        backbone = subject.family.get(Backbone)
        if backbone is None or backbone.resized is None:
            if any(hasattr(model.config, name) for name in ("image_size", "crop_size")):
                raise UserError(
                    f"{model.info.name} is built for images of {model.img_size} pixels: use "
                    f"--model.img_size={self.height}"
                )
            return _set_attributes((model, "img_size", self.height))
        patch = model.config.patch_size
        if self.height % patch:
            raise UserError(f"images={self.height} is not divisible by the patch size {patch}")
        return _set_attributes((model, "img_size", self.height), *backbone.resized(subject.module, self.height, patch))

    def _resize_policy_images(self, subject: PolicySubject) -> Undo:
        config: Any = subject.policy.config
        facts = InputFacts.from_family(subject.family)
        if not facts.any_image_size:
            fixed = getattr(config, facts.image_size, None)
            size = f" of {fixed[0]}×{fixed[1]}" if fixed else ""
            raise UserError(f"{config.type}'s vision tower is built for images{size}: so its images cannot be smaller")
        if not config.image_features:
            raise UserError(f"{subject.info.name} has no cameras")
        self._keys = tuple(config.image_features)
        if self._scaled is None:
            self._scaled = list(self._scalings(subject))
        stack = ExitStack()
        try:
            for scaled in self._scaled:
                stack.callback(scaled.install())
            resized = partial(_resize_images, keys=self._keys, sides=self.sides)
            stack.callback(_wrap_preprocessor(subject, lambda prepare, observation: resized(prepare(observation))))
        except BaseException:
            stack.close()
            raise
        return stack.close

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Return the new height and width of an image of ``height`` × ``width``."""
        if self.width is not None:
            return self.height, self.width
        scale = self.height / min(height, width)
        return max(1, round(height * scale)), max(1, round(width * scale))

    def _scalings(self, subject: PolicySubject) -> Iterable[_Scaled]:
        encoders = [module for module in subject.module.modules() if hasattr(getattr(module, "pool", None), "pos_grid")]
        if not encoders:
            return
        with recording(None), torch.no_grad():
            image = subject.loaded.preprocessor(subject.observation(0))[self._keys[0]]
            height, width = image.shape[-2:]
            wanted = self.sides(height, width)
            for encoder in encoders:
                yield _Scaled.from_encoder(encoder, image.shape[-3], (height, width), wanted)


@dataclass(eq=False)
class _Scaled:
    """One of Diffusion's image encoders (`DiffusionRgbEncoder`), with all that it was built for scaled."""

    encoder: Any
    sizes: list[tuple[Any, tuple[int, int]]]  # its transforms
    grid: Tensor  # of the feature map's coordinates, (places, 2)
    map: tuple[int, int]

    @classmethod
    def from_encoder(cls, encoder: Any, channels: int, before: tuple[int, int], wanted: tuple[int, int]) -> _Scaled:
        transforms = [t for t in (getattr(encoder, "resize", None), getattr(encoder, "center_crop", None)) if t]
        sizes, last = [], wanted
        for transform in transforms:
            height, width = _pair(transform.size)
            last = max(1, round(height * wanted[0] / before[0])), max(1, round(width * wanted[1] / before[1]))
            sizes.append((transform, last))
        weight = next(encoder.backbone.parameters())
        empty = torch.zeros(1, channels, *last, dtype=weight.dtype, device=weight.device)
        try:
            features = encoder.backbone(empty).shape[-2:]
        except (RuntimeError, ValueError) as error:
            raise UserError(f"images of {last[0]}×{last[1]} are too small for the image encoder") from error
        # As LeRobot makes it, with numpy's rounding.
        rows, columns = torch.linspace(-1, 1, features[0]), torch.linspace(-1, 1, features[1])
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        return cls(encoder, sizes, torch.stack([x.flatten(), y.flatten()], 1), (features[0], features[1]))

    def install(self) -> Undo:
        pool: nn.Module = self.encoder.pool
        own = pool._buffers["pos_grid"]
        assert own is not None
        self.grid = self.grid.to(own.device, own.dtype)
        pool._buffers["pos_grid"] = self.grid
        values = [(transform, "size", size) for transform, size in self.sizes]
        undo = _set_attributes((pool, "_in_h", self.map[0]), (pool, "_in_w", self.map[1]), *values)

        def back() -> None:
            undo()
            pool._buffers["pos_grid"] = own

        return back


def _resize_images(batch: Any, keys: Iterable[str], sides: Callable[[int, int], tuple[int, int]]) -> Any:
    def one(images: Tensor) -> Tensor:
        flat = images.flatten(0, -4) if images.dim() > 3 else images[None]
        size = sides(*images.shape[-2:])
        smaller = interpolate(flat, size, mode="bilinear", antialias=True, align_corners=False)
        return smaller.reshape(*images.shape[:-2], *size)

    with section("smaller images"):
        return {**batch, **{key: one(batch[key]) for key in keys if key in batch}}


class _Around:
    """A policy's preprocessor with other work around it. Other attributes are the preprocessor's own."""

    def __init__(self, inner: Any, call: Callable[[Any, Any], Any]) -> None:
        self._inner, self._call = inner, call

    def __call__(self, observation: Any) -> Any:
        return self._call(self._inner, observation)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._inner, name)


def _wrap_preprocessor(subject: PolicySubject, call: Callable[[Any, Any], Any]) -> Undo:
    """Let ``call(preprocessor, observation)`` prepare the observations of ``subject``."""
    around = _Around(subject.loaded.preprocessor, call)
    return _set_attributes((subject.loaded, "preprocessor", around))


@dataclass
class OnDevice(Switch, key="preprocessing"):
    """Images go to the device before they are prepared, bytes as bytes, so that resizing and normalising run there.

    The state and the task stay where they are: steps of the preprocessor read them on the host.
    """

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        seeing = isinstance(subject, ModelSubject) or (
            subject.acting is not None and bool(getattr(subject.acting.policy.config, "image_features", None))
        )
        return seeing and subject.device.type != "cpu"

    def check_device(self, device: torch.device) -> None:
        if device.type == "cpu":
            raise UserError("preprocessing=device: a subject that computes on the CPU has its images already there")

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        if isinstance(subject, ModelSubject):
            return _set_attributes((subject, "on_device", True))
        return _wrap_preprocessor(require_policy(subject), partial(_prepare_on_device, subject.device))


def _prepare_on_device(device: torch.device, prepare: Callable[[Any], Any], observation: Any) -> Any:
    """Prepare ``observation`` with its images on ``device``. Bytes become numbers in [0, 1] there, as LeRobot has them.

    Raises UserError if a step of the preprocessor works only on the host.
    """

    def send_image(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() < _IMAGE_DIMENSIONS:
            return value
        there = value.to(device)
        return there.float() / 255 if there.dtype is torch.uint8 else there

    try:
        return prepare({name: send_image(value) for name, value in observation.items()})
    except (TypeError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        why = error_line(error, 200)
        raise UserError(f"preprocessing=device: a step of the preprocessor works only on the host: {why}") from error


def _preparing(now: Measurement) -> float:
    spent = share(now, "preprocessing")
    return spent if spent >= _WORTHWHILE else 0.0


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


def _set_attributes(*values: tuple[Any, str, Any]) -> Undo:
    """Set attributes, given as (owner, name, value); the result sets them back."""
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in values]
    for owner, name, value in values:
        vars(owner)[name] = value

    def undo() -> None:
        for owner, name, value in before:
            vars(owner)[name] = value

    return undo


def _make_frames(spec: Spec) -> FewerFrames:
    count = spec["frames"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UserError(f"frames={count}: must be a number of frames, 1 or more")
    return FewerFrames(count)


def _make_images(spec: Spec) -> OtherImages:
    match = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", str(spec["images"]).lower())
    if match is None:
        raise UserError(
            f"images={spec['images']}: must be the pixels of the shorter side, or HEIGHTxWIDTH, such as 192x256"
        )
    return OtherImages(int(match[1]), int(match[2]) if match[2] else None)


# No candidates: an optimizer must not decide what the policy gets to see.
FRAMES, IMAGES = entry("frames", _make_frames), entry("images", _make_images)
PREPROCESSING = OnDevice.entry(parts=("preprocessing",), saves=_preparing)
