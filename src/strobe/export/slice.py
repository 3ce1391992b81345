"""`strobe export`."""

from __future__ import annotations

from strobe.core.slices import SPEED_UP, Command, Slice

SLICE = Slice(
    commands=(
        Command(
            "export",
            SPEED_UP,
            "the whole policy as files that run without torch, in OpenVINO, checked against the policy",
            "strobe.export.command",
        ),
    ),
)
