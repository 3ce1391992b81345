"""`strobe preflight`, and the wiring of all commands that run a checkpoint."""

from __future__ import annotations

from strobe.core.slices import ROBOT, Command, Kind, Slice

SERIOUS = "strobe.preflight.findings.wiring:SERIOUS"

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
            "strobe.preflight.results.wiring:PreflightResult",
            "strobe.preflight.pages.preflight",
            ("strobe.preflight.findings.wiring:RULES", "strobe.preflight.findings.preflight:RULES"),
        ),
    },
    records={"wiring": "strobe.preflight.results.wiring:Wiring"},
    rules={
        **dict.fromkeys(("breakdown", "verify", "tune"), (SERIOUS,)),
        **dict.fromkeys(("rollout", "evaluate"), (SERIOUS, "strobe.preflight.findings.preflight:findings_of_run")),
    },
    looks=dict.fromkeys(("breakdown", "verify"), ("strobe.preflight.wiring.of_run:extend_answer",)),
    shows={
        "rollout": ("strobe.preflight.pages.fed", "strobe.preflight.pages.open_loop"),
        "evaluate": ("strobe.preflight.pages.open_loop",),
    },
)
