"""The core's own answers: breakdowns, comparisons, verifications."""

from __future__ import annotations

from strobe.core.slices import SHARE, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "report",
            SHARE,
            "shows a run again: console, Markdown, HTML, a recording",
            "strobe.core.cli.report",
        ),
    ),
    kinds={
        "breakdown": Kind(
            "strobe.core.results.answer:BreakdownResult",
            "strobe.core.report.breakdown",
            (
                "strobe.core.findings.machine:gap_costs",
                "strobe.core.findings.parts:RULES",
                "strobe.core.findings.machine:RULES",
                "strobe.core.findings.compiled_code:RULES",
                "strobe.core.findings.trust:RULES",
            ),
            plausible=True,
        ),
        "compare": Kind(
            "strobe.core.results.answer:CompareResult",
            "strobe.core.report.compare",
            (
                "strobe.core.findings.parts:RULES",
                "strobe.core.findings.machine:RULES",
                "strobe.core.findings.precision:RULES",
                "strobe.core.findings.sameness:RULES",
                "strobe.core.findings.compiled_code:RULES",
                "strobe.core.findings.trust:OF_COMPARISONS",
            ),
            plausible=True,
        ),
        "verify": Kind(
            "strobe.core.results.answer:VerifyResult",
            "strobe.core.report.verify",
            ("strobe.core.findings.sameness:RULES", "strobe.core.findings.trust:stand_ins"),
        ),
    },
)
