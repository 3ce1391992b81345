"""X-VLA (Zheng et al. 2025, LeRobot's ``policies/xvla``): Florence-2, and a transformer with soft prompts that acts.

Every denoising step runs the transformer over all tokens, in both directions: actions, Florence-2's output for the
first view and the prompt, the other views as they are, and soft prompts of the robot's domain.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from strobe.core.families.capabilities import Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, blocks, transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.policies.standins import TINY_VOCABULARY, TOKENIZERS, Vocabulary, tokenizer
from strobe.lerobot.sampling import LastBlock

VLM, TRANSFORMER = "model.vlm", "model.transformer"
VISION, ENCODER = f"{VLM}.vision_tower", f"{VLM}.language_model.encoder"

BART = "facebook/bart-large"
VOCABULARY = Vocabulary(
    50265,
    (("bos_token", "<s>"), ("pad_token", "<pad>"), ("eos_token", "</s>"), ("unk_token", "<unk>")),
    begins=True,
    ends=True,
)
# Florence-2-large, in the form of transformers' own Florence2Config. LeRobot takes it from a checkpoint's config.
FLORENCE: dict[str, Any] = {
    "vision_config": {
        "depths": [1, 1, 9, 1],
        "embed_dim": [256, 512, 1024, 2048],
        "num_heads": [8, 16, 32, 64],
        "num_groups": [8, 16, 32, 64],
        "projection_dim": 1024,
    },
    "text_config": {
        "vocab_size": 51289,
        "d_model": 1024,
        "encoder_layers": 12,
        "encoder_ffn_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_layers": 12,
        "decoder_ffn_dim": 4096,
        "decoder_attention_heads": 16,
    },
}
_TINY: dict[str, Any] = {
    "vision_config": {
        "depths": [1, 1, 2, 1],
        "embed_dim": [8, 16, 32, 64],
        "num_heads": [1, 2, 2, 2],
        "num_groups": [1, 2, 2, 2],
        "window_size": 4,
        "projection_dim": 32,
    },
    "text_config": {
        "vocab_size": TINY_VOCABULARY,
        "d_model": 32,
        "encoder_layers": 2,
        "encoder_ffn_dim": 64,
        "encoder_attention_heads": 2,
        "decoder_layers": 1,
        "decoder_ffn_dim": 64,
        "decoder_attention_heads": 2,
    },
}


probes = always(
    # All views that are there go through the vision tower at once; the language encoder reads the first one's.
    Probe.method("", "_prepare_images", "image resize"),
    Probe.module(VISION, "vision tower"),
    Probe.module(f"{VISION}.convs.*", "patch embedding {}", level=2),
    Probe.module(f"{VISION}.blocks.*.*", "block {} {}", level=2),
    Probe.module(f"{VISION}.blocks.*.*.spatial_block", "window attention and MLP", level=3),
    Probe.module(f"{VISION}.blocks.*.*.channel_block", "channel attention and MLP", level=3),
    Probe.module(f"{VLM}.multi_modal_projector", "projector"),
    Probe.module(ENCODER, "language encoder"),
    blocks(f"{ENCODER}.layers", "layer"),
    Probe.module(f"{ENCODER}.layers.*.self_attn", "attention", level=3),
    Probe.module(TRANSFORMER, "denoise step"),
    Probe.module(f"{TRANSFORMER}.action_encoder", "action encoder", level=2),
    Probe.module(f"{TRANSFORMER}.vlm_proj", "context projection", level=2),
    Probe.module(f"{TRANSFORMER}.aux_visual_proj", "view projection", level=2),
    *transformer(f"{TRANSFORMER}.blocks", "block", attention="attn"),
    Probe.module(f"{TRANSFORMER}.action_decoder", "action decoder", level=2),
)


def narrow_output(block: Any, x: Tensor, rows: int) -> Tensor:
    """Return the first ``rows`` rows of a block's output for ``x``; the others only give keys and values."""
    attention = block.attn
    batch, length, width = x.shape
    parts = attention.qkv(block.norm1(x)).reshape(batch, length, 3, attention.num_heads, attention.head_dim)
    queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
    queries, keys = attention.q_norm(queries[:, :, :rows]), attention.k_norm(keys)
    seen = scaled_dot_product_attention(queries, keys, values).transpose(1, 2).reshape(batch, rows, width)
    hidden = x[:, :rows] + attention.proj(seen)
    return hidden + block.mlp(block.norm2(hidden))


FAMILY = Family(
    "xvla",
    ("xvla",),
    probes,
    compiled=((TRANSFORMER, "forward"), (VISION, "forward"), (ENCODER, "forward")),
    costly=(TRANSFORMER, VISION, ENCODER),
    tiny=Tiny(
        {
            "florence_config": _TINY,
            "resize_imgs_with_padding": (64, 64),
            "hidden_size": 64,
            "depth": 3,
            "num_heads": 2,
            "num_domains": 3,
        }
    ),
    capabilities=(
        Parts(seeing={"vision tower": VISION}),
        LiveFields(steps="num_denoising_steps"),
        LastBlock(f"{TRANSFORMER}.blocks", lambda config: config.chunk_size, narrow_output),
        Construction(
            flags=(
                f"--florence_config={json.dumps(FLORENCE)}",
                "--resize_imgs_with_padding=[224,224]",  # at the cameras' own size the tokens do not fit
                "--action_mode=auto",  # the others are for the robots that they are named after
            ),
            hub=(HubNeed(BART, "tokenizer", *TOKENIZERS, partial(tokenizer, VOCABULARY)),),
        ),
        InputFacts(fills_cameras=True, image_size="resize_imgs_with_padding"),
        Calls(seldom_looks=True),
    ),
)
