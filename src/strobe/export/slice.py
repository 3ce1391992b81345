"""`strobe export`."""

from __future__ import annotations

from strobe.core.slices import SPEED_UP, Command, Slice

SLICE = Slice(
    commands=(
        Command(
            "export",
            SPEED_UP,
            "write the policy as files that run without torch, and check that it acts the same",
            "strobe.export.command",
        ),
    ),
    offers={
        "exported policies": "strobe.export.exported:read_export_group",
        "verification of exports": "strobe.export.command:verify_export",
    },
)
