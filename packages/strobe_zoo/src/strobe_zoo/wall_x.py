"""WALL-OSS (X Square Robot 2025, LeRobot's ``policies/wall_x``): Qwen2.5-VL, and an expert for actions.

There is no cache: in each of its 10 steps the language model runs over the whole sequence, which ends with the chunk's
tokens. Other tokens attend only to earlier ones; action tokens attend to each other both ways.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from strobe.core.families.capabilities import Calls, Construction, InputFacts, Parts
from strobe.core.families.family import Family, Tiny, always, blocks
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import flow_parts
from strobe.lerobot.policies.standins import loading
from strobe.lerobot.sampling import Rerun
from strobe_zoo import qwen

MODELING = "lerobot.policies.wall_x.modeling_wall_x"
VISION, LANGUAGE, HEAD = "model.visual", "model.model", "model.action_preprocessor"

_DIMS = 20  # dimensions of the padded action and state
_ACTION_EXPERT = 2048  # width of the MLP that action tokens go through, in addition to the language model's own
_TOKENS = ("<|propri|>", "<|action|>")


probes = always(
    # The policy itself makes the prompt and the pixels; the vision tower takes all cameras at once.
    Probe.method("", "preprocess_inputs", "prompt and pixels"),
    *qwen.seeing(VISION),
    Probe.method(HEAD, "proprioception_proj", "state projection"),
    Probe.module(LANGUAGE, "language model"),
    blocks(f"{LANGUAGE}.layers", "layer"),
    Probe.module(f"{LANGUAGE}.layers.*.self_attn", "attention", level=3),
    Probe.module(f"{LANGUAGE}.layers.*.moe", "experts", level=3),
)


inference = always(
    # An ODE solver calls the denoising step.
    Probe.method(HEAD, "step", "suffix embedding"),
    Probe.module(f"{HEAD}.action_proj_back", "action head"),
    Probe.function(f"{MODELING}:odeint", flow_parts.STEP, argument="func"),
)


training = always(
    # The prompt's words are learnt too.
    Probe.module(HEAD, "suffix embedding"),
    Probe.module("model.lm_head", "words head"),
    Probe.method(HEAD, "flow_loss", "action head"),
)


def backbone_config(tiny: bool = False) -> Any:
    """Return the config of the released model, or one of the same architecture shrunk."""
    from lerobot.policies.wall_x.qwen_model.configuration_qwen2_5_vl import Qwen2_5_VLConfig

    values: dict[str, Any] = qwen.config_values(tiny) | {"agent_pos_config": {"state": _DIMS}}
    text = values["text_config"]
    width, activation = text["hidden_size"], "silu"
    widths = (text["intermediate_size"], 96 if tiny else _ACTION_EXPERT)
    text |= {
        "vocab_size": len(qwen.words(tiny, _TOKENS)),
        "num_experts": len(widths),
        "experts": [{"hidden_size": width, "intermediate_size": each, "hidden_act": activation} for each in widths],
        "dim_inputs": [width] * len(widths),
        "mlp_moe": True,
        "dof_config": {"action": _DIMS},
    }
    return Qwen2_5_VLConfig(**values)


@contextlib.contextmanager
def backbone(_: object, tiny: bool) -> Iterator[Sequence[str]]:
    """While open, the model and its processor are placeholders, and no weights are fetched."""
    from lerobot.policies.wall_x import modeling_wall_x

    real, names = modeling_wall_x.Qwen2_5_VLMoEForAction, list[str]()

    def make_backbone(
        pretrained_name_or_path: str,
        action_tokenizer_path: str | None,
        attn_implementation: str,
        vision_attn_implementation: str,
    ) -> object:
        config, processor, actions = backbone_config(tiny), qwen.processor(tiny, adds=_TOKENS), None
        if action_tokenizer_path is not None:  # of the mode 'fast'
            actions = modeling_wall_x.AutoProcessor.from_pretrained(action_tokenizer_path, trust_remote_code=True)
            processor.action_processor = actions
        config._attn_implementation = attn_implementation
        config.pad_token_id = config.text_config.pad_token_id = processor.tokenizer.pad_token_id
        why = "local placeholders, because the released ones come with the weights"
        names.append(f"config and processor {pretrained_name_or_path}: {why}")
        return real(
            config,
            processor=processor,
            action_tokenizer=actions,
            vision_attn_implementation=vision_attn_implementation,
        )

    with loading({f"{MODELING}:Qwen2_5_VLMoEForAction": make_backbone}):
        yield names


FAMILY = Family(
    "wall_x",
    ("wall_x",),
    probes,
    training=training,
    inference=inference,
    compiled=((VISION, "forward"), (LANGUAGE, "forward")),
    costly=(LANGUAGE, VISION),
    tiny=Tiny({}),
    capabilities=(
        Parts(
            seeing={flow_parts.VISION: VISION},
            working={"visual": (flow_parts.VISION,), LANGUAGE: (flow_parts.STEP,)},
        ),
        Rerun(LANGUAGE, "predict_action_chunk", "moe_token_types"),
        Construction(building=backbone),
        InputFacts(reads_words=True),
        Calls(seldom_looks=True),
    ),
)
