"""`strobe diff` and `strobe history`."""

from __future__ import annotations

from strobe.core.slices import PROVE, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "diff",
            PROVE,
            "what changed between two runs; with --fail-on-regression a CI gate",
            "strobe.history.diff_command",
        ),
        Command(
            "history",
            PROVE,
            "trends over runs or commits, with change points; a CI gate",
            "strobe.history.history_command",
        ),
    ),
    kinds={
        "diff": Kind("strobe.history.results:Difference", "strobe.history.diff_page"),
        "history": Kind("strobe.history.results:History", "strobe.history.history_page"),
    },
)
