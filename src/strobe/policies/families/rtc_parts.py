"""Real-Time Chunking (Black et al. 2025, LeRobot's ``policies/rtc``): the guidance around each denoising step.

    RTC step = denoise step (the policy's own) + prefix weights + autograd correction + other

The probes are on the class and on ``torch.autograd.grad`` as RTC calls it, so they fit every flow policy. Without RTC,
or without a previous chunk, none of them fires.
"""

from __future__ import annotations

from strobe.timeline.probe import Probe

MODULE = "lerobot.policies.rtc.modeling_rtc"

STEP = "RTC step"
WEIGHTS = "prefix weights"
AUTOGRAD = "autograd correction"

PROBES = (
    Probe.function(f"{MODULE}:RTCProcessor.denoise_step", STEP, optional=True),
    Probe.function(f"{MODULE}:RTCProcessor.get_prefix_weights", WEIGHTS, optional=True),
    Probe.function(f"{MODULE}:torch.autograd.grad", AUTOGRAD, optional=True),
)
