"""SmolVLA (Shukor et al. 2025, LeRobot's ``policies/smolvla``): SmolVLM and an action expert, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from strobe.core.families.capabilities import Around, Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, transformer
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import flow_parts
from strobe.lerobot.policies.standins import TINY_VOCABULARY, TOKENIZERS, Vocabulary, sizes, tokenizer
from strobe.lerobot.sampling import Flow, Graphs

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy
    from transformers import SmolVLMConfig

JOINT = "model.vlm_with_expert"
VISION = f"{JOINT}.vlm.model.vision_model"
LANGUAGE = f"{JOINT}.vlm.model.text_model"
EXPERT = f"{JOINT}.lm_expert"

SMOLVLM = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"
VOCABULARY = Vocabulary(
    49280, (("unk_token", "<|endoftext|>"), ("bos_token", "<|im_start|>"), ("pad_token", "<|im_end|>"))
)


probes = always(
    # A layer is not called as a module here: its attention is a method, its MLP a module.
    *flow_parts.embeddings(JOINT, "prepare_images"),
    Probe.module(f"{VISION}.embeddings", "patch embedding", level=2),
    *transformer(f"{VISION}.encoder.layers", "block"),
    Probe.module(f"{JOINT}.vlm.model.connector", "connector", level=2),
    Probe.method(JOINT, "forward_attn_layer", "self-attention layers", level=2),
    Probe.method(JOINT, "forward_cross_attn_layer", "cross-attention layers", level=2),
    Probe.module(f"{JOINT}.vlm.model.text_model.layers.*.mlp", "MLP", level=2),
    Probe.module(f"{JOINT}.lm_expert.layers.*.mlp", "MLP", level=2),
)


inference = always(
    # As for every flow policy, with RTC.
    *flow_parts.sampling(JOINT),
    *flow_parts.RTC,
)


def training(_: PreTrainedPolicy) -> Sequence[Probe]:
    """Prefix and suffix together."""
    return flow_parts.joint_pass(JOINT)


_CONFIG: dict[str, Any] = {
    "scale_factor": 4,
    "image_token_id": 49190,
    "pad_token_id": 2,
    "tie_word_embeddings": False,
    "use_cache": False,
    "dtype": "float32",
    "text_config": {
        **sizes(width=960, mlp=2560, layers=32, heads=15, kv_heads=5, head_dim=64),
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": 49280,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000,
        "pad_token_id": 2,
    },
    "vision_config": {
        **sizes(width=768, mlp=3072, layers=12, heads=12),
        "image_size": 512,
        "patch_size": 16,
    },
}
_TINY_TEXT = sizes(width=48, mlp=96, layers=4, heads=3, kv_heads=1, head_dim=16) | {
    "vocab_size": TINY_VOCABULARY,
}
_TINY_VISION = sizes(width=32, mlp=64, layers=2, heads=2) | {
    "image_size": 64,
}


def backbone_config(tiny: bool = False) -> SmolVLMConfig:
    """Return the config of SmolVLM2-500M, or one of the same architecture shrunk."""
    from transformers import SmolVLMConfig

    values = _CONFIG
    if tiny:
        values = values | {
            "image_token_id": TINY_VOCABULARY - 1,
            "text_config": values["text_config"] | _TINY_TEXT,
            "vision_config": values["vision_config"] | _TINY_VISION,
        }
    return SmolVLMConfig.from_dict(deepcopy(values))


def suffix_pass(
    model: Any, cache: Any, embedded: Tensor, attention: Tensor, positions: Tensor, condition: Sequence[object]
) -> Tensor:
    """Run the action expert over the cache as LeRobot's ``denoise_step`` does; the cache is cropped to the prefix."""
    outputs, _ = model.vlm_with_expert.forward(
        attention_mask=attention,
        position_ids=positions,
        past_key_values=cache,
        inputs_embeds=[None, embedded],
        use_cache=model.config.use_cache,
    )
    if cache is not None:
        cache.crop(attention.shape[-1] - embedded.shape[1])
    return outputs[1]


def cross_attention_projections(model: Any) -> list[nn.Module]:
    """Return the projections of cross-attention: of the prefix's keys and values, which are the same in all steps."""
    joint = model.vlm_with_expert
    if "cross" not in joint.attention_mode:
        return []
    every, stride = joint.self_attn_every_n_layers, joint.num_vlm_layers // joint.num_expert_layers
    return [
        projection
        for position, layer in enumerate(joint.lm_expert.layers)
        if not (every > 0 and (position * stride) % every == 0)  # a self-attention layer: its keys are the step's own
        for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj)
    ]


