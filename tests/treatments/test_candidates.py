"""What each treatment offers to be tried, and on which parts of the real architectures."""

from __future__ import annotations

import functools

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat

from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import ModelOptions, PolicyOptions
from strobe.treatments.numbers import precision
from strobe.treatments.numbers.channels_last import ChannelsLast
from strobe.vision.model_subject import load_model


@functools.cache
def subject(kind: str):
    return load_tiny_subject(kind)


@pytest.fixture
def fast_bf16(monkeypatch):
    monkeypatch.setattr(precision, "_fast", lambda _: ("bf16",))
    monkeypatch.setattr(precision, "faster_in_bfloat16", lambda: True)


def offered_parts(key: str, one) -> dict[str, tuple[str, ...]]:
    entry = catalogue.find_entry(key)
    return {catalogue.format_spec(spec): tuple(entry.parts(one, spec)) for spec in entry.candidates(one)}


SEES = {
    "act": ("model.backbone", "backbone"),
    "diffusion": ("diffusion.rgb_encoder", "image encoder"),
    "smolvla": ("model.vlm_with_expert.vlm.model.vision_model", "vision tower"),
    "pi05": ("model.paligemma_with_expert.paligemma.model.vision_tower", "vision tower"),
}


@pytest.mark.parametrize("kind", SEES)
def test_a_lower_precision_is_offered_for_what_sees_and_for_the_whole(kind, fast_bf16):
    path, part = SEES[kind]
    found = offered_parts("precision", subject(kind))
    assert found == {f"precision=bf16, precision.part={path}": (part,), "precision=bf16": ()}
    names = {hook.name for hook in subject(kind).hooks("inference", 1)}
    assert part in names, "the anatomy knows the part by this name"


def test_float32_is_offered_for_16_bits_where_the_machine_is_slower_in_them(monkeypatch):
    monkeypatch.setattr(precision, "_fast", lambda _: ())
    monkeypatch.setattr(precision, "faster_in_bfloat16", lambda: False)
    pi05 = load_tiny_subject("pi05", "--dtype=bfloat16")
    found = offered_parts("precision", pi05)
    joint = "model.paligemma_with_expert"
    assert found[f"precision=fp32, precision.part={joint}.paligemma.model.language_model"] == ("prefix KV cache",)
    assert found[f"precision=fp32, precision.part={joint}.gemma_expert.model"]
    assert list(found)[-1] == "precision=fp32", "the whole, last"
    assert offered_parts("precision", subject("act")) == {}, "it has all its weights in float32"
    monkeypatch.setattr(precision, "faster_in_bfloat16", lambda: True)
    assert offered_parts("precision", pi05) == {}


def test_what_is_low_already_is_not_offered_again(fast_bf16):
    act = subject("act")
    with treat(act, precision.Precision("bf16", "model.backbone")):
        assert offered_parts("precision", act) == {}, "the rest is too little to be worth a try"
    with treat(act, precision.Precision("bf16")):
        assert offered_parts("precision", act) == {}


def test_a_backbone_is_lowered_as_a_whole(fast_bf16):
    assert offered_parts("precision", load_model(ModelOptions(type="vjepa2", size="tiny"))) == {"precision=bf16": ()}


def test_without_arithmetic_for_it_nothing_is_offered(monkeypatch):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False, raising=False)
    assert offered_parts("precision", subject("act")) == {}
    assert offered_parts("tf32", subject("act")) == {}


def test_channels_last_is_offered_where_convolutions_are_more_than_a_patch_embedding():
    assert offered_parts("channels_last", subject("act")) == {"channels_last=true": ("backbone", "image projection")}
    assert offered_parts("channels_last", subject("diffusion")) == {"channels_last=true": ("image encoder",)}
    assert offered_parts("channels_last", subject("pi05")) == {}
    assert offered_parts("channels_last", load_model(ModelOptions(type="vjepa2", size="tiny"))) == {}


def test_channels_last_reaches_inference_images_too_and_leaves_no_trace():
    act = subject("act")
    formats: list[bool] = []

    def record_format(_, args) -> None:
        formats.append(args[0].is_contiguous(memory_format=torch.channels_last) and not args[0].is_contiguous())

    before = act.chunk(0)
    handle = act.module.get_submodule("model.backbone.conv1").register_forward_pre_hook(record_format)
    with treat(act, Variant("last", (ChannelsLast(),))):
        treated = act.chunk(0)
    after = act.chunk(0)
    handle.remove()
    assert formats == [True, True, False, False], "two cameras"
    assert torch.equal(before, after)
    assert torch.allclose(before, treated, rtol=1e-4, atol=1e-4 * float(before.abs().max()))


def test_fewer_steps_are_offered_by_halves():
    steps = ("denoise step", "RTC step", "scheduler step")
    names = [f"policy.num_inference_steps={n}" for n in (5, 2, 1)]
    assert offered_parts("policy.", subject("pi05")) == dict.fromkeys(names, steps)
    assert next(iter(offered_parts("policy.", subject("smolvla")))) == "policy.num_steps=5"
    assert offered_parts("policy.", subject("act")) == {}


@pytest.mark.gpu
def test_cuda_is_offered_tf32_and_both_halves():
    act = load_subject(PolicyOptions(type="act", size="tiny", overrides=["--device=cuda"]))
    assert offered_parts("tf32", act) == {"tf32=true": ()}
    assert {spec.split(",")[0] for spec in offered_parts("precision", act)} == {"precision=bf16", "precision=fp16"}
