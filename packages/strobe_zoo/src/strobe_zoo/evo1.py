"""EVO-1 (Lin et al. 2025, LeRobot's ``policies/evo1``): InternVL3-1B, and an action head that denoises its own way.

The head has no cache and no causal order: in each of 32 steps the whole chunk attends to the fused tokens of images and
words in 8 blocks of cross-attention, t from 0 to 1.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from strobe.core.families.capabilities import Arm, Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import flow_parts
from strobe.lerobot.policies.standins import TINY_VOCABULARY, Vocabulary, loading, sizes
from strobe.lerobot.sampling import Attention, Context, Views
from strobe_zoo import qwen

if TYPE_CHECKING:
    from torch import nn
    from transformers import InternVLConfig, PreTrainedTokenizerFast

EMBEDDER = "model.embedder.model"
VISION, PROJECTOR, LANGUAGE = (f"{EMBEDDER}.{n}" for n in ("vision_tower", "multi_modal_projector", "language_model"))
HEAD = "model.action_head"
BLOCKS = f"{HEAD}.transformer_blocks"

INTERNVL = "OpenGVLab/InternVL3-1B-hf"
# The ids of the released model, in its config too.
_SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<img>": 151665,
    "</img>": 151666,
    "<IMG_CONTEXT>": 151667,
}
VOCABULARY = Vocabulary(
    151674,
    (
        ("pad_token", "<|endoftext|>"),
        ("eos_token", "<|im_end|>"),
        *((token.strip("<|>/"), token) for token in _SPECIAL if token.startswith(("<|im_s", "<img", "<IMG"))),
        ("image_end", "</img>"),
    ),
)

# InternVL3-1B (Zhu et al. 2025, arXiv:2504.10479), as its config on the Hub has it.
_TEXT: dict[str, Any] = sizes(width=896, mlp=4864, layers=24, heads=14, kv_heads=2) | {
    "model_type": "qwen2",
    "vocab_size": 151674,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
_VISION: dict[str, Any] = sizes(width=1024, mlp=4096, layers=24, heads=16) | {
    "attention_bias": True,
    "image_size": 448,
    "patch_size": 14,
}
_SIDE, _WIDTH = 56, 64  # of a tiny policy's images in pixels, which make 4 tokens, and of its tokens
_TINY_TEXT = sizes(width=_WIDTH, mlp=128, layers=3, heads=4, kv_heads=2) | {
    "vocab_size": TINY_VOCABULARY,
}
_TINY_VISION = sizes(width=32, mlp=64, layers=2, heads=2) | {
    "image_size": _SIDE,
}


probes = always(
    # The vision tower sees three views, whether there are that many cameras or not.
    Probe.module(VISION, flow_parts.VISION),
    *transformer(f"{VISION}.encoder.layer", "block", attention="attention"),
    Probe.module(PROJECTOR, "projector"),
    Probe.module(LANGUAGE, "language model"),
    *transformer(f"{LANGUAGE}.layers", "layer"),
    Probe.module(f"{HEAD}.state_encoder", "state encoder", optional=True),
    Probe.method(HEAD, "_project_actions", "action encoder"),
    Probe.module(f"{BLOCKS}.*", "cross-attention blocks"),
    Probe.module(f"{BLOCKS}.*.attn", "cross-attention", level=2),
    Probe.module(f"{BLOCKS}.*.ff", "MLP", level=2),
    Probe.module(f"{HEAD}.norm_out", "final norm"),
    Probe.module(f"{HEAD}.seq_pool_proj", "pooling"),
    Probe.module(f"{HEAD}.mlp_head", "action head"),
)


inference = always(
    # A denoising step is a stretch of the loop in ``get_action``: from the action encoder to the head.
    Probe(flow_parts.STEP, HEAD, "_project_actions", until=(f"{HEAD}.mlp_head", "forward")),
    *flow_parts.RTC,
)


def backbone_config(tiny: bool = False) -> InternVLConfig:
    """Return the config of InternVL3-1B, or one of the same architecture shrunk."""
    from transformers import InternVLConfig

    text, vision, ids = dict(_TEXT), dict(_VISION), _ids(tiny)
    if tiny:
        text |= _TINY_TEXT
        vision |= _TINY_VISION
    text |= {"bos_token_id": ids["<|endoftext|>"], "eos_token_id": ids["<|im_end|>"]}
    values: dict[str, Any] = {
        "text_config": copy.deepcopy(text),
        "vision_config": vision,
        "image_token_id": ids["<IMG_CONTEXT>"],
        "image_seq_length": (vision["image_size"] // vision["patch_size"] // 2) ** 2,
    }
    return InternVLConfig(**values)


def _ids(tiny: bool) -> dict[str, int]:
    return {token: TINY_VOCABULARY - 1 - place for place, token in enumerate(_SPECIAL)} if tiny else _SPECIAL


def _tokenizer(tiny: bool) -> PreTrainedTokenizerFast:
    return qwen.tokenizer_with_ids(VOCABULARY, _ids(tiny), tiny)


def backbone(_: object, tiny: bool) -> AbstractContextManager[None]:
    """Return a context in which the backbone is made with random weights."""
    from transformers import AutoModel

    def make_backbone(_: str, *, torch_dtype: object, attn_implementation: str, **__: object) -> object:
        return AutoModel.from_config(backbone_config(tiny), dtype=torch_dtype, attn_implementation=attn_implementation)

    return loading({f"{_EMBEDDER_MODULE}:AutoModel": make_backbone})


_EMBEDDER_MODULE = "lerobot.policies.evo1.internvl3_embedder"


def attentions(policy: Any) -> list[nn.Module]:
    """Return the attention of each block of a step, which projects the same context in every step."""
    return [block.attn for block in policy.model.action_head.transformer_blocks]


FAMILY = Family(
    "evo1",
    ("evo1",),
    probes,
    inference=inference,
    compiled=((EMBEDDER, "forward"), (HEAD, "get_action"), (HEAD, "forward")),
    costly=(HEAD, VISION, LANGUAGE),
    tiny=Tiny(
        {
            "image_resolution": (_SIDE, _SIDE),
            "vlm_num_layers": 2,
            "embed_dim": _WIDTH,
            "hidden_dim": 32,
            "state_hidden_dim": 32,
            "num_heads": 4,
            "num_layers": 2,
        }
    ),
    capabilities=(
        Parts(
            seeing={flow_parts.VISION: VISION},
            working={
                "vision_tower": (flow_parts.VISION,),
                "language_model": ("language model",),
                "action_head": (flow_parts.STEP,),
            },
        ),
        LiveFields(steps="num_inference_timesteps"),
        Views(EMBEDDER, "max_views"),
        Context(attentions),
        Attention(unread_weights=True),
        Construction(
            hub=(HubNeed(INTERNVL, "tokenizer", _EMBEDDER_MODULE, "AutoTokenizer", _tokenizer),),
            building=backbone,
        ),
        InputFacts(arm=Arm(most=3), image_size="image_resolution", reads_words=True),
        Calls(seldom_looks=True),
    ),
)
