"""The table of treatments, and Real-Time Chunking for whoever checks actions under it."""

from __future__ import annotations

from strobe.core.slices import Slice

SLICE = Slice(
    treatments=("strobe.treatments.table:TABLE",),
    offers={"guidance": "strobe.treatments.flow.rtc:make_guidance"},
)
