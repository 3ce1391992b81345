"""SmolVLA (Shukor et al. 2025, LeRobot's ``policies/smolvla``): SmolVLM and an action expert, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from lerobot.policies.pretrained import PreTrainedPolicy

from strobe.subjects.anatomies import flow, rtc
from strobe.subjects.anatomy import Anatomy, blocks, register
from strobe.timeline.probe import Probe

JOINT = "model.vlm_with_expert"
VISION = f"{JOINT}.vlm.model.vision_model"


def probes(_: PreTrainedPolicy) -> Sequence[Probe]:
    """A layer is not called as a module here: its attention is a method, its MLP a module."""
    return [
        *flow.embeddings(JOINT, "prepare_images"),
        Probe.module(f"{VISION}.embeddings", "patch embedding", level=2),
        blocks(f"{VISION}.encoder.layers", "block"),
        Probe.module(f"{VISION}.encoder.layers.*.self_attn", "attention", level=3),
        Probe.module(f"{VISION}.encoder.layers.*.mlp", "MLP", level=3),
        Probe.module(f"{JOINT}.vlm.model.connector", "connector", level=2),
        Probe.method(JOINT, "forward_attn_layer", "self-attention layers", level=2),
        Probe.method(JOINT, "forward_cross_attn_layer", "cross-attention layers", level=2),
        Probe.module(f"{JOINT}.vlm.model.text_model.layers.*.mlp", "MLP", level=2),
        Probe.module(f"{JOINT}.lm_expert.layers.*.mlp", "MLP", level=2),
    ]


def inference(_: PreTrainedPolicy) -> Sequence[Probe]:
    """As for every flow policy, with RTC."""
    return [*flow.sampling(JOINT), *rtc.PROBES]


def training(_: PreTrainedPolicy) -> Sequence[Probe]:
    """Prefix and suffix together."""
    return flow.joint_pass(JOINT)


register(
    Anatomy(
        "smolvla",
        ("smolvla",),
        probes,
        training=training,
        inference=inference,
        compiled=(("model", "sample_actions"), ("model", "forward")),
    )
)
