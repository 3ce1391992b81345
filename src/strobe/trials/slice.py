"""`strobe trials`."""

from __future__ import annotations

from strobe.core.slices import PROVE, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "trials",
            PROVE,
            "two settings on the robot, in blinded pairs of trials: the plan, and the judgement of its table",
            "strobe.trials.command",
        ),
    ),
    kinds={
        "trials": Kind("strobe.trials.results:TrialsResult", "strobe.trials.page", ("strobe.trials.findings:RULES",)),
    },
)
