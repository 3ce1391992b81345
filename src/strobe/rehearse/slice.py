"""`strobe rehearse`; its answer is a rollout's."""

from __future__ import annotations

from strobe.core.cli.groups import ROBOT
from strobe.core.slices import Command, Slice

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
