"""Policy servers, behind `strobe breakdown` and `strobe compare`."""

from __future__ import annotations

from strobe.core.slices import Kind, Slice, Source

SLICE = Slice(
    kinds={
        "server": Kind(
            "strobe.servers.results:ServerAnswer", "strobe.servers.page", ("strobe.servers.findings:RULES",)
        ),
    },
    sources=(
        Source(
            {"breakdown": "strobe.servers.command:BREAKDOWN", "compare": "strobe.servers.compare_command:COMPARE"},
            "runs the policy on this machine",
            flags=("--policy.server", "--policy.observation", "--against."),
        ),
    ),
)
