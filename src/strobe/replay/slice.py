"""`strobe replay`."""

from __future__ import annotations

from strobe.core.slices import ROBOT, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "replay",
            ROBOT,
            "what would other settings have done? replays a recorded rollout in simulated time",
            "strobe.replay.command",
        ),
    ),
    kinds={
        "replay": Kind("strobe.replay.results:ReplayResult", "strobe.replay.page", ("strobe.replay.findings:RULES",)),
    },
)
