"""pi0 and pi0.5 (Physical Intelligence; LeRobot's ``policies/pi0``, ``policies/pi05``): PaliGemma and action expert."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from strobe.core.families.capabilities import Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, transformer
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import flow_parts
from strobe.lerobot.policies.standins import TINY_VOCABULARY, TOKENIZERS, Vocabulary, replacing, tokenizer
from strobe.lerobot.sampling import Attention, Flow, Graphs

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy

JOINT = "model.paligemma_with_expert"
VISION = f"{JOINT}.paligemma.model.vision_tower"
LANGUAGE = f"{JOINT}.paligemma.model.language_model"
EXPERT = f"{JOINT}.gemma_expert.model"

PALIGEMMA = "google/paligemma-3b-pt-224"
VOCABULARY = Vocabulary(
    257152,
    (("pad_token", "<pad>"), ("eos_token", "<eos>"), ("bos_token", "<bos>"), ("unk_token", "<unk>")),
    begins=True,
)


def probes(_: PreTrainedPolicy) -> Sequence[Probe]:
    """The vision tower runs once a camera; its section holds the projector and the casts around it."""
    layers = f"{VISION}.vision_model.encoder.layers"
    return [
        *flow_parts.embeddings(JOINT, "_preprocess_images"),
        Probe.module(f"{VISION}.vision_model.embeddings", "patch embedding", level=2),
        *transformer(layers, "block"),
        Probe.module(f"{JOINT}.paligemma.model.multi_modal_projector", "projector", level=2),
    ]


def inference(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """Both transformers' layers have a forward pass of their own only when they run one after the other."""
    modeling = type(policy).__module__
    parts = [
        *flow_parts.sampling(JOINT),
        *flow_parts.RTC,
        Probe.function(f"{modeling}:clone_past_key_values", "KV cache clone", optional=True),
    ]
    return [*parts, *transformer(f"{LANGUAGE}.layers", "layer"), *transformer(f"{EXPERT}.layers", "layer")]


def training(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """Training goes through the layers of both transformers by a function of its own."""
    modeling = type(policy).__module__
    return [*flow_parts.joint_pass(JOINT), Probe.function(f"{modeling}:compute_layer_complete", "joint layer", level=2)]


def backbones(config: Any, tiny: bool) -> AbstractContextManager[None]:
    """Return a context in which a tiny policy of ``config`` has a tiny PaliGemma; its config has no size that small."""
    if not tiny:
        return nullcontext()
    name = f"lerobot.policies.{config.type}.modeling_{config.type}"
    modeling: Any = importlib.import_module(name)
    paligemma = "PaliGemmaForConditionalGenerationWithPiGemma"
    return replacing(
        {
            f"{name}:get_gemma_config": _tiny_gemma(modeling.GemmaConfig),
            f"{name}:CONFIG_MAPPING": _TinyMapping(modeling.CONFIG_MAPPING),
            f"{name}:{paligemma}": _tiny_paligemma(getattr(modeling, paligemma), config.image_resolution[0]),
        }
    )


def _tiny_gemma(kind: Call) -> Call:
    def get_gemma_config(variant: str) -> object:
        # LeRobot reshapes to 8 heads whatever the config says, and the expert shares the backbone's.
        width = 64 if variant == "gemma_2b" else 32
        return kind(width=width, depth=2, mlp_dim=2 * width, num_heads=8, num_kv_heads=1, head_dim=8)

    return get_gemma_config


class _TinyMapping:
    """transformers' CONFIG_MAPPING with the vocabulary of the expert cut down."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getitem__(self, name: str) -> Call:
        kind = self.real[name]

        def make(**kwargs: object) -> object:
            if kwargs.get("vocab_size") == VOCABULARY.size:
                kwargs["vocab_size"] = TINY_VOCABULARY
            return kind(**kwargs)

        return make


def _tiny_paligemma(real: Call, side: int) -> Call:
    def make(config: Any) -> object:
        # LeRobot has written the full sizes into the config by now.
        config._vocab_size = TINY_VOCABULARY
        config.image_token_index = TINY_VOCABULARY
        config.text_config.vocab_size = TINY_VOCABULARY
        vision = config.vision_config
        vision.hidden_size = 32
        vision.intermediate_size = 64
        vision.num_hidden_layers = 2
        vision.num_attention_heads = 2
        vision.image_size = side  # pi0-FAST leaves it at 224, whatever its images' resolution
        vision.projection_dim = config.text_config.hidden_size
        return real(config=config)

    return make


def suffix_pass(
    model: Any, cache: Any, embedded: Tensor, attention: Tensor, positions: Tensor, condition: Sequence[object]
) -> Tensor:
    """Run the action expert over a copy of the cache, as LeRobot's ``denoise_step`` does; openpi's needs no copy."""
    modeling, joint = sys.modules[type(model).__module__], model.paligemma_with_expert
    clone = getattr(modeling, "clone_past_key_values", None)
    joint.gemma_expert.model.config._attn_implementation = "eager"  # as both set it in every step
    outputs, _ = joint.forward(
        attention_mask=attention,
        position_ids=positions,
        past_key_values=cache if clone is None else clone(cache),
        inputs_embeds=[None, embedded],
        use_cache=False,
        adarms_cond=[None, *condition],
    )
    return outputs[1]


def attention_mask(model: Any, mask: Tensor) -> Tensor:
    """Return the additive mask, (B, 1, suffix, prefix + suffix), of a boolean one."""
    return sys.modules[type(model).__module__].prepare_attention_masks_4d(mask)


FAMILY = Family(
    "pi",
    ("pi05", "pi0"),
    probes,
    training=training,
    inference=inference,
    compiled=(("model", "sample_actions"), ("model", "forward")),
    costly=(LANGUAGE, VISION, EXPERT),
    tiny=Tiny({"image_resolution": (28, 28)}),
    capabilities=(
        Parts(
            seeing={flow_parts.VISION: VISION},
            working={
                "vision_tower": (flow_parts.VISION,),
                "multi_modal_projector": (flow_parts.VISION,),
                "language_model": (flow_parts.PREFIX,),
                "gemma_expert": (flow_parts.STEP, flow_parts.EXPERT),
            },
            caching={LANGUAGE: (flow_parts.PREFIX,), EXPERT: (flow_parts.STEP, flow_parts.EXPERT)},
            sampling={"model": "model.sample_actions"},
        ),
        LiveFields(steps="num_inference_steps"),
        Flow(
            joint=JOINT,
            language=LANGUAGE,
            expert=EXPERT,
            chunk="predict_action_chunk",
            images="_preprocess_images",
            suffix_pass=suffix_pass,
            attention_mask=attention_mask,
            clone="clone_past_key_values",
        ),
        Graphs(whole=("model", "sample_actions"), embedding=("model", "embed_prefix", "prefix embedding")),
        Attention(eager=frozenset({"language_model", "gemma_expert"})),
        Construction(
            building=backbones,
            hub=(HubNeed(PALIGEMMA, "tokenizer", *TOKENIZERS, partial(tokenizer, VOCABULARY)),),
        ),
        InputFacts(fills_cameras=True, image_size="image_resolution"),
        Calls(seldom_looks=True),
    ),
)
