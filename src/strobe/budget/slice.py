"""`strobe budget`."""

from __future__ import annotations

from strobe.core.slices import SPEED_UP, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "budget",
            SPEED_UP,
            "what is missing to reach a target rate: latency over denoising steps, by part, and with RTC",
            "strobe.budget.command",
        ),
    ),
    kinds={
        "budget": Kind("strobe.budget.results:Budget", "strobe.budget.page"),
    },
)
