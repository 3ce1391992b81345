"""Fewer frames and smaller images: the model is given what is said, and everything shown is the variant's."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.presence import require_value
from support.checks.treatment_block import treat

from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.options import ModelOptions
from strobe.treatments.inputs import evenly
from strobe.treatments.numbers.precision import Precision
from strobe.vision.clips import Clips
from strobe.vision.model_subject import load_model


@cache
def load_small_subject(kind: str) -> Any:
    if kind == "vjepa2":
        return load_model(ModelOptions(type=kind, size="tiny", num_frames=8, img_size=96))
    if kind in ("vit", "resnet"):
        return load_model(ModelOptions(type=kind, size="tiny" if kind == "vit" else None, overrides=[]))
    extra = ["--crop_shape=[48,56]", "--num_inference_steps=2"] if kind == "diffusion" else []
    return load_tiny_subject(kind, *extra, cameras=1)


def run_treated(subject: Any, text: str, call: Any, *others: Any) -> Any:
    with treat(subject, Variant("v", (*catalogue.compose(catalogue.parse(text)), *others))):
        return call()


def input_shapes(subject: Any, path: str) -> list[tuple[int, ...]]:
    """The shapes that the module at ``path`` is given in a call."""
    shapes: list[tuple[int, ...]] = []
    module = subject.module.get_submodule(path)
    watch = module.register_forward_pre_hook(lambda _, args, kw: shapes.append(
        tuple(next(v for v in (*args, *kw.values()) if isinstance(v, torch.Tensor)).shape)
    ), with_kwargs=True)  # fmt: skip
    try:
        subject.call("inference")(0)
    finally:
        watch.remove()
    return shapes


def test_frames_are_even_and_end_with_the_newest() -> None:
    assert evenly(16, 8) == tuple(range(1, 16, 2))
    assert evenly(16, 16) == tuple(range(16))
    assert evenly(16, 1) == (15,)
    for length in range(1, 20):
        for count in range(1, length + 1):
            chosen = evenly(length, count)
            steps = {b - a for a, b in pairwise(chosen)}
            assert len(set(chosen)) == count
            assert chosen[-1] == length - 1
            assert not steps or max(steps) - min(steps) <= 1


def test_a_reader_of_single_frames_reads_no_others() -> None:
    read: list[Any] = []
    film = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1).expand(8, 3, 2, 2)

    def pick(index: int, chosen: Any = range(8)) -> Any:
        read.append(tuple(chosen))
        return film[list(chosen)]

    clips = Clips("a film", pick, decoding=True, pick=pick)
    clips.chosen = evenly(8, 2)
    assert clips.batch(0, 1)[0, :, 0, 0, 0].tolist() == [3, 7]
    assert read == [(3, 7)]
    assert Clips("another", lambda index: film, chosen=(0, 5)).batch(0, 1)[0, :, 0, 0, 0].tolist() == [0, 5]


def test_a_video_model_is_given_fewer_frames_and_smaller_images() -> None:
    subject = load_small_subject("vjepa2")
    plain = subject.call("inference")(0)
    assert input_shapes(subject, "encoder") == [(1, 8, 3, 96, 96)]
    assert run_treated(subject, "frames=4", lambda: input_shapes(subject, "encoder")) == [(1, 4, 3, 96, 96)]
    assert run_treated(subject, "images=64", lambda: input_shapes(subject, "encoder")) == [(1, 8, 3, 64, 64)]
    assert run_treated(subject, "images=64, frames=2", lambda: input_shapes(subject, "encoder")) == [(1, 2, 3, 64, 64)]
    assert run_treated(subject, "frames=8", lambda: torch.equal(subject.call("inference")(0), plain))
    assert run_treated(subject, "images=96", lambda: torch.equal(subject.call("inference")(0), plain))
    assert subject.traits("inference", 1).backbone.frames_per_clip == 8
    assert torch.equal(subject.call("inference")(0), plain)


@pytest.mark.parametrize("text", ["images=64", "frames=4", "images=128, frames=2"])
def test_a_video_model_sees_what_one_built_for_that_size_sees(text: str) -> None:
    """Positions, cropping and resizing are those of a model of that size with the same weights."""
    subject = load_small_subject("vjepa2")
    spec = {key: value for one in catalogue.parse(text) for key, value in one.items()}
    other = load_model(
        ModelOptions(type="vjepa2", size="tiny", num_frames=spec.get("frames", 8), img_size=spec.get("images", 96))
    )
    other.module.load_state_dict(subject.module.state_dict())
    frames = subject.clips.batch(0, 1)
    clip = frames[0, list(evenly(8, spec.get("frames", 8)))]
    other.clips = Clips("the same", lambda index: clip)
    assert torch.equal(run_treated(subject, text, lambda: subject.call("inference")(0)), other.call("inference")(0))


def test_what_is_recorded_is_the_variants_own() -> None:
    subject = load_small_subject("vjepa2")
    variants = [Variant("baseline")]
    variants += [Variant(t, catalogue.compose(catalogue.parse(t))) for t in ("frames=4", "images=64", "int8=dynamic")]
    result, _ = compare(subject, variants, "inference", Options(SamplingBudget(iterations=3)))
    backbones: dict[str, Any] = {m.name: m.traits.backbone for m in result.measurements}
    assert [backbones[v.name].tokens for v in variants] == [4 * 36, 2 * 36, 4 * 16, 4 * 36]
    assert backbones["frames=4"].frames_per_clip == 4
    assert backbones["images=64"].image_size == 64
    assert backbones["baseline"].frames_per_clip == 8
    gflop = {m.name: sum(c.gflop or 0 for c in m.components if c.depth == 1) for m in result.measurements}
    assert gflop["frames=4"] < 0.6 * gflop["baseline"]
    assert gflop["images=64"] < 0.5 * gflop["baseline"]
    assert gflop["int8=dynamic"] == pytest.approx(gflop["baseline"])
    agreed = {c.candidate: c.agreement for c in result.comparisons}
    assert all(agreed.values())
    frames, images, int8 = (agreed[name] for name in ("frames=4", "images=64", "int8=dynamic"))
    assert frames is not None
    assert (
        frames.note == "frames=4: 72 against 144 tokens a clip, so what is compared is each clip's mean over its tokens"
    )
    assert images is not None
    assert "64 against 144" in images.note
    assert int8 is not None
    assert int8.note == ""
    assert int8.cosine > 0.99


def test_pooled_features_are_those_of_all_tokens() -> None:
    subject = load_small_subject("vjepa2")
    subject.call("inference")(0)
    with torch.no_grad():
        whole = subject.module(**subject._pixels(subject.clips.batch(0, 1)), skip_predictor=True).last_hidden_state
    assert torch.allclose(require_value(subject.latest.pooled), whole.mean(1), atol=1e-6)


def test_a_policys_cameras_are_made_smaller_in_their_own_shape() -> None:
    subject = load_small_subject("act")  # its synthetic camera has 64 × 64 pixels
    plain = subject.call("inference")(0)
    assert input_shapes(subject, "model.backbone") == [(1, 3, 64, 64)]
    assert run_treated(subject, "images=32", lambda: input_shapes(subject, "model.backbone")) == [(1, 3, 32, 32)]
    assert run_treated(subject, "images=32x48", lambda: input_shapes(subject, "model.backbone")) == [(1, 3, 32, 48)]
    smaller = run_treated(subject, "images=32", lambda: subject.call("inference")(0))
    assert smaller.shape == plain.shape
    assert not torch.equal(smaller, plain)
    assert torch.equal(run_treated(subject, "images=64", lambda: subject.call("inference")(0)), plain)
    assert torch.equal(subject.call("inference")(0), plain)


def test_diffusion_crops_by_as_much_and_knows_where_its_keypoints_are() -> None:
    subject = load_small_subject("diffusion")
    encoders = [m for m in subject.module.modules() if hasattr(m, "center_crop")]
    plain, grid = subject.call("inference")(0), encoders[0].pool.pos_grid
    path = next(name for name, m in subject.module.named_modules() if m is encoders[0].backbone)
    assert {shape[-2:] for shape in input_shapes(subject, path)} == {(48, 56)}
    for text, size in (("images=32", (24, 28)), ("images=128x96", (96, 84))):
        assert {shape[-2:] for shape in run_treated(subject, text, lambda: input_shapes(subject, path))} == {size}
        got = run_treated(subject, text, lambda: subject.call("inference")(0), Precision("bf16"))
        assert got.isfinite().all()
        assert encoders[0].pool.pos_grid is grid
    same = run_treated(subject, "images=64", lambda: subject.call("inference")(0))
    assert torch.equal(same, plain)
    assert torch.equal(subject.call("inference")(0), plain)


REFUSED = {
    ("vjepa2", "frames=3"): "frames=3 is not divisible by 2",
    ("vjepa2", "frames=16"): "the clips have 8",
    ("vjepa2", "frames=0"): "a number of frames",
    ("vjepa2", "images=100"): "not divisible by the patch size 16",
    ("vjepa2", "images=64x96"): "needs square images: images=64",
    ("vjepa2", "images=large"): "HEIGHTxWIDTH",
    ("vit", "frames=1"): "frames is for video backbones",
    ("vit", "images=32"): "is built for images of .* pixels: use --model.img_size=32",
    ("pi05", "images=14"): "pi05's vision tower is built for images of 28×28",
    ("act", "frames=2"): "has no clips",
}


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line(kind: str, text: str) -> None:
    with pytest.raises(UserError, match=REFUSED[kind, text]) as refused:
        run_treated(load_small_subject(kind), text, lambda: None)
    assert "\n" not in str(refused.value)


def test_they_are_never_tried_by_themselves() -> None:
    for key in ("frames", "images"):
        assert not catalogue.find_entry(key).candidates(load_small_subject("vjepa2"))
