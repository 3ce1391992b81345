"""EO-1 (Qu et al. 2025, LeRobot's ``policies/eo1``): Qwen2.5-VL that denoises actions as tokens of its own sequence.

Its prefix fills the language model's cache once; each denoising step runs the same language model over the chunk's
tokens, and crops the cache back.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import yaml

from strobe.core.families.capabilities import Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import flow_parts
from strobe.lerobot.policies.standins import loading
from strobe_zoo import qwen

MODELING = "lerobot.policies.eo1.modeling_eo1"
BACKBONE = "model.vlm_backbone.model"
VISION, LANGUAGE = f"{BACKBONE}.visual", f"{BACKBONE}.language_model"
PIXELS = 56 * 56  # pixels of a tiny policy's image: 4 tokens


probes = always(
    # The vision tower takes all cameras at once.
    Probe.method("model", "embed_prefix", "prefix embedding"),
    *qwen.seeing(VISION),
    *transformer(f"{LANGUAGE}.layers", "layer"),
    Probe.method("model", "embed_suffix", "suffix embedding"),
    Probe.module("model.action_out_proj", "action head"),
)


def _filling(*_: object, past_key_values: object = None, **__: object) -> bool:
    return past_key_values is None


def _reading(*_: object, past_key_values: object = None, **__: object) -> bool:
    return past_key_values is not None


inference = always(
    # One language model fills the cache, and then reads it in each denoising step.
    Probe.module(LANGUAGE, flow_parts.PREFIX, when=_filling),
    Probe.function(f"{MODELING}:euler_integrate", flow_parts.STEP, argument="denoise_fn"),
    Probe.module(LANGUAGE, flow_parts.EXPERT, when=_reading),
)


training = always(
    # Prefix and chunk are one sequence.
    Probe.module(LANGUAGE, "joint transformer"),
)


def backbone(config: Any, tiny: bool) -> AbstractContextManager[None]:
    """Return a context in which the backbone is made from ``config`` alone."""
    from transformers import Qwen2_5_VLForConditionalGeneration as Qwen

    def make_backbone(_: str, *, dtype: object = "auto", attn_implementation: str | None = None) -> object:
        values = config.vlm_backbone_config
        given = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
        return Qwen._from_config(values, dtype=values.dtype if dtype == "auto" else dtype, **given)

    return loading({f"{MODELING}:Qwen2_5_VLForConditionalGeneration": make_backbone})


# As YAML, which LeRobot reads flags as: JSON's 1e-06 would be a text to it.
_WRITTEN = yaml.safe_dump(qwen.config_values(), default_flow_style=True, width=sys.maxsize).strip()

FAMILY = Family(
    "eo1",
    ("eo1",),
    probes,
    training=training,
    inference=inference,
    compiled=(("model", "sample_actions"), ("model", "forward")),
    costly=(LANGUAGE, VISION),
    tiny=Tiny(
        {"vlm_config": qwen.config_values(tiny=True), "image_min_pixels": PIXELS, "image_max_pixels": PIXELS},
    ),
    capabilities=(
        Parts(
            seeing={flow_parts.VISION: VISION},
            working={
                "visual": (flow_parts.VISION,),
                "language_model": (flow_parts.PREFIX, flow_parts.STEP, flow_parts.EXPERT),
            },
        ),
        LiveFields(steps="num_denoise_steps"),
        Construction(
            flags=(f"--vlm_config={_WRITTEN}",),  # else it is fetched while the config is made
            building=backbone,
            hub=(
                HubNeed(
                    qwen.NAME,
                    "processor",
                    "lerobot.policies.eo1.processor_eo1",
                    "Qwen2_5_VLProcessor",
                    partial(qwen.processor, pil=True),
                ),
            ),
        ),
        InputFacts(reads_words=True),
        Calls(seldom_looks=True),
    ),
)
