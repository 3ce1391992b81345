"""`strobe rehearse`; its answer is a rollout's."""

from __future__ import annotations

from strobe.core.slices import ROBOT, Command, Slice

SLICE = Slice(
    commands=(
        Command(
            "rehearse",
            ROBOT,
            "lerobot-rollout on an emulated arm, with faults on demand: what would happen on the robot?",
            "strobe.rehearse.command",
        ),
    ),
)
