"""`strobe rollout`."""

from __future__ import annotations

from strobe.core.slices import ROBOT, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "rollout",
            ROBOT,
            "lerobot-rollout unchanged; also lerobot-record, lerobot-teleoperate and remote inference",
            "strobe.rollout.command",
        ),
    ),
    kinds={
        "rollout": Kind(
            "strobe.loops.results.rollout:RolloutResult",
            "strobe.rollout.page",
            (
                "strobe.rollout.findings.rollout:RULES",
                "strobe.rollout.findings.robot:RULES",
                "strobe.rollout.findings.remote:RULES",
                "strobe.rollout.findings.cadence:OF_ROLLOUTS",
                "strobe.core.findings.trust:unseen",
                "strobe.core.findings.trust:stand_ins",
            ),
        ),
    },
    offers={"recordings": "strobe_viz.recordings:write"},
)
