"""`strobe record`."""

from __future__ import annotations

from strobe.core.slices import DATA, Command, Slice

SLICE = Slice(
    commands=(
        Command(
            "record",
            DATA,
            "records episodes of a simulator into a LeRobotDataset with video",
            "strobe.simulators.record_command",
        ),
    ),
    environments=("strobe.simulators.metaworld_state",),
)
