"""Two Python environments, behind `strobe compare` and `strobe verify`."""

from __future__ import annotations

from strobe.core.slices import Slice

SLICE = Slice(
    records={
        "environments": "strobe.environments.results:Environment",
        "passes": "strobe.environments.results:PassDifference",
    },
    rules={
        "compare": ("strobe.environments.findings:OF_COMPARISONS",),
        "verify": ("strobe.environments.findings:RULES",),
    },
    shows={"compare": ("strobe.environments.page",), "verify": ("strobe.environments.page",)},
)
