"""Shrink a policy to a tiny one of the same architecture, for tests and a first look."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from lerobot.configs import PreTrainedConfig

from strobe.errors import UserError
from strobe.subjects.standins import TINY_VOCABULARY

IMAGE = (3, 64, 64)  # of the tiny policies' synthetic cameras

_ACT = {
    "dim_model": 64,
    "dim_feedforward": 128,
    "n_encoder_layers": 2,
    "n_vae_encoder_layers": 2,
    "latent_dim": 8,
}

# Lengths that decide how often a part runs (chunk, denoising steps of the flow policies) are left alone.
_FIELDS: dict[str, dict[str, Any]] = {
    "act": _ACT,
    "act_relative_rtc": _ACT,
    "diffusion": {
        "down_dims": (32, 64, 128),
        "diffusion_step_embed_dim": 32,
        "spatial_softmax_num_keypoints": 8,
    },
    "smolvla": {"resize_imgs_with_padding": (64, 64), "num_vlm_layers": 4, "num_expert_layers": -1},
    "pi0": {"image_resolution": (28, 28)},
    "pi05": {"image_resolution": (28, 28)},
}
_TINY_DENOISING_STEPS = 10
_PI_VOCABULARY = 257152


def shrink(config: PreTrainedConfig) -> None:
    """Change ``config`` in place to its tiny version. Chunk and observation lengths stay as they are.

    Raises UserError for a policy type that has no tiny version.
    """
    if config.type not in _FIELDS:
        raise UserError(
            f"policy.size=tiny is not available for '{config.type}', only for {', '.join(sorted(_FIELDS))}; "
            "leave it out to build the full size"
        )
    for name, value in _FIELDS[config.type].items():
        setattr(config, name, value)
    if config.type == "diffusion" and getattr(config, "num_inference_steps", None) is None:
        config.num_inference_steps = _TINY_DENOISING_STEPS  # pyright: ignore[reportAttributeAccessIssue]


@contextlib.contextmanager
def tiny_backbones(config: PreTrainedConfig) -> Iterator[None]:
    """While open, pi0 and pi0.5 are built around a tiny PaliGemma; their configs know no size that small.

    SmolVLA's tiny backbone comes with its config stand-in.
    """
    if config.type not in ("pi0", "pi05"):
        yield
        return
    modeling = importlib.import_module(f"lerobot.policies.{config.type}.modeling_{config.type}")
    with (
        mock.patch.object(modeling, "get_gemma_config", _tiny_gemma(modeling.GemmaConfig)),
        mock.patch.object(modeling, "CONFIG_MAPPING", _TinyMapping(modeling.CONFIG_MAPPING)),
        _tiny_paligemma(modeling),
    ):
        yield


def _tiny_gemma(kind: Any) -> Any:
    def get_gemma_config(variant: str) -> Any:
        # LeRobot reshapes to 8 heads whatever the config says, and the expert shares the backbone's.
        width = 64 if variant == "gemma_2b" else 32
        return kind(width=width, depth=2, mlp_dim=2 * width, num_heads=8, num_kv_heads=1, head_dim=8)

    return get_gemma_config


class _TinyMapping:
    """transformers' CONFIG_MAPPING with the vocabulary of the expert cut down."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getitem__(self, name: str) -> Any:
        kind = self.real[name]

        def make(**kwargs: Any) -> Any:
            if kwargs.get("vocab_size") == _PI_VOCABULARY:
                kwargs["vocab_size"] = TINY_VOCABULARY
            return kind(**kwargs)

        return make


@contextlib.contextmanager
def _tiny_paligemma(modeling: Any) -> Iterator[None]:
    real = modeling.PaliGemmaForConditionalGenerationWithPiGemma

    def make(config: Any) -> Any:
        # LeRobot has written the full sizes into the config by now.
        config._vocab_size = TINY_VOCABULARY
        config.image_token_index = TINY_VOCABULARY
        config.text_config.vocab_size = TINY_VOCABULARY
        vision = config.vision_config
        vision.hidden_size = 32
        vision.intermediate_size = 64
        vision.num_hidden_layers = 2
        vision.num_attention_heads = 2
        vision.projection_dim = config.text_config.hidden_size
        return real(config=config)

    with mock.patch.object(modeling, "PaliGemmaForConditionalGenerationWithPiGemma", make):
        yield
