"""ACT: Action Chunking with Transformers (Zhao et al. 2023, LeRobot's ``policies/act``), and ACT-Smooth.

ACT-Smooth is the plug-in ``lerobot-policy-act-smooth``: its chunk continues actions that are still to be executed. Its
parts are ACT's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lerobot.utils.constants import OBS_STATE
from torch import Tensor

from strobe.core.families.capabilities import Calls, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, blocks
from strobe.core.subjects.subject import Batch
from strobe.core.timeline.probe import Probe
from strobe.lerobot.sampling import Attention, Graphs

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy


def probes(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """Parts of a chunk; the image parts are there only for a policy that sees."""
    parts = [
        Probe.module("model.encoder", "encoder"),
        blocks("model.encoder.layers", "layer"),
        Probe.module("model.encoder.layers.*.self_attn", "attention", level=3),
        Probe.module("model.decoder", "decoder"),
        blocks("model.decoder.layers", "layer"),
        Probe.module("model.decoder.layers.*.self_attn", "self-attention", level=3),
        Probe.module("model.decoder.layers.*.multihead_attn", "cross-attention", level=3),
        Probe.module("model.action_head", "action head"),
    ]
    if policy.config.image_features:
        parts += [
            Probe.module("model.backbone", "backbone"),
            Probe.module("model.backbone.*", "{}", level=2),
            Probe.module("model.encoder_img_feat_input_proj", "image projection"),
            Probe.module("model.encoder_cam_feat_pos_embed", "image position embedding"),
        ]
    return parts


def training(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """The VAE encoder sees the actions to be learnt; it does not run at inference."""
    if not getattr(policy.config, "use_vae", False):
        return ()
    return [
        Probe.module("model.vae_encoder", "VAE encoder"),
        blocks("model.vae_encoder.layers", "layer"),
    ]


def continuing_chunk(policy: Any, batch: Batch, options: Mapping[str, object]) -> Tensor:
    """Return a chunk without an earlier one: the state stands for the next action, as the plug-in requires."""
    state, width = batch[OBS_STATE], policy.config.action_feature.shape[0]
    coming = state[:, None, :]
    if state.shape[-1] != width:
        coming = state.new_zeros(len(state), 1, width)
    prefix, padding = policy.build_inference_action_prefix(coming, coming[:, :0])
    return policy.predict_action_chunk(
        batch | {"inference_action": prefix, "inference_action_is_pad": padding}, **options
    )


_SEEING = (
    Parts(seeing={"backbone": "model.backbone", "image projection": "model.encoder_img_feat_input_proj"}),
    InputFacts(any_image_size=True),
)
_ACT = Family(
    "act",
    ("act",),
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
        *_SEEING,
        Graphs(whole=("model", "forward")),
        Attention(unread_weights=True),
        LiveFields(live=("temporal_ensemble_coeff",)),
        Calls(seldom_looks=True),
    ),
)
_SMOOTH = replace(
    _ACT, name="act_smooth", types=("act_smooth",), capabilities=(*_SEEING, Calls(chunk=continuing_chunk))
)
FAMILY = (_ACT, _SMOOTH)
