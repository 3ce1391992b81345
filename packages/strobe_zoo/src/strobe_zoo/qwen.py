"""Stand-ins for Qwen2.5-VL-3B (Bai et al. 2025, arXiv:2502.13923), which eo1 and wall_x are built on.

Its config, at full size and tiny, and its processor: a real one of transformers, around a placeholder tokenizer whose
special tokens have the real ids, because the config and the released processor name them by number.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strobe.core.families.family import transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families.flow_parts import VISION
from strobe.lerobot.policies.standins import TINY_VOCABULARY, Vocabulary, sizes, tokenizer
from strobe_zoo.qwen3 import TEMPLATE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NAME = "Qwen/Qwen2.5-VL-3B-Instruct"

# In the order of their ids, which end the vocabulary.
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
_FIRST = 151643  # the id of the first of them
_SIZE = 151665  # tokens of the tokenizer; the model has room for more
_ROOM = 64  # room for the tokens that a tiny policy adds
VOCABULARY = Vocabulary(
    _SIZE,
    (
        ("pad_token", "<|endoftext|>"),
        ("eos_token", "<|im_end|>"),
        *((token.strip("<|>"), token) for token in SPECIAL[1:] if token != "<|im_end|>"),
    ),
)

# Qwen2.5-VL-3B-Instruct, as the technical report and its config on the Hub have it.
_TEXT: dict[str, Any] = sizes(width=2048, mlp=11008, layers=36, heads=16, kv_heads=2) | {
    "vocab_size": 151936,
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    "tie_word_embeddings": True,
}
_VISION: dict[str, Any] = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "patch_size": 14,
    "window_size": 112,
    "out_hidden_size": 2048,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
_TINY_TEXT: dict[str, Any] = sizes(width=64, mlp=128, layers=2, heads=4, kv_heads=2) | {
    "vocab_size": TINY_VOCABULARY + _ROOM,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
}
_TINY_VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
    "fullatt_block_indexes": [1],
}


def seeing(tower: str) -> list[Probe]:
    """Return the parts of Qwen2.5-VL's vision tower at the path ``tower``, down to attention and MLP of each block."""
    return [
        Probe.module(tower, VISION),
        Probe.module(f"{tower}.patch_embed", "patch embedding", level=2),
        *transformer(f"{tower}.blocks", "block", attention="attn"),
        Probe.module(f"{tower}.merger", "merger", level=2),
    ]


def config_values(tiny: bool = False) -> dict[str, Any]:
    """Return the values of Qwen2.5-VL-3B's config, or of one of the same architecture shrunk."""
    text = {**_TEXT, **(_TINY_TEXT if tiny else {})}
    vision = {**_VISION, **(_TINY_VISION if tiny else {})}
    ids = {name: _place(token, tiny) for name, token in _NAMED.items()}
    ends = {"bos_token_id": _place("<|endoftext|>", tiny), "eos_token_id": _place("<|im_end|>", tiny)}
    values = {"text_config": text | ends, "vision_config": vision, "tie_word_embeddings": True, "dtype": "bfloat16"}
    return copy.deepcopy(values | ids)


_NAMED = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


def processor(tiny: bool = False, *, pil: bool = False, adds: Sequence[str] = ()) -> Any:
    """Return a processor like that of Qwen2.5-VL.

    Args:
        pil: whether images go through PIL, not torchvision.
        adds: special tokens that a model adds behind the vocabulary.
    """
    from transformers import Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    size = {"shortest_edge": 56 * 56, "longest_edge": 12845056}
    images = (Qwen2VLImageProcessorPil if pil else Qwen2VLImageProcessor)(size=size)
    videos = Qwen2VLVideoProcessor(size=dict(size))
    return Qwen2_5_VLProcessor(images, words(tiny, adds), videos, chat_template=TEMPLATE)


def _place(token: str, tiny: bool) -> int:
    return (TINY_VOCABULARY - len(SPECIAL) if tiny else _FIRST) + SPECIAL.index(token)


def words(tiny: bool, adds: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Return a placeholder for Qwen2.5's tokenizer, with the tokens that a model ``adds`` behind its vocabulary."""
    made = tokenizer_with_ids(VOCABULARY, {token: _place(token, tiny) for token in SPECIAL}, tiny)
    made.add_tokens(list(adds), special_tokens=True)
    return made


def tokenizer_with_ids(vocabulary: Vocabulary, ids: dict[str, int], tiny: bool) -> PreTrainedTokenizerFast:
    """Return a new placeholder tokenizer whose special tokens have these ``ids``; tokens may be added to it."""
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast

    made = json.loads(tokenizer(vocabulary, tiny).backend_tokenizer.to_str())
    numbers = made["model"]["vocab"]
    for token, place in ids.items():
        holder = next(other for other, number in numbers.items() if number == place)
        numbers[holder], numbers[token] = numbers[token], place
    made["added_tokens"] = []
    backend = Tokenizer.from_str(json.dumps(made))
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in ids])
    named = {name: token for name, token in vocabulary.special if name.endswith("_token")}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **named)
