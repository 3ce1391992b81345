"""The contract with the simulator, behind `strobe preflight` and `strobe evaluate`."""

from __future__ import annotations

from strobe.core.slices import Slice

SLICE = Slice(
    rules={
        "preflight": ("strobe.contract.report:RULES",),
    },
    shows={"preflight": ("strobe.contract.report",)},
)
