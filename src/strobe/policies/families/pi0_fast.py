"""pi0-FAST (Pertsch et al. 2025, LeRobot's ``policies/pi0_fast``): PaliGemma that writes actions as tokens.

The prefix pass ends with the first token, and each further token is a pass of its own, until the policy writes "|" or
has written ``max_decoding_steps``. Random weights hardly ever write "|", and so show the longest chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lerobot.policies.pretrained import PreTrainedPolicy

from strobe.policies.families import flow_parts, pi
from strobe.policies.families.family import Family, HubNeed, Tiny, blocks
from strobe.policies.families.fast_tokens import fast_tokens
from strobe.policies.families.pi import JOINT, LANGUAGE, PALIGEMMA, VISION
from strobe.policies.vocabulary import TOKENIZERS, tokenizer
from strobe.timeline.probe import Probe

HEAD = f"{JOINT}.paligemma.lm_head"
FAST = "lerobot/fast-action-tokenizer"

TOKEN, TOKEN_HEAD = "token", "token head"


def _first(*_: Any, use_cache: bool = False, past_key_values: Any = None, **__: Any) -> bool:
    return bool(use_cache) and past_key_values is None


def _further(*_: Any, use_cache: bool = False, past_key_values: Any = None, **__: Any) -> bool:
    return not _first(use_cache=use_cache, past_key_values=past_key_values)


def probes(_: PreTrainedPolicy) -> Sequence[Probe]:
    """The vision tower runs once a camera, the head once a token: it is as wide as the whole vocabulary."""
    layers = f"{VISION}.vision_model.encoder.layers"
    return [
        Probe.method("", "_preprocess_images", "image resize"),
        Probe.method(JOINT, "embed_image", flow_parts.VISION),
        blocks(layers, "block"),
        Probe.module(f"{layers}.*.self_attn", "attention", level=3),
        Probe.module(f"{layers}.*.mlp", "MLP", level=3),
        Probe.module(f"{JOINT}.paligemma.model.multi_modal_projector", "projector", level=2),
        Probe.method(JOINT, "embed_language_tokens", "language embedding"),
        blocks(f"{LANGUAGE}.layers", "layer"),
        Probe.module(f"{LANGUAGE}.layers.*.self_attn", "attention", level=3),
        Probe.module(f"{LANGUAGE}.layers.*.mlp", "MLP", level=3),
        Probe.module(HEAD, TOKEN_HEAD),
    ]


def inference(_: PreTrainedPolicy) -> Sequence[Probe]:
    """One section for the prefix and one for each token; without a cache every token runs the whole sequence."""
    return [
        Probe.method(JOINT, "forward", flow_parts.PREFIX, when=_first, optional=True),
        Probe.method(JOINT, "forward", TOKEN, when=_further),
        Probe.method("", "detokenize_actions", "detokenise"),
    ]


def training(_: PreTrainedPolicy) -> Sequence[Probe]:
    """Prompt and action tokens go through the language model together."""
    return [Probe.method(JOINT, "forward", "language model")]


_MODELING = "lerobot.policies.pi0_fast.modeling_pi0_fast"

FAMILY = Family(
    "pi0_fast",
    ("pi0_fast",),
    probes,
    training=training,
    inference=inference,
    compiled=((JOINT, "embed_image"), ("model", "forward")),
    costly=(LANGUAGE, HEAD, VISION),
    seeing={flow_parts.VISION: VISION},
    working={
        "vision_tower": (flow_parts.VISION,),
        "multi_modal_projector": (flow_parts.VISION,),
        "language_model": (TOKEN, flow_parts.PREFIX),
        "lm_head": (TOKEN_HEAD,),
    },
    live=("max_decoding_steps", "temperature", "use_kv_cache"),
    tiny=Tiny({"image_resolution": (28, 28)}),
    flags=("--validate_action_token_prefix=false",),  # random weights do not begin with "Action:"
    building=pi.backbones,
    hub=(
        HubNeed(PALIGEMMA, "tokenizer", *TOKENIZERS, partial(tokenizer, pi.VOCABULARY)),
        HubNeed(PALIGEMMA, "tokenizer", _MODELING, "AutoTokenizer", partial(tokenizer, pi.VOCABULARY)),
        HubNeed(FAST, "processor", _MODELING, "AutoProcessor", fast_tokens),
        HubNeed(FAST, "processor", TOKENIZERS[0], "AutoProcessor", fast_tokens),
    ),
    fills_cameras=True,
    image_size="image_resolution",
)
