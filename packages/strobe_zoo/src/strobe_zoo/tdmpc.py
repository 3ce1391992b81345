"""TD-MPC (Hansen et al. 2022, with FOWM's changes; LeRobot's ``policies/tdmpc``): planning in a learnt latent space.

A chunk is a plan: in each iteration of the cross-entropy method some hundred trajectories are drawn, rolled out and
valued. Only the first action of a plan is executed, and the next plan starts from this one; here each starts afresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from lerobot.utils.constants import OBS_IMAGE
from torch import Tensor, nn

from strobe.core.families.capabilities import Arm, Calls, Construction, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always
from strobe.core.subjects.subject import Batch
from strobe.core.timeline.probe import Probe
from strobe.lerobot.policies.standins import replacing
from strobe_zoo.queued import queued_chunk

ENCODER, ACTOR, DYNAMICS, VALUE = "observation encoder", "actor", "latent dynamics", "value estimate"


probes = always(
    # Parts of planning and of training.
    Probe.method("model", "encode", ENCODER),
    Probe.module("model._encoder.image_enc_layers", "image encoder", level=2, optional=True),
    Probe.method("model", "pi", ACTOR),
)


inference = always(
    # The actor's own trajectories go through the dynamics once; all are valued in each iteration.
    Probe.method("model", "latent_dynamics", DYNAMICS),
    Probe.method("", "estimate_value", VALUE),
    Probe.method("model", "latent_dynamics_and_reward", "dynamics and reward", level=2),
    Probe.method("model", "Qs", "Q ensemble", level=2),
)


training = always(
    # The heads, and those of the target model, whose weights follow.
    Probe.method("model", "latent_dynamics_and_reward", "dynamics and reward"),
    Probe.method("model", "Qs", "Q ensemble"),
    Probe.method("model", "V", "value head"),
    Probe.method("model_target", "encode", "target encoder"),
    Probe.method("model_target", "Qs", "target Q ensemble"),
)


def _image(policy: Any, batch: Batch) -> Batch:
    cameras = list(policy.config.image_features)
    return {OBS_IMAGE: batch[cameras[0]]} if cameras else {}


def chunk(policy: object, batch: Batch, options: Mapping[str, object]) -> Tensor:
    """Return the plan, (B, horizon, action dim), which LeRobot has the other way round."""
    return queued_chunk(policy, batch, options, images=_image).transpose(0, 1)


def building(_: object, __: bool) -> AbstractContextManager[None]:
    """Return a context in which the heads of reward and value begin with random weights, as the other layers do.

    LeRobot begins them at zero: every trajectory would be worth the same, and no error in them could be seen.
    """
    from lerobot.policies.tdmpc.modeling_tdmpc import TDMPCTOLD

    zeroed = TDMPCTOLD._init_weights

    def init(model: Any) -> None:
        zeroed(model)
        for head in (model._reward, *model._Qs):
            nn.init.orthogonal_(head[-1].weight)

    return replacing({f"{TDMPCTOLD.__module__}:TDMPCTOLD._init_weights": init})


FAMILY = Family(
    "tdmpc",
    ("tdmpc",),
    probes,
    training=training,
    inference=inference,
    compiled=(("model", "latent_dynamics"), ("model", "latent_dynamics_and_reward"), ("model", "Qs")),
    costly=("model._Qs", "model._dynamics", "model._reward"),
    tiny=Tiny(
        {
            "latent_dim": 16,
            "mlp_dim": 32,
            "image_encoder_hidden_dim": 8,
            "state_encoder_hidden_dim": 32,
            "n_gaussian_samples": 64,
        }
    ),
    capabilities=(
        Parts(
            seeing={ENCODER: "model._encoder"},
            working={
                "_encoder": (ENCODER,),
                "_pi": (ACTOR,),
                "_dynamics": (VALUE, DYNAMICS),
                "_reward": (VALUE,),
                "_Qs": (VALUE,),
            },
        ),
        LiveFields(live=("cem_iterations", "n_gaussian_samples", "n_pi_samples", "n_elites")),
        Construction(building=building),
        InputFacts(
            arm=Arm(cameras=(OBS_IMAGE,), image=(84, 84)),  # the size of the images that it was published with
            any_image_size=True,
        ),
        Calls(chunk=chunk, seldom_looks=True),
    ),
)
