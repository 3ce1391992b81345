"""The Gaussian actor of HIL-SERL (Luo et al. 2024, LeRobot's ``policies/gaussian_actor``): one action a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from strobe.core.families.capabilities import Arm, Calls, InputFacts, Parts
from strobe.core.families.family import Family, Tiny
from strobe.core.subjects.subject import Batch
from strobe.core.timeline.probe import Probe

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy

_DISTRIBUTION = "lerobot.policies.gaussian_actor.modeling_gaussian_actor:TanhMultivariateNormalDiag"


def probes(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """The images of all cameras go through one encoder together; the encoder joins them with the state.

    torch's distributions take longer than the small nets: they check their arguments, and log_prob inverts the tanh.
    """
    model: Any = policy
    parts = [
        Probe.module("actor.encoder", "encoder"),
        Probe.module("actor.encoder.state_encoder", "state encoder", level=2, optional=True),
        Probe.module("actor.network", "network"),
        Probe.module("actor.mean_layer", "mean head"),
        Probe.module("actor.std_layer", "deviation head", optional=True),
        Probe.function(f"{_DISTRIBUTION}.__init__", "distribution"),
        Probe.function(f"{_DISTRIBUTION}.rsample", "sampling"),
        Probe.function(f"{_DISTRIBUTION}.log_prob", "log-probability"),
        Probe.module("discrete_critic", "discrete critic", optional=True),
    ]
    if model.actor.encoder.has_images:
        parts += [
            Probe.method("actor.encoder", "get_cached_image_features", "image features"),
            Probe.module("actor.encoder.image_encoder", "image encoder", level=2),
            Probe.module("actor.encoder.spatial_embeddings.*", "spatial embedding", level=2),
            Probe.module("actor.encoder.post_encoders.*", "image projection", level=2),
        ]
    return parts


def chunk(policy: Any, batch: Batch, options: Mapping[str, object]) -> Tensor:
    """Return the one action that a call gives, as a chunk of length 1."""
    return policy.select_action(batch, **options)[:, None]


FAMILY = Family(
    "gaussian_actor",
    ("gaussian_actor",),
    probes,
    compiled=(("actor.encoder", "forward"), ("actor.network", "forward")),
    costly=("actor.encoder", "actor.network"),
    tiny=Tiny({"latent_dim": 32, "image_encoder_hidden_dim": 8, "state_encoder_hidden_dim": 32}),
    capabilities=(
        Parts(seeing={"image encoder": "actor.encoder.image_encoder"}),
        InputFacts(
            arm=Arm(image=(128, 128)),  # HIL-SERL's
        ),
        Calls(chunk=chunk, untrained="its loss lives in lerobot.rl, with the critics and the replay buffer"),
    ),
)
