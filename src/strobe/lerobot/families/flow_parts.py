"""Probes that the flow-matching policies share: a prefix pass fills the KV cache once, then denoising steps read it.

They run one module for three purposes. Its embeddings show which one: prefix only (fill the cache), suffix only (a
denoising step), both (training).
"""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.timeline.probe import Probe

VISION, PREFIX, STEP, EXPERT = "vision tower", "prefix KV cache", "denoise step", "action expert"


def _both(*_: object, inputs_embeds: Sequence[object], **__: object) -> bool:
    return inputs_embeds[0] is not None and inputs_embeds[1] is not None


def embeddings(joint: str, resize: str) -> list[Probe]:
    """Images and words to tokens. ``joint``: path of the module that holds both transformers."""
    return [
        Probe.method("", resize, "image resize"),
        Probe.method(joint, "embed_image", VISION),
        Probe.method(joint, "embed_language_tokens", "language embedding"),
        Probe.method("model", "embed_suffix", "suffix embedding"),
        Probe.module("model.action_out_proj", "action head"),
    ]


def sampling(joint: str) -> list[Probe]:
    """Inference: the prefix pass, and the denoising steps with the action expert in them."""
    return [
        Probe.method(joint, "forward", PREFIX, when=lambda *_, inputs_embeds, **__: inputs_embeds[1] is None),
        Probe.method("model", "denoise_step", STEP),
        Probe.method(joint, "forward", EXPERT, when=lambda *_, inputs_embeds, **__: inputs_embeds[0] is None),
    ]


def joint_pass(joint: str) -> list[Probe]:
    """Training: prefix and suffix through both transformers at once."""
    return [Probe.method(joint, "forward", "joint transformer", when=_both)]


# Real-Time Chunking (Black et al. 2025, LeRobot's ``policies/rtc``): the guidance around each denoising step.
#
#     RTC step = denoise step (the policy's own) + prefix weights + autograd correction + other
#
# The probes are on the class and on ``torch.autograd.grad`` as RTC calls it, so they fit every flow policy. Without
# RTC, or without a previous chunk, none of them fires.

_RTC_MODULE = "lerobot.policies.rtc.modeling_rtc"

RTC_STEP = "RTC step"
_RTC_WEIGHTS = "prefix weights"
_RTC_AUTOGRAD = "autograd correction"

RTC = (
    Probe.function(f"{_RTC_MODULE}:RTCProcessor.denoise_step", RTC_STEP, optional=True),
    Probe.function(f"{_RTC_MODULE}:RTCProcessor.get_prefix_weights", _RTC_WEIGHTS, optional=True),
    Probe.function(f"{_RTC_MODULE}:torch.autograd.grad", _RTC_AUTOGRAD, optional=True),
)
