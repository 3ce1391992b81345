"""Backbones on tiny versions of the real architectures: sizes, parts, inputs, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from support.suite.matrix import matrix
from transformers import CONFIG_MAPPING, AutoModel

from strobe.core.errors import UserError
from strobe.core.measure.accounting import Accounting
from strobe.core.subjects.subject import ITERATION
from strobe.core.timeline import Timeline
from strobe.core.timeline.probe import Attached
from strobe.lerobot.policies.options import InputOptions, ModelOptions
from strobe.vision import backbones, clips
from strobe.vision.model_subject import ModelSubject, load_model

BLOCKS = [f"block {index}" for index in range(6)]


@pytest.fixture(scope="module")
def subject() -> ModelSubject:
    return load_model(ModelOptions(type="vjepa2", size="tiny"))


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half a second of a square that moves, encoded for real."""
    path = tmp_path_factory.mktemp("video") / "moving.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for index in range(15):
            image = np.full((96, 128, 3), 40, np.uint8)
            image[30:60, 5 * index : 5 * index + 30] = 220
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def paths(subject: ModelSubject, depth: int = 1, batch_size: int = 1) -> list[tuple[str, ...]]:
    with Attached(subject.hooks("inference", depth)), Timeline() as timeline:
        subject.call("inference", batch_size)(0)
    return [section.path[1:] for section in timeline.sections() if len(section.path) > 1]


@pytest.mark.parametrize(
    ("size", "width", "layers", "heads", "side", "millions"),
    [
        ("large", 1024, 24, 16, 256, 304),
        ("huge", 1280, 32, 16, 256, 632),
        ("giant", 1408, 40, 22, 256, 1013),
        ("giant-384", 1408, 40, 22, 384, 1013),
    ],
)
def test_sizes_are_the_published_ones(size, width, layers, heads, side, millions):
    config = backbones.build_config(kind="vjepa2", size=size)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (width, layers, heads)
    assert (config.crop_size, config.frames_per_clip) == (side, 16)
    with torch.device("meta"):
        encoder = AutoModel.from_config(config).encoder
    assert sum(p.numel() for p in encoder.parameters()) / 1e6 == pytest.approx(millions, rel=0.005)


