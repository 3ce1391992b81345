"""ACT-Smooth, the plug-in ``lerobot-policy-act-smooth``: its chunk continues actions that are still to be executed.

Its parts are ACT's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lerobot.utils.constants import OBS_STATE
from torch import Tensor

from strobe.policies.families import act
from strobe.policies.families.family import Family


def chunk(policy: Any, batch: dict[str, Any], options: Mapping[str, Any]) -> Tensor:
    """Return a chunk without an earlier one: the state stands for the next action, as the plug-in requires."""
    state, width = batch[OBS_STATE], policy.config.action_feature.shape[0]
    coming = state[:, None, :]
    if state.shape[-1] != width:
        coming = state.new_zeros(len(state), 1, width)
    prefix, padding = policy.build_inference_action_prefix(coming, coming[:, :0])
    return policy.predict_action_chunk(
        batch | {"inference_action": prefix, "inference_action_is_pad": padding}, **options
    )


FAMILY = Family(
    "act_smooth",
    ("act_smooth",),
    act.probes,
    training=act.training,
    compiled=(("model", "forward"),),
    costly=act.FAMILY.costly,
    seeing=act.FAMILY.seeing,
    chunk=chunk,
    tiny=act.TINY,
    any_image_size=True,
)
