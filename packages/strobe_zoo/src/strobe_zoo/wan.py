"""Stand-ins for the frozen parts of Wan 2.2 (Wan team 2025, arXiv:2503.20314): the VAE of its 5 B model, and UMT5-XXL.

FastWAM and LingBot-VA encode images with this VAE and words with this encoder. Both lie outside of the policy's modules
and are in none of its checkpoints.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from strobe.lerobot.policies.standins import TINY_VOCABULARY, Vocabulary, tokenizer

UMT5 = "google/umt5-xxl"
WIDTH, TINY_WIDTH = 4096, 32  # of the text encoder's output: the policies' text_dim
CHANNELS = 48  # channels of the VAE's latents; both policies have the number in their code
VOCABULARY = Vocabulary(256300, (("pad_token", "<pad>"), ("eos_token", "</s>"), ("unk_token", "<unk>")))

words = partial(tokenizer, VOCABULARY)


def vae(tiny: bool, dtype: Any) -> nn.Module:
    """Return the VAE, which turns 16 × 16 pixels of 4 frames into one latent, with random weights."""
    from diffusers import AutoencoderKLWan

    made = AutoencoderKLWan(
        base_dim=8 if tiny else 160,
        decoder_base_dim=8 if tiny else 256,
        z_dim=CHANNELS,
        dim_mult=[1, 2, 4, 4],  # pyright: ignore[reportArgumentType]
        num_res_blocks=1 if tiny else 2,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * CHANNELS,
        latents_std=[1.0] * CHANNELS,
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_temporal=4,
        scale_factor_spatial=16,
    )
    return nn.Module.to(made, dtype)  # diffusers' own warns of modules that it would keep wide, of which there are none


def text_encoder(tiny: bool, dtype: object) -> nn.Module:
    """Return the encoder of UMT5-XXL with random weights."""
    from transformers import UMT5Config, UMT5EncoderModel

    full = {"d_model": WIDTH, "d_ff": 10240, "num_layers": 24, "num_heads": 64, "d_kv": 64, "vocab_size": 256384}
    sizes = {"d_model": TINY_WIDTH, "d_ff": 64, "num_layers": 2, "num_heads": 2, "d_kv": 16}
    sizes = {**sizes, "vocab_size": TINY_VOCABULARY} if tiny else full
    gated: Any = {"feed_forward_proj": "gated-gelu"}
    return UMT5EncoderModel(UMT5Config(**sizes, **gated)).to(dtype)  # pyright: ignore[reportArgumentType]
