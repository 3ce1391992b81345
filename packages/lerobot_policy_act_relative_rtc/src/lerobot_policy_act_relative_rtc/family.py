"""The policy in Strobe's words; imported by Strobe only, through the entry point ``strobe.families``."""

from __future__ import annotations

from collections.abc import Sequence

from lerobot.policies.pretrained import PreTrainedPolicy

from strobe.core.families.capabilities import InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, blocks
from strobe.core.timeline.probe import Probe


def probes(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """Parts of a chunk; the image parts are there only for a policy that sees."""
    found = [
        Probe.module("model.encoder", "encoder"),
        blocks("model.encoder.layers", "layer"),
        Probe.module("model.encoder.layers.*.attention", "attention", level=3),
        Probe.module("model.decoder", "decoder"),
        blocks("model.decoder.layers", "layer"),
        Probe.module("model.decoder.layers.*.self_attention", "self-attention", level=3),
        Probe.module("model.decoder.layers.*.cross_attention", "cross-attention", level=3),
        Probe.module("model.action_head", "action head"),
    ]
    if policy.config.image_features:
        found += [
            Probe.module("model.backbone", "backbone"),
            Probe.module("model.backbone.*", "{}", level=2),
            Probe.module("model.image_projection", "image projection"),
        ]
    return found


def training(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """The VAE encoder sees the actions to be learnt; it does not run at inference."""
    if not getattr(policy.config, "use_vae", False):
        return ()
    return [Probe.module("model.vae_encoder", "VAE encoder"), blocks("model.vae_encoder.layers", "layer")]


FAMILY = Family(
    "act_relative_rtc",
    ("act_relative_rtc",),
    probes,
    training=training,
    compiled=(("model", "forward"),),
    costly=("model.backbone", "model.encoder", "model.decoder"),
    tiny=Tiny(
        {
            "dim_model": 64,
            "dim_feedforward": 128,
            "n_encoder_layers": 2,
            "n_vae_encoder_layers": 2,
            "latent_dim": 8,
        }
    ),
    capabilities=(
        Parts(seeing={"backbone": "model.backbone", "image projection": "model.image_projection"}),
        LiveFields(live=("prefix_attention",), live_in_training=("delay_training",)),
        InputFacts(any_image_size=True),
    ),
)
