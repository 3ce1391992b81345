"""Vision towers that are told more than pixels, or that stand in a larger model: parts, tokens, checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.suite.matrix import matrix
from transformers import AutoModel

from strobe.core.errors import UserError
from strobe.core.measure.accounting import Accounting
from strobe.core.subjects.subject import ITERATION
from strobe.core.timeline import Timeline
from strobe.core.timeline.probe import Attached
from strobe.lerobot.policies.options import InputOptions, ModelOptions
from strobe.vision.backbones import build_config
from strobe.vision.model_subject import ModelSubject, load_model

# type → parts at the first level, and tokens of an image of 112 × 112 pixels
TOWERS = {
    "qwen2_vl": ({"patch embedding", "block 0", "block 2", "merger"}, 16),
    "qwen2_5_vl": ({"patch embedding", "block 0", "block 2", "merger", "windows"}, 16),
    "qwen3_vl": ({"patch embedding", "block 0", "merger", "deep merger 0", "position embedding"}, 9),
    "siglip2_vision_model": ({"patch embedding", "block 0", "block 3", "final norm", "pooling head"}, 49),
}


def tower(kind: str, **more: object) -> ModelSubject:
    return load_model(
        ModelOptions(type=kind, size="tiny", img_size=112, **more),  # type: ignore[arg-type]
        InputOptions(image_size=(112, 112)),
    )


@pytest.mark.parametrize("kind", matrix(TOWERS, keep=2))
def test_a_tower_shows_its_parts_and_takes_images(kind: str) -> None:
    subject = tower(kind, num_frames=2)
    parts, tokens = TOWERS[kind]
    with Attached(subject.hooks("inference", 1)), Timeline() as timeline:
        features = subject.call("inference", 1)(0)
    assert parts <= {section.path[-1] for section in timeline.sections()}
    assert features.isfinite().all()
    assert subject.traits("inference", 1).backbone.tokens == 2 * tokens
    accounting = Accounting()
    with Attached(subject.hooks("inference", 1)):
        accounting.run(lambda: subject.call("inference", 1)(0))
    whole = accounting.accounts[(ITERATION, "model")].gflop
    inside = sum(a.gflop for path, a in accounting.accounts.items() if len(path) == 3 and path[1] == "model")
    assert inside >= 0.99 * whole > 0


@pytest.mark.parametrize("kind", matrix(["siglip", "siglip2"]))
def test_of_a_model_with_words_too_the_tower_is_taken(kind: str) -> None:
    assert build_config(kind=kind, size="tiny").model_type == f"{kind}_vision_model"


_SIDES = {"hidden_size": 64, "intermediate_size": 64}
_TEXT = {**_SIDES, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
_WHOLE = {
    "siglip": {"vision_config": {**_TEXT, "image_size": 112, "vocab_size": None}, "text_config": _TEXT},
    "qwen2_5_vl": {
        "vision_config": {
            "depth": 2,
            "num_heads": 2,
            "hidden_size": 64,
            "out_hidden_size": 64,
            "intermediate_size": 64,
        },
        "text_config": {**_TEXT, "num_key_value_heads": 2, "max_window_layers": 1},
    },
}


@pytest.mark.parametrize("kind", matrix(_WHOLE))
def test_a_checkpoint_of_the_whole_model_gives_its_tower(kind: str, tmp_path: Path) -> None:
    from transformers import CONFIG_MAPPING

    whole = AutoModel.from_config(CONFIG_MAPPING[kind](**_WHOLE[kind]))
    whole.save_pretrained(tmp_path)
    subject = load_model(
        ModelOptions(path=str(tmp_path), img_size=112, num_frames=1), InputOptions(image_size=(112, 112))
    )
    expected = getattr(whole, "visual", None) or whole.vision_model
    mine, its = dict(subject.module.named_parameters()), dict(expected.named_parameters())
    assert len(mine) == len(its)
    for name, one in mine.items():
        assert torch.equal(one, its[name.removeprefix("vision_model.")]), name
    assert subject.call("inference", 1)(0).isfinite().all()


def test_a_side_that_is_no_multiple_of_the_patch_is_refused() -> None:
    with pytest.raises(UserError, match="img_size=100 is not divisible by the patch size 14: take 98 or 112"):
        build_config(kind="qwen2_5_vl", size="tiny", img_size=100)


def test_a_convolutional_net_has_a_tiny_size() -> None:
    assert (
        load_model(ModelOptions(type="dinov3_convnext", size="tiny"), InputOptions(image_size=(64, 64))).info.parameters
        < 1e6
    )
