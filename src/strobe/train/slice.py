"""`strobe train` and `strobe batch`."""

from __future__ import annotations

from strobe.core.slices import SPEED_UP, UNDERSTAND, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "train",
            UNDERSTAND,
            "what a training waits for: lerobot-train unchanged, with the parts of its steps and of its loader's "
            "workers",
            "strobe.train.command",
        ),
        Command(
            "batch",
            SPEED_UP,
            "the largest training batch that fits, and the size from which a larger one is no faster",
            "strobe.train.batch_command",
        ),
    ),
    kinds={
        "train": Kind(
            "strobe.train.results:TrainResult",
            "strobe.train.page",
            (
                "strobe.train.findings:RULES",
                "strobe.core.findings.compiled_code:RULES",
                "strobe.train.findings_inputs:RULES",
                "strobe.core.findings.trust:unseen",
                "strobe.core.findings.trust:stand_ins",
            ),
            plausible=True,
        ),
    },
)
