"""Autocast and the layout of 3-D convolutions in inference: the outputs stay within the guard, and nothing stays on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.suite.matrix import matrix
from torch import Tensor, nn

from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, ModelOptions, PolicyOptions
from strobe.vision.model_subject import load_model


def tiny(kind: str) -> Any:
    if kind in ("vjepa2", "qwen2_vl"):
        return load_model(ModelOptions(type=kind, size="tiny"))
    options = PolicyOptions(type=kind, size="tiny", overrides=["--device=cpu"])
    return load_subject(options, InputOptions(image_size=(64, 64)))


def run_treated(subject: Any, text: str) -> tuple[Tensor, set[torch.dtype]]:
    """Return a call's output under the treatments ``text``, and the dtypes that linear layers returned."""
    seen: set[torch.dtype] = set()
    layers = [module for module in subject.module.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_hook(lambda *given: seen.add(given[-1].dtype)) for layer in layers]
    undo = Variant("v", tuple(catalogue.compose(catalogue.parse(text)))).apply(subject) if text else lambda: None
    try:
        return subject.call("inference")(0), seen
    finally:
        undo()
        for hook in hooks:
            hook.remove()


def relative_difference(plain: Tensor, treated: Tensor) -> float:
    return float((plain.float() - treated.float()).pow(2).mean().sqrt() / plain.float().std())


@pytest.mark.parametrize("kind", matrix(["act", "vjepa2", "pi05"]))
def test_autocast_in_inference_casts_the_call_alone(kind: str) -> None:
    subject = tiny(kind)
    plain, before = run_treated(subject, "")
    cast, inside = run_treated(subject, "amp=bf16")
    again, after = run_treated(subject, "")
    assert before == after == {torch.float32}
    assert torch.bfloat16 in inside
    assert kind == "vjepa2" or cast.dtype is torch.float32, "actions come in the robot's own format"
    assert torch.equal(plain, again)
    assert 0 < relative_difference(plain, cast) < 0.05
    assert {parameter.dtype for parameter in subject.module.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", matrix(["vjepa2", "qwen2_vl"]))
def test_convolutions_over_time_have_their_channels_last(kind: str) -> None:
    subject = tiny(kind)
    [weight] = [module.weight for module in subject.module.modules() if isinstance(module, nn.Conv3d)]
    plain, strides, values = run_treated(subject, "")[0], weight.stride(), weight.detach().clone()
    laid_out: list[bool] = []
    hook = subject.module.register_forward_pre_hook(
        lambda *_: laid_out.append(weight.is_contiguous(memory_format=torch.channels_last_3d))
    )
    treated, _ = run_treated(subject, "channels_last=true")
    hook.remove()
    assert laid_out == [True]
    assert relative_difference(plain, treated) < 1e-4
    assert weight.stride() == strides
    assert torch.equal(weight, values)
