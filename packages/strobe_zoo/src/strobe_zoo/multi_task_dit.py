"""Multi-task DiT (LeRobot's ``policies/multi_task_dit``): CLIP sees and reads, a diffusion transformer acts.

It learns by diffusion or by flow matching, ``--policy.objective``; each has its own number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.functional import silu

from strobe.core.families.capabilities import Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, blocks
from strobe.core.timeline.probe import Probe
from strobe.lerobot.policies.standins import TINY_VOCABULARY, TOKENIZERS, Vocabulary, replacing, sizes, tokenizer
from strobe.lerobot.sampling import Conditioning, Words
from strobe_zoo.queued import queued_chunk

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy

SEEING, READING = "observation_encoder.vision_encoder", "observation_encoder.text_encoder"
EACH = "observation_encoder.vision_encoders"

CLIP = "openai/clip-vit-base-patch16"
VOCABULARY = Vocabulary(
    49408,
    (
        ("bos_token", "<|startoftext|>"),
        ("eos_token", "<|endoftext|>"),
        ("unk_token", "<|endoftext|>"),
        ("pad_token", "<|endoftext|>"),
    ),
    begins=True,
    ends=True,
)
TINY_IMAGE = 32
_SMALL: dict[str, Any] = sizes(width=32, mlp=64, layers=2, heads=2)


def probes(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """The encoders run once a chunk, the transformer once a step; one vision encoder sees all cameras at once."""
    config: Any = policy.config
    layers = f"{READING}.text_encoder.text_model.encoder.layers"
    parts = [
        Probe.module(READING, "text encoder"),
        blocks(layers, "block"),
        Probe.module("noise_predictor", "denoise step"),
        Probe.module("noise_predictor.time_mlp", "step embedding", level=2),
        blocks("noise_predictor.transformer_blocks", "block"),
        Probe.module("noise_predictor.transformer_blocks.*.adaLN_modulation", "modulation", level=3),
        Probe.module("noise_predictor.transformer_blocks.*.mlp", "MLP", level=3),
    ]
    attention = "attn" if config.use_rope else "multihead_attn"
    parts.append(Probe.module(f"noise_predictor.transformer_blocks.*.{attention}", "attention", level=3))
    parts += [Probe.module(f"{layers}.*.{step}", name, level=3) for step, name in _INSIDE]
    if config.image_features:
        per_camera = config.use_separate_rgb_encoder_per_camera
        encoder = f"{EACH}.*" if per_camera else SEEING
        each = f"{encoder}.model.vision_model.encoder.layers.*"
        parts += [
            Probe.module(encoder, "vision encoder {}" if per_camera else "vision encoder"),
            Probe.module(each, "block {} {}" if per_camera else "block {}", level=2),
            *(Probe.module(f"{each}.{step}", name, level=3) for step, name in _INSIDE),
        ]
    return parts


_INSIDE = (("self_attn", "attention"), ("mlp", "MLP"))


def inference(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """Diffusion has a scheduler that turns each prediction into the next sample; flow matching adds them up."""
    model: Any = policy
    if not model.config.is_diffusion:
        return ()
    return [Probe.method("objective.noise_scheduler", "step", "scheduler step")]


def observation_modulation(_: object, __: int, conditioning_vec: Tensor) -> Tensor:
    """Return the observation's part of each block's modulation input; the timestep's features come before it."""
    return silu(conditioning_vec)


def modulations(policy: Any) -> list[nn.Module]:
    """Return the layer of each block that makes its shifts, scales and gates."""
    return [block.adaLN_modulation[-1] for block in policy.noise_predictor.transformer_blocks]


def _vision(tiny: bool) -> nn.Module:
    """Return CLIP-B/16's vision encoder with random weights, or a tiny one."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    sizes: dict[str, Any] = {"patch_size": 16, **(_SMALL | {"image_size": TINY_IMAGE} if tiny else {})}
    return CLIPVisionModel(CLIPVisionConfig(**sizes))


def _text(tiny: bool) -> nn.Module:
    """Return CLIP-B/16's text encoder with random weights, or a tiny one. It reads at the token that ends the text."""
    from transformers import CLIPTextConfig, CLIPTextModel

    words = tokenizer(VOCABULARY, tiny)
    special: dict[str, Any] = {name: getattr(words, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    small: dict[str, Any] = _SMALL | {"vocab_size": TINY_VOCABULARY} if tiny else {}
    return CLIPTextModel(CLIPTextConfig(**special, **small))


def building(_: object, __: bool) -> AbstractContextManager[None]:
    """Return a context in which the modulation of the transformer's blocks begins with random weights.

    LeRobot begins it at zero (adaLN-Zero), which closes the gate of every block: the actions would depend on none of
    them, and no error in them could be seen.
    """
    return replacing({f"{_MODELING}:DiffusionTransformer._initialize_weights": lambda _: None})


_MODELING = "lerobot.policies.multi_task_dit.modeling_multi_task_dit"

FAMILY = Family(
    "multi_task_dit",
    ("multi_task_dit",),
    probes,
    inference=inference,
    compiled=(("noise_predictor", "forward"),),
    costly=("noise_predictor", SEEING, EACH, READING),
    tiny=Tiny(
        {
            "image_crop_shape": (TINY_IMAGE, TINY_IMAGE),
            "hidden_dim": 32,
            "num_layers": 2,
            "num_heads": 2,
            "timestep_embed_dim": 32,
        },
        defaults={"num_inference_steps": 10},
    ),
    capabilities=(
        Parts(seeing={"vision encoder": SEEING}),
        LiveFields(
            steps="num_inference_steps",
            objectives={"flow_matching": "num_integration_steps"},
            every_step="num_train_timesteps",
        ),
        Conditioning(("objective", "conditional_sample"), observation_modulation, modulations),
        Words((READING, "forward"), lambda policy: policy.get_submodule(READING)),
        Construction(
            building=building,
            hub=(
                HubNeed(CLIP, "tokenizer", *TOKENIZERS, partial(tokenizer, VOCABULARY)),
                HubNeed(CLIP, "weights", _MODELING, "CLIPVisionModel", _vision),
                HubNeed(CLIP, "weights", _MODELING, "CLIPTextModel", _text),
            ),
        ),
        Calls(chunk=queued_chunk, seldom_looks=True),
        InputFacts(image_size="image_crop_shape", stacked=True),
    ),
)
