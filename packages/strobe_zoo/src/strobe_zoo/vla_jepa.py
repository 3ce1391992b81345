"""VLA-JEPA (Sun et al. 2026, LeRobot's ``policies/vla_jepa``): Qwen3-VL-2B, and a diffusion transformer on top.

Qwen writes into the hidden states of 32 tokens that stand for the action, and the transformer attends to those. In
training a world model on V-JEPA 2 also learns; inference never runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import transformers
from torch import nn
from transformers import AutoConfig

from strobe.core.families.capabilities import Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, transformer
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families.flow_parts import STEP, VISION
from strobe.lerobot.policies.standins import loading
from strobe.lerobot.sampling import Context, UnreadHead
from strobe_zoo import qwen3

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy
    from transformers import VJEPA2Config

QWEN = "model.qwen.model"
HEAD = "model.action_model"
QWEN3, VJEPA2 = "Qwen/Qwen3-VL-2B-Instruct", "facebook/vjepa2-vitl-fpc64-256"


probes = always(
    # The first part is on the host: the images and words are prepared inside of the policy.
    Probe.method("model.qwen", "build_inputs", "image and word processor"),
    *qwen3.probes(QWEN),
    Probe.module(f"{HEAD}.state_encoder", "state encoder", optional=True),
    Probe.module(f"{HEAD}.action_encoder", "action encoder"),
    Probe.module(f"{HEAD}.model", STEP),
    *transformer(f"{HEAD}.model.transformer_blocks", "block", attention="attn1", mlp="ff"),
    Probe.module(f"{HEAD}.action_decoder", "action decoder"),
)


def training(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """The world model: V-JEPA 2 encodes the clip, the predictor predicts it."""
    if not getattr(policy.config, "enable_world_model", False):
        return ()
    return [
        Probe.method("model.video_encoder", "get_vision_features", "video encoder"),
        Probe.module("model.video_predictor", "video predictor"),
    ]


def jepa_config(tiny: bool = False) -> VJEPA2Config:
    """Return the config of V-JEPA 2 ViT-L, 64 frames of 256 × 256, or one of the same architecture shrunk."""
    from transformers import VJEPA2Config

    sizes: dict[str, Any] = {"crop_size": 256, "frames_per_clip": 64}
    sizes |= {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    if tiny:
        sizes = {"crop_size": 64, "frames_per_clip": 8, "hidden_size": 32, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 2, "pred_hidden_size": 32, "pred_num_hidden_layers": 1}
        sizes |= {"pred_num_attention_heads": 2}
    config = VJEPA2Config(**sizes)
    config.image_size = sizes["crop_size"]  # as the published one has it; the predictor's grid follows it
    return config


def jepa_videos(tiny: bool = False) -> object:
    """Return the video processor of V-JEPA 2."""
    from transformers import VJEPA2VideoProcessor

    crop = jepa_config(tiny).crop_size
    return VJEPA2VideoProcessor(crop_size=crop, size={"shortest_edge": int(crop * 256 / 224)})


def backbones(config: object, tiny: bool) -> AbstractContextManager[None]:
    """Return a context in which LeRobot makes both backbones from their configs, with random weights."""

    def make_loader(make: Call) -> Call:
        def make_backbone(name: str, torch_dtype: object = None, **_: object) -> object:
            return make(AutoConfig.from_pretrained(name), dtype=torch_dtype).eval()  # as from_pretrained leaves it

        return make_backbone

    qwen, towers = transformers.Qwen3VLForConditionalGeneration, transformers.AutoModel
    return loading(
        {
            f"{_FOLDER}.qwen_interface:Qwen3VLForConditionalGeneration": make_loader(qwen._from_config),
            f"{_FOLDER}.modeling_vla_jepa:AutoModel": make_loader(towers.from_config),
        }
    )


def context(policy: Any) -> list[nn.Module]:
    """Return the projections of the action tokens' hidden states to keys and values, in every other block."""
    blocks = policy.model.action_model.model.transformer_blocks
    crossing = [block.attn1 for block in blocks if block.is_cross_attention]
    return [layer for attn in crossing for layer in (attn.to_k, attn.to_v)]


_HERE, _FOLDER = __name__, "lerobot.policies.vla_jepa"

FAMILY = Family(
    "vla_jepa",
    ("vla_jepa",),
    probes,
    training=training,
    compiled=((f"{HEAD}.model", "forward"),),
    costly=(f"{QWEN}.model.language_model", f"{QWEN}.model.visual", f"{HEAD}.model"),
    tiny=Tiny(
        {
            "action_model_type": "DiT-test",
            "action_hidden_size": 32,
            "action_num_layers": 4,
            "predictor_depth": 1,
            "predictor_num_heads": 2,
        }
    ),
    capabilities=(
        Parts(seeing={VISION: f"{QWEN}.model.visual"}),
        LiveFields(steps="num_inference_timesteps"),
        Construction(
            hub=(
                HubNeed(QWEN3, "config", _HERE, "AutoConfig", qwen3.config),
                HubNeed(VJEPA2, "config", _HERE, "AutoConfig", jepa_config),
                HubNeed(QWEN3, "processor", f"{_FOLDER}.qwen_interface", "AutoProcessor", qwen3.processor),
                HubNeed(VJEPA2, "video processor", f"{_FOLDER}.modeling_vla_jepa", "AutoVideoProcessor", jepa_videos),
            ),
            building=backbones,
        ),
        InputFacts(reads_words=True),
        Calls(seldom_looks=True),
        UnreadHead(f"{QWEN}.lm_head"),
        Context(context),
    ),
)
