"""Policy servers, behind `strobe breakdown` and `strobe compare`."""

from __future__ import annotations

from strobe.core.slices import Kind, Slice

SLICE = Slice(
    kinds={
        "server": Kind(
            "strobe.servers.results.server:ServerAnswer", "strobe.servers.page", ("strobe.servers.findings:RULES",)
        ),
    },
)
