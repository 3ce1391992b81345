"""pi0 and pi0.5 (Physical Intelligence; LeRobot's ``policies/pi0``, ``policies/pi05``): PaliGemma and action expert."""

from __future__ import annotations

from collections.abc import Sequence

from lerobot.policies.pretrained import PreTrainedPolicy

from strobe.subjects.anatomies import flow, rtc
from strobe.subjects.anatomy import Anatomy, blocks, register
from strobe.timeline.probe import Probe

JOINT = "model.paligemma_with_expert"
VISION = f"{JOINT}.paligemma.model.vision_tower"
LANGUAGE = f"{JOINT}.paligemma.model.language_model"
EXPERT = f"{JOINT}.gemma_expert.model"


def probes(_: PreTrainedPolicy) -> Sequence[Probe]:
    """The vision tower runs once a camera; its section holds the projector and the casts around it."""
    layers = f"{VISION}.vision_model.encoder.layers"
    return [
        *flow.embeddings(JOINT, "_preprocess_images"),
        Probe.module(f"{VISION}.vision_model.embeddings", "patch embedding", level=2),
        blocks(layers, "block"),
        Probe.module(f"{layers}.*.self_attn", "attention", level=3),
        Probe.module(f"{layers}.*.mlp", "MLP", level=3),
        Probe.module(f"{JOINT}.paligemma.model.multi_modal_projector", "projector", level=2),
    ]


def inference(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """Both transformers' layers have a forward pass of their own only when they run apart."""
    modeling = type(policy).__module__
    found = [
        *flow.sampling(JOINT),
        *rtc.PROBES,
        Probe.function(f"{modeling}:clone_past_key_values", "KV cache clone", optional=True),
    ]
    for path in (LANGUAGE, EXPERT):
        found += [
            blocks(f"{path}.layers", "layer"),
            Probe.module(f"{path}.layers.*.self_attn", "attention", level=3),
            Probe.module(f"{path}.layers.*.mlp", "MLP", level=3),
        ]
    return found


def training(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """Training goes through the layers of both transformers by a function of its own."""
    modeling = type(policy).__module__
    return [*flow.joint_pass(JOINT), Probe.function(f"{modeling}:compute_layer_complete", "joint layer", level=2)]


register(
    Anatomy(
        "pi",
        ("pi05", "pi0"),
        probes,
        training=training,
        inference=inference,
        compiled=(("model", "sample_actions"), ("model", "forward")),
    )
)
