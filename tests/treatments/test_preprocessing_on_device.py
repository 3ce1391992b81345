"""Images prepared on the device: bytes go up, the outputs stay within the guard, and nothing stays behind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.devices.emulated_device import EmulatedDevice, put, take
from support.suite.matrix import matrix
from torch import Tensor
from transformers import Siglip2ImageProcessor, VJEPA2VideoProcessor

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, ModelOptions, PolicyOptions
from strobe.vision import model_subject
from strobe.vision.model_subject import load_model


@contextmanager
def backbone_on_device(subject: Any) -> Iterator[EmulatedDevice]:
    """A backbone with its weights on the emulated device."""
    tensors = [*subject.module.parameters(), *subject.module.buffers()]
    with EmulatedDevice() as device:
        for tensor in tensors:
            put(tensor)
        try:
            yield device
        finally:
            for tensor in tensors:
                take(tensor)


def device_preprocessing_variant() -> Variant:
    return Variant("there", tuple(catalogue.compose(catalogue.parse("preprocessing=device"))))


def spread(plain: Tensor, treated: Tensor) -> float:
    """The root mean square of the difference, in deviations of the plain values."""
    return float((plain - treated).pow(2).mean().sqrt() / plain.std())


# Type → what resizes its frames: a class and its method, or a module and its function.
RESIZING = {
    "vjepa2": (VJEPA2VideoProcessor, "resize"),
    "siglip2_vision_model": (Siglip2ImageProcessor, "resize"),
    "vit": (model_subject, "interpolate"),
}


@pytest.mark.parametrize("kind", matrix(RESIZING))
def test_a_backbone_s_frames_are_resized_on_the_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = RESIZING[kind]
    own, resized = getattr(owner, name), list[str]()

    def resize(*given: Any, **options: Any) -> Any:
        [images] = [one for one in (*given, *options.values()) if isinstance(one, Tensor)]
        resized.append(images.device.type)
        return own(*given, **options)

    monkeypatch.setattr(owner, name, resize)
    subject = load_model(ModelOptions(type=kind, size="tiny"))
    call = subject.call("inference")
    with backbone_on_device(subject):
        plain = call(0)
        undo = device_preprocessing_variant().apply(subject)
        treated = call(0)
        undo()
        again = call(0)
    assert list(dict.fromkeys(resized)) == ["cpu", "cuda"]
    assert resized[-1] == "cpu", "it is reverted"
    assert torch.equal(plain, again)
    assert spread(plain, treated) < 0.02, "the guard of rounding"


@pytest.mark.parametrize("kind", matrix(["xvla", "act", "diffusion", "smolvla"]))
def test_a_policy_s_images_are_prepared_on_the_device(kind: str) -> None:
    flags = ["--device=cpu", *(["--num_inference_steps=2"] if kind == "diffusion" else [])]
    held = load_subject(PolicyOptions(type=kind, size="tiny", overrides=flags), InputOptions())
    with EmulatedDevice() as device, device.holding(held) as subject:
        plain = [subject.chunk(index) for index in range(2)]
        before = subject.loaded.preprocessor
        undo = device_preprocessing_variant().apply(subject)
        treated = [subject.chunk(index) for index in range(2)]
        as_bytes = subject.observation(0)
        for name, value in as_bytes.items():
            if isinstance(value, Tensor) and value.dim() >= 4:
                as_bytes[name] = (value * 255).round().to(torch.uint8)
        raw = subject.act(as_bytes, subject.seed)
        copied = copy.deepcopy(subject.loaded.preprocessor)
        assert len(copied.steps) == len(before.steps)
        undo()
        assert subject.loaded.preprocessor is before
    assert all(spread(a, b) < 0.02 for a, b in zip(plain, treated, strict=True))
    assert spread(plain[0], raw) < 0.05, "bytes are the same picture, rounded to 256 values"


def test_a_step_that_works_on_the_host_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    held = load_tiny_subject("act", inputs=InputOptions())
    step = type(held.loaded.preprocessor.steps[0])
    own = step.__call__

    def process_on_host(self: Any, transition: Any) -> Any:
        for value in transition["observation"].values():
            if isinstance(value, Tensor):
                value.numpy()
        return own(self, transition)

    monkeypatch.setattr(step, "__call__", process_on_host)
    with EmulatedDevice() as device, device.holding(held) as subject:
        subject.chunk(0)
        undo = device_preprocessing_variant().apply(subject)
        with pytest.raises(UserError, match=r"a step of the preprocessor works only on the host: .*numpy"):
            subject.chunk(0)
        undo()
        subject.chunk(0)


def test_it_is_refused_on_a_cpu_and_no_candidate_there() -> None:
    subject = load_model(ModelOptions(type="vjepa2", size="tiny"))
    with pytest.raises(UserError, match="computes on the CPU has its images already there"):
        device_preprocessing_variant().apply(subject)
    [entry] = [entry for entry in catalogue.own_entries() if entry.key == "preprocessing"]
    assert not entry.candidates(subject)
    with backbone_on_device(subject):
        assert entry.candidates(subject) == [{"preprocessing": "device"}]
