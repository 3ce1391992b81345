"""The table of treatments, rules on Real-Time Chunking and on levers, and guidance for whoever checks actions."""

from __future__ import annotations

from strobe.core.slices import Slice

SLICE = Slice(
    treatments=("strobe.treatments.table:TABLE",),
    rules={
        "breakdown": ("strobe.treatments.findings_rtc:RULES",),
        "compare": ("strobe.treatments.findings_rtc:OF_COMPARISONS", "strobe.treatments.findings_levers:RULES"),
    },
    offers={"guidance": "strobe.treatments.flow.rtc:make_guidance"},
)
