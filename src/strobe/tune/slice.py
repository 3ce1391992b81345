"""`strobe tune`."""

from __future__ import annotations

from strobe.core.slices import PROVE, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "tune",
            PROVE,
            "the settings that make the task succeed, and soonest: inference type, executed actions, horizons",
            "strobe.tune.command",
        ),
    ),
    kinds={
        "tune": Kind(
            "strobe.tune.results:TuneResult",
            "strobe.tune.page",
            ("strobe.tune.page:RULES", "strobe.core.findings.trust:stand_ins"),
        ),
    },
)
