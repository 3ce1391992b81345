"""`strobe dataloader`."""

from __future__ import annotations

from strobe.core.slices import DATA, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "dataloader",
            DATA,
            "the loader settings that keep up with the training step, in lerobot-train's spelling",
            "strobe.dataloader.command",
        ),
    ),
    kinds={
        "dataloader": Kind(
            "strobe.dataloader.results:Dataloader", "strobe.dataloader.page", ("strobe.dataloader.findings:RULES",)
        ),
    },
)
