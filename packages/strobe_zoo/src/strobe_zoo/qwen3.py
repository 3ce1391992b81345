"""Stand-ins for Qwen3-VL-2B (Bai et al. 2025, arXiv:2511.21631), the backbone of GR00T N1.7 and VLA-JEPA.

Configs, tokenizer, image and video processors are transformers' own classes with the published numbers, as LeRobot
writes them out in ``policies/groot/groot_n1_7.py``; the tokenizer knows words of robot tasks alone.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from strobe.core.families.family import transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families.flow_parts import VISION
from strobe.lerobot.policies.standins import TINY_VOCABULARY, Vocabulary, sizes, tokenizer

if TYPE_CHECKING:
    from transformers import (
        PreTrainedTokenizerFast,
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

_IMAGE, _VIDEO, _START, _END = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
VOCABULARY = Vocabulary(
    151669,
    (("pad_token", "<|endoftext|>"), ("eos_token", "<|im_end|>")),
    more=(("<|im_start|>", 151644), (_START, 151652), (_END, 151653), (_IMAGE, 151655), (_VIDEO, 151656)),
)
# How Qwen's vision-language models write messages.
TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CONFIG: dict[str, Any] = {
    "tie_word_embeddings": True,
    "text_config": {
        **sizes(width=2048, mlp=6144, layers=28, heads=16, kv_heads=8, head_dim=128),
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000000,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": 151936,
    },
    "vision_config": {
        "deepstack_visual_indexes": [5, 11, 17],
        "depth": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_heads": 16,
        "num_position_embeddings": 2304,
        "out_hidden_size": 2048,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}
_TINY_TEXT = sizes(width=64, mlp=128, layers=4, heads=4, kv_heads=2, head_dim=16) | {
    "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
    "vocab_size": TINY_VOCABULARY + 128,  # room for the tokens that policies add
}
_TINY_VISION = {
    "deepstack_visual_indexes": [0, 1],
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "num_position_embeddings": 64,
    "out_hidden_size": 64,
}
_PIXELS, _TINY_PIXELS = (65536, 16777216), (1024, 4096)  # of an image, at least and at most


def probes(qwen: str) -> list[Probe]:
    """Return the parts of a Qwen3-VL at the path ``qwen``, down to attention and MLP of each block."""
    vision, language = f"{qwen}.model.visual", f"{qwen}.model.language_model"
    return [
        Probe.module(vision, VISION),
        *transformer(f"{vision}.blocks", "block", attention="attn"),
        Probe.module(language, "language model"),
        *transformer(f"{language}.layers", "layer"),
        Probe.module(f"{qwen}.lm_head", "language head"),
    ]


def config(tiny: bool = False) -> Qwen3VLConfig:
    """Return the config of Qwen3-VL-2B-Instruct, or one of the same architecture shrunk."""
    from transformers import Qwen3VLConfig

    values = deepcopy(_CONFIG)
    if tiny:
        values["text_config"] |= _TINY_TEXT
        values["vision_config"] |= _TINY_VISION
    ids = words(tiny).get_vocab()
    for name, token in (("image", _IMAGE), ("video", _VIDEO), ("vision_start", _START), ("vision_end", _END)):
        values[f"{name}_token_id"] = ids[token]
    return Qwen3VLConfig(**values)


words = partial(tokenizer, VOCABULARY)


def chatting(tiny: bool = False) -> PreTrainedTokenizerFast:
    """Return a tokenizer of its own that knows how Qwen3-VL writes messages."""
    made = deepcopy(words(tiny))  # policies add tokens to theirs
    made.chat_template = TEMPLATE
    return made


def images(tiny: bool = False) -> Qwen2VLImageProcessor:
    """Return the image processor: patches of 16 pixels, merged by 2 × 2."""
    from transformers import Qwen2VLImageProcessor

    least, most = _TINY_PIXELS if tiny else _PIXELS
    half = [0.5, 0.5, 0.5]
    size = {"shortest_edge": least, "longest_edge": most}
    return Qwen2VLImageProcessor(
        size=size, patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=half, image_std=half
    )


def videos(_: bool = False) -> Qwen3VLVideoProcessor:
    """Return the video processor; it is made, and given no video."""
    from transformers import Qwen3VLVideoProcessor

    return Qwen3VLVideoProcessor()


def processor(tiny: bool = False) -> Qwen3VLProcessor:
    """Return the processor of images and messages."""
    from transformers import Qwen3VLProcessor

    return Qwen3VLProcessor(
        image_processor=images(tiny), tokenizer=chatting(tiny), video_processor=videos(tiny), chat_template=TEMPLATE
    )
