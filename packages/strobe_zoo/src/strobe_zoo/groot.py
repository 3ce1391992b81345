"""GR00T N1.7 (NVIDIA 2025, LeRobot's ``policies/groot``): half of a Qwen3-VL, and a diffusion transformer on top.

The transformer's blocks attend by turns to the tokens of the backbone and to themselves; there is no cache. Weights
are float32 under bfloat16 autocast, so that each call casts them.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

import torch

from strobe.core.families.capabilities import Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, blocks, transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families.flow_parts import STEP, VISION
from strobe.lerobot.policies.standins import replacing
from strobe.lerobot.sampling import Context, Graphs, UnreadHead
from strobe_zoo import qwen3

QWEN = "_groot_model.backbone.model"
HEAD = "_groot_model.action_head"
COSMOS = "nvidia/Cosmos-Reason2-2B"


probes = always(
    # Down to attention and MLP of each block; all of it is modules.
    *qwen3.probes(QWEN),
    Probe.module(f"{HEAD}.vl_self_attention", "context self-attention"),
    blocks(f"{HEAD}.vl_self_attention.transformer_blocks", "block"),
    Probe.module(f"{HEAD}.state_encoder", "state encoder"),
    Probe.module(f"{HEAD}.action_encoder", "action encoder"),
    Probe.module(f"{HEAD}.model", STEP),
    *transformer(f"{HEAD}.model.transformer_blocks", "block", attention="attn1", mlp="ff"),
    Probe.module(f"{HEAD}.action_decoder", "action decoder"),
)


_TINY: dict[str, Any] = {
    "backbone_embedding_dim": 64,
    "select_layer": 2,
    "hidden_size": 32,
    "input_embedding_dim": 32,
    "max_num_embodiments": 12,
}
_TINY_STEP = {"num_layers": 4, "num_attention_heads": 2, "attention_head_dim": 16, "output_dim": 32}
_TINY_CONTEXT = {"num_layers": 1, "num_attention_heads": 4, "attention_head_dim": 16}


def backbones(config: Any, tiny: bool) -> AbstractContextManager[None]:
    """Return a context in which LeRobot makes GR00T N1.7 from the numbers that it holds itself, without the Hub."""
    folder = "lerobot.policies.groot"
    inside = importlib.import_module(f"{folder}.groot_n1_7")
    instead: dict[str, object] = {f"{folder}.modeling_groot:GR00TN17": _Random(inside, config, tiny)}
    if tiny:
        made = qwen3.config(tiny=True)
        instead[f"{inside.__name__}:_cosmos_reason2_qwen3_vl_config"] = lambda *_, **__: made
    return replacing(instead)


class _Random:
    """Takes the place of LeRobot's ``GR00TN17``: random weights, and the rest as its ``from_pretrained`` has it."""

    def __init__(self, inside: Any, config: Any, tiny: bool) -> None:
        self.inside, self.config, self.tiny = inside, config, tiny

    def from_pretrained(self, pretrained_model_name_or_path: str, **options: object) -> torch.nn.Module:
        options.pop("transformers_loading_kwargs", None)
        tuned = {name: options.pop(f"tune_{name}") for name in ("projector", "diffusion_model", "vlln")}
        values = {**options, **{f"tune_{name}": value for name, value in tuned.items()}}
        if self.tiny:
            defaults = deepcopy(self.inside.GR00T_N1_7_DEFAULTS)
            values |= _TINY
            values["diffusion_model_cfg"] = defaults["diffusion_model_cfg"] | _TINY_STEP
            values["vl_self_attention_cfg"] = defaults["vl_self_attention_cfg"] | _TINY_CONTEXT
        model = self.inside.GR00TN17(self.inside.GR00TN17Config(**values), load_backbone_weights=False)
        if not self.config.model_params_fp32:  # as its weights are saved; LeRobot widens them otherwise
            model.to(torch.bfloat16)
        return model


def settle(_: object, preprocessor: Any) -> None:
    """Make the processor of images and words, which LeRobot makes at the first observation."""
    for step in () if preprocessor is None else preprocessor.steps:
        getattr(step, "proc", None)


def context(policy: Any) -> list[torch.nn.Module]:
    """Return the projections of the backbone's tokens to keys and values, in every other block."""
    step = policy._groot_model.action_head.model
    stride = 2 if step.config.interleave_self_attention else 1  # blocks of odd number attend to themselves
    return [layer for block in step.transformer_blocks[::stride] for layer in (block.attn1.to_k, block.attn1.to_v)]


_PROCESSOR = "lerobot.policies.groot.processor_groot"

FAMILY = Family(
    "groot",
    ("groot",),
    probes,
    compiled=((f"{HEAD}.model", "forward"),),
    costly=(f"{QWEN}.model.language_model", f"{HEAD}.model", f"{QWEN}.model.visual"),
    tiny=Tiny({}),
    capabilities=(
        Parts(seeing={VISION: f"{QWEN}.model.visual"}),
        LiveFields(steps="num_inference_timesteps"),
        Construction(
            hub=(
                HubNeed(COSMOS, "tokenizer", _PROCESSOR, "AutoTokenizer", qwen3.chatting),
                HubNeed(COSMOS, "image processor", _PROCESSOR, "Qwen2VLImageProcessor", qwen3.images),
                HubNeed(COSMOS, "video processor", _PROCESSOR, "Qwen3VLVideoProcessor", qwen3.videos),
            ),
            flags=("--num_inference_timesteps=4",),  # the config leaves it to the checkpoint, where it is 4
            building=backbones,
            settle=settle,
        ),
        UnreadHead(f"{QWEN}.lm_head"),
        Context(context),
        # transformers' Qwen3-VL looks at values on the host: a ladder says where, and goes on to the loop.
        Graphs(whole=("_groot_model", "get_action"), loop=(HEAD, "get_action_with_features")),
        InputFacts(reads_words=True),
        Calls(seldom_looks=True),
    ),
)
