"""`strobe optimize`, and `strobe.optimize`."""

from __future__ import annotations

from strobe.core.slices import SPEED_UP, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "optimize",
            SPEED_UP,
            "find treatments that make a policy fast enough, with the same actions",
            "strobe.ladder.command",
        ),
    ),
    kinds={
        "optimize": Kind(
            "strobe.ladder.results:OptimizeResult",
            "strobe.ladder.page",
            (
                "strobe.ladder.findings:RULES",
                "strobe.core.findings.sameness:RULES",
                "strobe.ladder.findings:OF_EPISODES",
                "strobe.core.findings.compiled_code:RULES",
                "strobe.core.findings.trust:inconclusive",
                "strobe.core.findings.trust:stand_ins",
            ),
            plausible=True,
        ),
    },
)
