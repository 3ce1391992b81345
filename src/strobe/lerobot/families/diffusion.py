"""Diffusion Policy (Chi et al. 2023, LeRobot's ``policies/diffusion``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strobe.core.families.capabilities import Calls, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always
from strobe.core.timeline.probe import Probe
from strobe.lerobot.sampling import Graphs

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy


def probes(policy: PreTrainedPolicy) -> Sequence[Probe]:
    """The image encoder runs once a chunk, the U-Net once a denoising step."""
    parts = [
        Probe.module("diffusion.unet", "denoise step"),
        Probe.module("diffusion.unet.diffusion_step_encoder", "step embedding", level=2),
        Probe.module("diffusion.unet.down_modules.*.*", "down {} {}", level=2),
        Probe.module("diffusion.unet.mid_modules.*", "mid {}", level=2),
        Probe.module("diffusion.unet.up_modules.*.*", "up {} {}", level=2),
        Probe.module("diffusion.unet.final_conv", "final convolution", level=2),
    ]
    if policy.config.image_features:
        config: Any = policy.config
        each = ".*" if config.use_separate_rgb_encoder_per_camera else ""
        encoder = f"diffusion.rgb_encoder{each}"
        parts += [
            Probe.module(encoder, "image encoder"),
            Probe.module(f"{encoder}.backbone", "backbone", level=2),
            Probe.module(f"{encoder}.backbone.*", "stage {}" if not each else "stage {} {}", level=3),
            Probe.module(f"{encoder}.pool", "spatial softmax", level=2),
        ]
    return parts


inference = always(
    # The scheduler turns each prediction into the next sample.
    Probe.method("diffusion.noise_scheduler", "step", "scheduler step"),
)


FAMILY = Family(
    "diffusion",
    ("diffusion",),
    probes,
    inference=inference,
    compiled=(("diffusion.unet", "forward"),),
    costly=("diffusion.unet", "diffusion.rgb_encoder"),
    tiny=Tiny(
        {
            "down_dims": (32, 64, 128),
            "diffusion_step_embed_dim": 32,
            "spatial_softmax_num_keypoints": 8,
        },
        defaults={"num_inference_steps": 10},
    ),
    capabilities=(
        Parts(
            seeing={"image encoder": "diffusion.rgb_encoder"},
            sampling={"diffusion.unet": "diffusion.conditional_sample"},
        ),
        LiveFields(steps="num_inference_steps", every_step="num_train_timesteps"),
        Graphs(whole=("diffusion", "generate_actions")),
        InputFacts(stacked=True, any_image_size=True),
        Calls(seldom_looks=True),
    ),
)
