"""VQ-BeT (Lee et al. 2024, LeRobot's ``policies/vqbet``): a small GPT picks codes of actions, and an offset to each.

The first ``n_vqvae_training_steps`` training steps learn the codes alone: ``--policy.n_vqvae_training_steps=1`` shows
the steps after those.
"""

from __future__ import annotations

from lerobot.utils.constants import OBS_IMAGE

from strobe.core.families.capabilities import Arm, Calls, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, transformer
from strobe.core.timeline.probe import Probe
from strobe_zoo.queued import queued_chunk

HEAD = "vqbet.action_head"


probes = always(
    # None of them runs in the training steps that learn the codes.
    Probe.module("vqbet.rgb_encoder", "image encoder", optional=True),
    Probe.module("vqbet.rgb_encoder.backbone", "backbone", level=2, optional=True),
    Probe.module("vqbet.rgb_encoder.pool", "spatial softmax", level=2, optional=True),
    Probe.module("vqbet.rgb_feature_projector", "image projection", optional=True),
    Probe.module("vqbet.state_projector", "state projection", optional=True),
    Probe.module("vqbet.policy", "GPT", optional=True),
    *transformer("vqbet.policy.transformer.h", "block", attention="attn"),
    Probe.module(HEAD, "action head", optional=True),
    Probe.module(f"{HEAD}.vqvae_model.decoder", "VQ decoder", level=2),
)


training = always(
    # The codes: learnt in the first steps, and looked up in those after.
    Probe.method(HEAD, "discretize", "VQ-VAE", optional=True),
    Probe.method(HEAD, "loss_fn", "loss", optional=True),
)


FAMILY = Family(
    "vqbet",
    ("vqbet",),
    probes,
    training=training,
    compiled=(("vqbet.rgb_encoder", "forward"), ("vqbet.policy", "forward")),
    costly=("vqbet.rgb_encoder", "vqbet.policy"),
    tiny=Tiny(
        {
            "crop_shape": (56, 56),
            "gpt_input_dim": 64,
            "gpt_output_dim": 64,
            "gpt_hidden_dim": 64,
            "gpt_n_layer": 2,
            "gpt_n_head": 2,
            "vqvae_embedding_dim": 32,
            "vqvae_enc_hidden_dim": 32,
        }
    ),
    capabilities=(
        Parts(seeing={"image encoder": "vqbet.rgb_encoder"}),
        LiveFields(live=("bet_softmax_temperature",)),
        InputFacts(
            arm=Arm(cameras=(OBS_IMAGE,), image=(96, 96)),  # PushT's, which LeRobot's own policy was trained on
            stacked=True,
        ),
        Calls(chunk=queued_chunk, seldom_looks=True),
    ),
)
