"""`strobe record`."""

from __future__ import annotations

from strobe.core.cli.groups import DATA
from strobe.core.slices import Command, Slice

SLICE = Slice(
    commands=(
        Command(
            "record",
            DATA,
            "records episodes of a simulator into a LeRobotDataset with video",
            "strobe.simulators.record_command",
        ),
    ),
)