def test_weights_are_the_same_for_a_seed_and_of_the_dtype_asked_for():
    one, two, other = (load_model(ModelOptions(type="vjepa2", size="tiny"), seed=seed) for seed in (3, 3, 4))
    same = [torch.equal(a, b) for a, b in zip(one.module.parameters(), two.module.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(one.call("inference")(0), other.call("inference")(0))
    half = load_model(ModelOptions(type="vjepa2", size="tiny", dtype="bfloat16"))
    assert half.info.dtypes == {"bfloat16": half.info.parameters}
    assert half.call("inference")(0).dtype == torch.bfloat16


def test_the_parts_of_vjepa2_and_no_work_outside_them(subject):
    found = paths(subject)
    assert [path for path in found if len(path) == 1] == [("preprocessing",), ("model",)]
    inside = [path[2:] for path in found if path[:2] == ("model", "encoder") and len(path) == 3]
    assert inside == [(name,) for name in ("patch embedding", *BLOCKS, "final norm")]
    assert not any("predictor" in path for path in found)
    deeper = paths(subject, depth=2)
    assert {path[-1] for path in deeper if path[-2:-1] == ("block 2",)} == {"attention", "MLP"}
    assert {path[-1] for path in deeper if path[:1] == ("preprocessing",)} >= {"resize", "centre crop"}
    accounting = Accounting()
    with Attached(subject.hooks("inference", 1)):
        accounting.run(lambda: subject.call("inference")(0))
    whole = accounting.accounts[(ITERATION, "model")].gflop
    parts = sum(a.gflop for path, a in accounting.accounts.items() if path[:3] == (ITERATION, "model", "encoder")
                and len(path) == 4)  # fmt: skip
    assert whole > 0
    assert parts == pytest.approx(whole, rel=1e-6)


def test_probes_change_nothing_and_leave_nothing_behind(subject):
    bare = subject.call("inference")(1)
    before = [(module, set(vars(module))) for module in subject.module.modules()]
    with Attached(subject.hooks("inference", 3)), Timeline():
        probed = subject.call("inference")(1)
    assert torch.equal(bare, probed)
    assert all(set(vars(module)) == names for module, names in before)


def test_the_predictor_runs_where_it_is_asked_for(subject):
    predicting = load_model(ModelOptions(type="vjepa2", size="tiny", predictor=True))
    found = paths(predicting, depth=2)
    assert ("model", "predictor") in found
    assert ("model", "predictor", "block 1") in found
    predictor: Any = predicting.module.predictor
    of_it = sum(each.numel() for each in predictor.parameters())
    assert predicting.info.parameters - subject.info.parameters == of_it > 0, "what does not run is not counted"
    assert any("predictor" in note for note in subject.notes)
    assert predicting.notes == []
    with pytest.raises(UserError, match="vit has none"):
        load_model(ModelOptions(type="vit", size="tiny", predictor=True))


def test_traits_tell_frames_from_clips_and_count_tokens(subject):
    assert len(subject.call("inference", 2)(0)) == 2
    traits = subject.traits("inference", 2)
    assert traits.batch_size == 2
    assert traits.backbone.frames_per_clip == 4
    assert traits.backbone.image_size == 96
    assert traits.backbone.tokens == (4 // 2) * (96 // 16) ** 2


def test_preprocessing_is_the_one_of_transformers(subject):
    from transformers import VJEPA2VideoProcessor

    frames = subject.clips.batch(0, 1)
    expected = VJEPA2VideoProcessor(crop_size=96)(list(frames), return_tensors="pt")["pixel_values_videos"]
    assert torch.equal(subject._pixels(frames)["pixel_values_videos"], expected)


@pytest.mark.parametrize("kind", matrix(["vit", "videomae", "dinov2", "timesformer", "siglip_vision_model"], keep=2))
def test_any_backbone_is_cut_down_to_its_blocks(kind):
    subject = load_model(ModelOptions(type=kind, size="tiny"))
    found = paths(subject, batch_size=2)
    blocks = [path for path in found if path[-1].startswith("block ")]
    assert [path[-1] for path in blocks] == BLOCKS[:4]
    assert "embeddings" in {path[-1] for path in found}
    deeper = paths(subject, depth=2)
    assert any("att" in path[-1] for path in deeper if path[-2:-1] == ("block 1",))
    assert subject.info.anatomy == "modules"
    assert any("Strobe's own" in note for note in subject.notes)
    config = CONFIG_MAPPING[kind]()
    own = {"img_size": 2 * config.patch_size, "num_frames": 6 if hasattr(config, "num_frames") else 2}
    again = load_model(ModelOptions(type=kind, size="tiny", **own))
    again.call("inference")(0)
    sizes = again.traits("inference", 1).backbone
    assert (sizes.image_size, sizes.frames_per_clip) == (own["img_size"], own["num_frames"])


def test_stages_that_differ_by_design_are_not_blocks():
    subject = load_model(
        ModelOptions(type="swin", overrides=["--depths=[1, 1]", "--num_heads=[2, 2]", "--embed_dim=16"])
    )
    assert {path[-1] for path in paths(subject)} >= {"stage 0", "stage 1"}


def test_a_saved_model_is_read_again(subject, tmp_path):
    subject.module.save_pretrained(tmp_path)  # type: ignore[operator]
    again = load_model(ModelOptions(path=str(tmp_path)))
    assert again.model.img_size == 96
    assert again.model.frames == 4
    assert again.info.source == str(tmp_path)
    assert torch.equal(again.call("inference")(0), load_model(ModelOptions(path=str(tmp_path))).call("inference")(0))
    same = zip(again.module.parameters(), subject.module.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    with pytest.raises(UserError, match="do not fit"):
        load_model(ModelOptions(path=str(tmp_path), overrides=["--num_hidden_layers=7"]))


def test_the_decoder_is_chosen_once(video, monkeypatch):
    from lerobot.datasets import video_utils
    from lerobot.utils import import_utils

    made = clips.from_video(video, 4)
    assert made.description.split()[-1] in ("torchcodec", "pyav")
    for module in (video_utils, import_utils):  # looking for FFmpeg's libraries takes longer than decoding a clip
        monkeypatch.setattr(module, "get_safe_default_video_backend", lambda: pytest.fail("chosen again"))
    assert made.read(1).shape == (4, 3, 96, 128)


def test_a_video_is_decoded_inside_the_iteration(video):
    subject = load_model(ModelOptions(type="vjepa2", size="tiny"), InputOptions(video=video))
    assert [path for path in paths(subject) if len(path) == 1] == [("decode",), ("preprocessing",), ("model",)]
    assert "3 clips of 4 successive frames, 96×128, 30 frames/s" in subject.info.inputs
    first, second, fourth = (subject.clips.read(index) for index in (0, 1, 3))
    assert first.shape == (4, 3, 96, 128)
    assert first.dtype == torch.uint8
    assert torch.equal(first, fourth)  # three clips in fifteen frames, then again from the start
    assert first[0, 0, 45, 10] > 180  # the square starts left …
    assert second[0, 0, 45, 10] < 80 < 180 < second[0, 0, 45, 30]  # … and has moved on four frames later


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [("none.mp4", None, "no video file"), ("text.mp4", b"not a video at all", "not a readable video")],
)
def test_what_is_no_video_is_refused(name, content, words, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        clips.from_video(path, 4)


def test_a_video_that_is_too_short_is_refused(video):
    with pytest.raises(UserError, match="has 15 frames, a clip needs 16"):
        clips.from_video(video, 16)


def test_clips_of_a_dataset_stay_in_an_episode(recording):
    made = clips.from_dataset(recording, None, 5, count=3)
    assert "observation.image" in made.description
    assert made.read(0).shape == (5, 3, 96, 96)
    assert made.read(0).dtype == torch.uint8
    assert made.read(0).float().std() > 1  # a picture, not zeros and ones
    assert torch.equal(made.read(0), made.read(3))
    with pytest.raises(UserError, match="no episode"):
        clips.from_dataset(recording, None, 13)


WRONG = {
    "type": ({"type": "vjepa"}, "did you mean 'vjepa2'"),
    "text model": ({"type": "bert"}, "images or video"),
    "words alone": ({"type": "bert"}, "images or video"),
    "size": ({"type": "vjepa2", "size": "lage"}, "did you mean 'large'"),
    "size of another": ({"type": "vit", "size": "huge"}, "full"),
    "no tiny one": ({"type": "swin", "size": "tiny"}, "not available"),
    "dtype": ({"type": "vjepa2", "size": "tiny", "dtype": "bfloat"}, "did you mean 'bfloat16'"),
    "patches": ({"type": "vjepa2", "size": "tiny", "img_size": 100}, "take 96 or 112"),
    "tubelets": ({"type": "vjepa2", "size": "tiny", "num_frames": 5}, "take 4 or 6"),
    "field": ({"type": "vit", "overrides": ["--hiden_size=64"]}, "did you mean '--model.hidden_size'"),
    "value": ({"type": "vit", "overrides": ["--hidden_size=wide"]}, "hidden_size"),
    "folder": ({"path": "/no/such/model"}, "no folder"),
    "device": ({"type": "vjepa2", "size": "tiny"}, "xpu"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_in_one_line(name):
    given, words = WRONG[name]
    with pytest.raises(UserError, match=words) as error:
        load_model(ModelOptions(**given), device="xpu" if name == "device" else None)
    assert "\n" not in str(error.value)


def test_a_folder_that_holds_a_policy_is_no_model(tmp_path):
    (tmp_path / "config.json").write_text('{"type": "act"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"--policy\.path"):
        load_model(ModelOptions(path=str(tmp_path)))


def test_training_a_backbone_is_refused(subject):
    with pytest.raises(UserError, match="only inference"):
        subject.call("training step")
