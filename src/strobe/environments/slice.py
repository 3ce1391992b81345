"""Two Python environments, behind `strobe compare` and `strobe verify`."""

from __future__ import annotations

from strobe.core.slices import Slice, Source

SLICE = Slice(
    records={
        "environments": "strobe.environments.results:Environment",
        "passes": "strobe.environments.results:PassDifference",
    },
    rules={
        "compare": ("strobe.environments.page:OF_COMPARISONS",),
        "verify": ("strobe.environments.page:RULES",),
    },
    sources=(
        Source(
            {"compare": "strobe.environments.compare_command:COMPARE"},
            "runs the policy in this environment",
            keys=("python", "lerobot"),
        ),
        Source(
            {"verify": "strobe.environments.verify_command:VERIFY"},
            "has no such flag (strobe compare: --variant 'NAME: python=PYTHON')",
            flags=("--against_python", "--against_lerobot"),
        ),
    ),
    shows={"compare": ("strobe.environments.page",), "verify": ("strobe.environments.page",)},
)
