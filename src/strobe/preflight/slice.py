"""`strobe preflight`, and the wiring of all commands that run a checkpoint."""

from __future__ import annotations

from strobe.core.slices import ROBOT, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "preflight",
            ROBOT,
            "do policy, data and robot match? checked before anything moves",
            "strobe.preflight.command",
        ),
    ),
    kinds={
        "preflight": Kind(
            "strobe.preflight.results.preflight:PreflightResult",
            "strobe.preflight.pages.preflight",
            (
                "strobe.preflight.findings.wiring:RULES",
                "strobe.preflight.findings.preflight:RULES",
            ),
        ),
    },
    records={"wiring": "strobe.preflight.results.wiring:Wiring"},
    rules={
        "breakdown": ("strobe.preflight.findings.wiring:SERIOUS",),
        "rollout": ("strobe.preflight.findings.wiring:SERIOUS",),
        "verify": ("strobe.preflight.findings.wiring:SERIOUS",),
        "tune": ("strobe.preflight.findings.wiring:SERIOUS",),
        "evaluate": ("strobe.preflight.findings.wiring:SERIOUS",),
    },
    shows={"rollout": ("strobe.preflight.pages.fed",)},
)
