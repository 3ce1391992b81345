"""`strobe breakdown`, `strobe compare` and `strobe verify`."""

from __future__ import annotations

from strobe.core.slices import PROVE, UNDERSTAND, Command, Slice

SLICE = Slice(
    commands=(
        Command(
            "breakdown",
            UNDERSTAND,
            "parts of inference, of a training forward pass, of a training step, in milliseconds",
            "strobe.commands.breakdown",
        ),
        Command(
            "compare",
            UNDERSTAND,
            "variants of one policy, alternating: RTC on/off, compiled, other precision, other settings",
            "strobe.commands.compare",
        ),
        Command(
            "verify",
            PROVE,
            "a policy with and without a recipe: the whole check without timing; a CI gate",
            "strobe.commands.verify",
        ),
    ),
)
