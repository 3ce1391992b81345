"""FastWAM (LeRobot's ``policies/fastwam``): a video model of Wan 2.2 and an action expert, layer by layer.

At inference the video half runs once over one frame and fills a cache that the action half's denoising steps read.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from strobe.core.families.capabilities import (
    Arm,
    Calls,
    Construction,
    HubNeed,
    InputFacts,
    LiveFields,
    Parts,
    Unregistered,
)
from strobe.core.families.family import Family, Tiny, always, blocks
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families.flow_parts import PREFIX, STEP
from strobe.lerobot.policies.standins import loading
from strobe.lerobot.sampling import Context, Words
from strobe_zoo import wan

if TYPE_CHECKING:
    from torch import nn

MOT = "model.mot"
COMPONENTS = "lerobot.policies.fastwam.wan.components"


probes = always(
    # A layer holds a block of each half; which of the two runs is an argument.
    Probe.method("model", "encode_prompt", "text encoder"),
    blocks(f"{MOT}.layers", "layer"),
)


inference = always(
    # One frame, once; then the steps, each with its embedding and its head.
    Probe.method("model", "_encode_input_image_latents_tensor", "VAE encoder"),
    Probe.method(f"{MOT}.mixtures.video", "pre_dit", "video embedding"),
    Probe.method(MOT, "prefill_video_cache", PREFIX),
    Probe.method("model", "_predict_action_noise_with_cache", STEP),
    Probe.method(MOT, "forward_action_with_video_cache", "action layers", level=2),
)


training = always(
    # A clip of several frames, and both halves at once.
    Probe.method("model", "_encode_video_latents", "VAE encoder"),
    Probe.method(f"{MOT}.mixtures.video", "pre_dit", "video embedding"),
    Probe.method(f"{MOT}.mixtures.action", "pre_dit", "action embedding"),
    Probe.method(MOT, "forward", "joint transformer"),
    Probe.method(f"{MOT}.mixtures.video", "post_dit", "video head"),
    Probe.method(f"{MOT}.mixtures.action", "post_dit", "action head"),
)


_TINY = {
    "num_heads": 2,
    "attn_head_dim": 16,
    "num_layers": 2,
    "hidden_dim": 32,
    "ffn_dim": 64,
    "freq_dim": 32,
    "text_dim": wan.TINY_WIDTH,
}


def randomize_frozen_parts(config: Any, tiny: bool) -> AbstractContextManager[None]:
    """Return a context in which the VAE and the text encoder are made with random weights.

    In bfloat16 the policy does not run on a CPU: LeRobot 0.6.1 opens an autocast of CUDA around its time embedding.
    """
    if config.device == "cpu" and config.torch_dtype != "float32":
        logging.warning("in float32: LeRobot's FastWAM does not run in %s on a CPU", config.torch_dtype)
        config.torch_dtype = "float32"
    if tiny:
        config.video_dit_config = config.video_dit_config | _TINY
        config.action_dit_config = config.action_dit_config | _TINY | {"hidden_dim": 16, "ffn_dim": 32}

    def making(make: Call) -> Call:
        return lambda *_, torch_dtype, **__: make(tiny, torch_dtype)

    return loading(
        {
            f"{COMPONENTS}:AutoencoderKLWan": making(wan.vae),
            f"{COMPONENTS}:UMT5EncoderModel": making(wan.text_encoder),
        }
    )


def frozen_modules(policy: Any) -> list[nn.Module]:
    """Return the VAE and the text encoder, which the policy does not register."""
    return [module for module in (policy.model.vae, policy.model.text_encoder) if module is not None]


def context(policy: Any) -> list[nn.Module]:
    """Return the modules of the action expert that see only the prompt: its projection, each layer's keys and values.

    The state is a token of the prompt here, which is the same in all steps too.
    """
    crossing = [layer.blocks["action"].cross_attn for layer in policy.model.mot.layers]
    expert = policy.model.mot.mixtures["action"]
    return [expert.text_embedding, *(module for attn in crossing for module in (attn.k, attn.norm_k, attn.v))]


FAMILY = Family(
    "fastwam",
    ("fastwam",),
    probes,
    training=training,
    inference=inference,
    compiled=((MOT, "forward_action_with_video_cache"),),
    costly=(MOT,),
    tiny=Tiny({"image_size": (64, 128)}),
    capabilities=(
        Parts(working={"mot": (PREFIX, STEP)}),
        LiveFields(steps="num_inference_steps"),
        Context(context),
        Words(("model", "encode_prompt"), lambda policy: policy.model.text_encoder),
        Construction(
            hub=(HubNeed(wan.UMT5, "tokenizer", COMPONENTS, "AutoTokenizer", wan.words),),
            flags=("--base_model_id=null",),  # else its config points at a checkpoint on the Hub
            building=randomize_frozen_parts,
        ),
        InputFacts(arm=Arm(image=(224, 224), tiny_image=(64, 64), state=8, action=7, instead=True), reads_words=True),
        Unregistered(outside=frozen_modules),
        Calls(seldom_looks=True),
    ),
)
