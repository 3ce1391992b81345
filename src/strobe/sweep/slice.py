"""`strobe sweep`."""

from __future__ import annotations

from strobe.core.slices import SHARE, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "sweep",
            SHARE,
            "runs a study over a grid of settings; one table, resumable, optionally on Ray",
            "strobe.sweep.command",
        ),
    ),
    kinds={
        "sweep": Kind("strobe.sweep.results:Sweep", "strobe.sweep.page", ("strobe.sweep.findings:RULES",)),
    },
)
