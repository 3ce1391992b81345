"""`strobe doctor`."""

from __future__ import annotations

from strobe.core.slices import START, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "doctor",
            START,
            "checks noise, other load, loaders and tools; says what to install",
            "strobe.doctor.command",
        ),
    ),
    kinds={
        "doctor": Kind(
            "strobe.doctor.results:DoctorResult", "strobe.doctor.page", ("strobe.doctor.page:OF_SELF_CHECKS",)
        ),
    },
)