def remove_mask_waits(policy: Any) -> list[Around]:
    """Let the vision tower see whole images without looking at the mask of their patches, which it makes itself."""
    vision = policy.get_submodule(VISION)
    return [
        (vision, "forward", lambda call: partial(_encode_whole_images, vision, call)),
        (vision.embeddings, "forward", lambda call: partial(_embed_whole_images, vision.embeddings, call)),
    ]


def _encode_whole_images(
    vision: Any, call: Call, pixel_values: Tensor, patch_attention_mask: object = None, **named: object
) -> object:
    if patch_attention_mask is not None:
        return call(pixel_values=pixel_values, patch_attention_mask=patch_attention_mask, **named)
    embedded = vision.embeddings(pixel_values=pixel_values, patch_attention_mask=None)
    encoded = vision.encoder(inputs_embeds=embedded, attention_mask=None).last_hidden_state
    return SimpleNamespace(last_hidden_state=vision.post_layernorm(encoded))


def _embed_whole_images(embeddings: Any, call: Call, pixel_values: Tensor, patch_attention_mask: object) -> Tensor:
    """As ``SmolVLMVisionEmbeddings.forward``, with positions that the host makes of the image's shape alone."""
    if patch_attention_mask is not None:
        return call(pixel_values=pixel_values, patch_attention_mask=patch_attention_mask)
    positions = _positions(
        type(embeddings), embeddings.image_size, embeddings.patch_size, pixel_values.shape, pixel_values.dtype
    )
    patches = embeddings.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
    return patches + embeddings.position_embedding(positions.to(pixel_values.device))


@cache
def _positions(kind: Any, image: int, patch: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    grid = shape[0], shape[2] // patch, shape[3] // patch
    looked_up: list[Tensor] = []
    stand_in = SimpleNamespace(
        patch_size=patch,
        num_patches_per_side=image // patch,
        patch_embedding=lambda _: torch.zeros(grid).unsqueeze(1),
        position_embedding=lambda numbers: looked_up.append(numbers) or torch.zeros(()),
    )
    kind.forward(stand_in, torch.zeros(shape, dtype=dtype), torch.ones(grid, dtype=torch.bool))
    return looked_up[0]


def _processor(tiny: bool) -> SimpleNamespace:
    return SimpleNamespace(tokenizer=tokenizer(VOCABULARY, tiny))


_MODELING = "lerobot.policies.smolvla.smolvlm_with_expert"

FAMILY = Family(
    "smolvla",
    ("smolvla",),
    probes,
    training=training,
    inference=inference,
    compiled=(("model", "sample_actions"), ("model", "forward")),
    costly=(VISION, LANGUAGE, EXPERT),
    tiny=Tiny({"resize_imgs_with_padding": (64, 64), "num_vlm_layers": 4, "num_expert_layers": -1}),
    capabilities=(
        Parts(
            seeing={flow_parts.VISION: VISION},
            working={
                "vision_model": (flow_parts.VISION,),
                "connector": (flow_parts.VISION,),
                "text_model": (flow_parts.PREFIX,),
                "lm_expert": (flow_parts.STEP, flow_parts.EXPERT),
            },
            caching={JOINT: (flow_parts.PREFIX, flow_parts.STEP, flow_parts.EXPERT)},
            sampling={"model": "model.sample_actions"},
        ),
        LiveFields(steps="num_steps"),
        Flow(
            joint=JOINT,
            language=LANGUAGE,
            expert=EXPERT,
            chunk="_get_action_chunk",
            images="prepare_images",
            suffix_pass=suffix_pass,
            attention_mask=lambda _, mask: mask,
            layers="methods",
            repeated=cross_attention_projections,
        ),
        Graphs(
            whole=("model", "sample_actions"),
            without_waits=remove_mask_waits,
            # Not the embedding as a whole: the vision tower's embeddings look at values on the host.
            embedding=(f"{VISION}.encoder", "forward", "vision encoder"),
        ),
        Construction(
            hub=(
                HubNeed(SMOLVLM, "tokenizer", *TOKENIZERS, partial(tokenizer, VOCABULARY)),
                HubNeed(SMOLVLM, "config", _MODELING, "AutoConfig", backbone_config),
                HubNeed(SMOLVLM, "processor", _MODELING, "AutoProcessor", _processor),
            ),
        ),
        InputFacts(fills_cameras=True, image_size="resize_imgs_with_padding"),
        Calls(seldom_looks=True),
    ),
)
