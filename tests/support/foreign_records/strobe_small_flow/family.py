"""The record that Strobe gets of the small flow policy, through the entry point ``strobe.families``."""

from __future__ import annotations

from strobe.core.families.capabilities import LiveFields
from strobe.core.families.family import Family, Tiny
from strobe.core.timeline.probe import Probe

FAMILY = Family(
    "small flow",
    ("small_flow",),
    probes=lambda _: [Probe.module("encoder", "context"), Probe.module("velocity", "velocity")],
    inference=lambda _: [Probe.method("", "denoise_step", "denoise step")],
    costly=("encoder", "velocity"),
    capabilities=(LiveFields(steps="euler_steps"),),
    tiny=Tiny({"width": 16}),
)
