"""LingBot-VA (LeRobot's ``policies/lingbot_va``): a video model of Wan 2.2 that denoises a clip, then its actions.

The policy has a state: its cache grows from chunk to chunk with predicted and observed frames, so that a chunk's length
and cost depend on earlier ones. A chunk here is the first of an episode: a reset, the prompt through the text encoder
(which runs once an episode), one frame through the VAE, and 12 actions. Later chunks have 16 actions and two more
passes, for the observed frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from strobe.core.families.capabilities import (
    Arm,
    Around,
    Calls,
    Construction,
    HubNeed,
    InputFacts,
    LiveFields,
    Parts,
    Unregistered,
)
from strobe.core.families.family import Family, Tiny, always, blocks
from strobe.core.subjects.subject import Batch
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families.flow_parts import STEP
from strobe.lerobot.policies.standins import replacing
from strobe.lerobot.sampling import Context, UnreadHalf
from strobe_zoo import wan

BASE = "robbyant/lingbot-va-base"
VIDEO_STEP = "video denoise step"


def _is_action_call(*_: object, action_mode: bool = False, **__: object) -> bool:
    return action_mode


def _is_video_call(*_: object, action_mode: bool = False, **__: object) -> bool:
    return not action_mode


probes = always(
    # One transformer for both: 21 passes over the video's latents, then 51 over the actions.
    Probe.method("", "_encode_prompt", "text encoder"),
    Probe.method("", "_encode_frames", "VAE encoder"),
    Probe.method("transformer", "forward", VIDEO_STEP, when=_is_video_call),
    Probe.method("transformer", "forward", STEP, when=_is_action_call),
    blocks("transformer.blocks", "block"),
    Probe.module("transformer.blocks.*.attn1", "self-attention", level=3),
    Probe.module("transformer.blocks.*.attn2", "cross-attention", level=3),
    Probe.module("transformer.blocks.*.ffn", "MLP", level=3),
)


def chunk(policy: Any, batch: Batch, options: Mapping[str, object]) -> Tensor:
    """Return an episode's first chunk."""
    policy.reset()
    return policy.predict_action_chunk(batch, **options)


def randomize_frozen_parts(_: object, tiny: bool) -> AbstractContextManager[None]:
    """Return a context in which the VAE and the text encoder are made with random weights, without the Hub."""

    def load_vae(*_: object, torch_dtype: object, **__: object) -> object:
        return wan.vae(tiny, torch_dtype)

    def load_text_encoder(*_: object, torch_dtype: object, **__: object) -> object:
        return wan.text_encoder(tiny, torch_dtype)

    modeling = "lerobot.policies.lingbot_va.modeling_lingbot_va"
    return replacing({f"{modeling}:load_vae": load_vae, f"{modeling}:load_text_encoder": load_text_encoder})


def settle(policy: Any, preprocessor: object) -> None:
    """Load what LeRobot loads at the first chunk: VAE, text encoder, tokenizer."""
    policy._ensure_frozen_modules()
    if preprocessor is not None:  # the weights are there
        policy._frozen["text_encoder"].to(policy.config.text_encoder_device)


def frozen_modules(policy: Any) -> list[nn.Module]:
    """Return the VAE, one or two, and the text encoder, which are in a plain dictionary."""
    held = policy._frozen
    streaming = [held[name].vae for name in ("streaming_vae", "streaming_vae_half") if name in held]
    return [*streaming, *([held["text_encoder"]] if held else [])]


def context(policy: Any) -> list[nn.Module]:
    """Return the modules that see only the prompt: its projection, then each block's keys and values."""
    transformer = policy.transformer
    crossing = [block.attn2 for block in transformer.blocks]
    projections = [module for attn in crossing for module in (attn.to_k, attn.norm_k, attn.to_v)]
    return [transformer.condition_embedder.text_embedder, *projections]


def unread_half(policy: Any) -> list[Around]:
    """Return the passes over actions without the negative prompt's half; [] if the actions are guided.

    With guidance of the video alone both halves run in all passes, and the actions are taken from the first. The pass
    that writes the cache keeps both: the next chunk's video reads them.
    """

    def is_action_unguided() -> bool:
        return policy.config.action_guidance_scale <= 1 and policy.config.guidance_scale > 1

    def wrap_call(forward: Call) -> Call:
        def call(inputs: dict[str, Any], update_cache: int = 0, cache_name: str = "pos", **modes: object) -> object:
            skips_half = (
                modes.get("action_mode") and update_cache == 0 and not torch.is_grad_enabled() and is_action_unguided()
            )
            if not skips_half or len(inputs["noisy_latents"]) != 2:
                return forward(inputs, update_cache=update_cache, cache_name=cache_name, **modes)
            held = [
                (block.attn1.attn_caches, block.attn1.attn_caches[cache_name]) for block in policy.transformer.blocks
            ]
            try:
                for caches, cache in held:  # views: what a pass writes there is taken back by the mask, which is shared
                    caches[cache_name] = cache | {"k": cache["k"][:1], "v": cache["v"][:1]}
                first = {name: value[:1] for name, value in inputs.items()}
                return forward(first, update_cache=0, cache_name=cache_name, **modes)
            finally:
                for caches, cache in held:
                    caches[cache_name] = cache

        return call

    return [(policy.transformer, "forward", wrap_call)] if is_action_unguided() else []


FAMILY = Family(
    "lingbot_va",
    ("lingbot_va",),
    probes,
    costly=("transformer",),
    tiny=Tiny(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 24,  # three axes of positions share it
            "text_dim": wan.TINY_WIDTH,
            "freq_dim": 32,
            "ffn_dim": 64,
            "num_layers": 2,
            "height": 64,
            "width": 64,
        }
    ),
    capabilities=(
        Parts(working={"transformer": (STEP, VIDEO_STEP)}),
        LiveFields(
            steps="action_num_inference_steps",
            live=("num_inference_steps", "guidance_scale", "action_guidance_scale"),
        ),
        Context(context),
        UnreadHalf(unread_half),
        Construction(
            hub=(HubNeed(BASE, "tokenizer", "lerobot.policies.lingbot_va.utils", "T5TokenizerFast", wan.words),),
            building=randomize_frozen_parts,
            settle=settle,
        ),
        InputFacts(
            arm=Arm(
                cameras=("observation.images.image", "observation.images.image2"),
                image=(256, 256),
                tiny_image=(64, 64),
                state=8,
                action=7,
            ),
            reads_words=True,
        ),
        Calls(chunk=chunk),
        Unregistered(outside=frozen_modules),
    ),
)
