"""Drivers of servos that wait, for rehearsals on a busy machine."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import pytest

PATIENCE_MS = 60000
# Rules on times, which a busy machine breaks.
BUSY = {"slow-pace", "slow-loop", "slow-inference", "slow-bus", "slow-camera", "repeated-frames", "camera-stall"}
BUSY |= {"busy-machine", "busy-process", "threads-fight"}


def patient_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drivers of servos wait a minute for an answer, by a clock that nobody sets: a busy machine is no fault."""
    from lerobot.motors.feetech import feetech

    plain = feetech.patch_setPacketTimeout

    def patient(handler: Any, length: int) -> None:
        plain(handler, length)
        handler.packet_timeout += PATIENCE_MS

    monkeypatch.setattr(feetech, "patch_setPacketTimeout", patient)
    monkeypatch.setattr(feetech.scs.PortHandler, "getCurrentTime", lambda handler: time.monotonic() * 1e3)
    if importlib.util.find_spec("dynamixel_sdk") is None:
        return
    from dynamixel_sdk import PortHandler

    bare = PortHandler.setPacketTimeout

    def as_patient(handler: Any, length: int) -> None:
        bare(handler, length)
        handler.packet_timeout += PATIENCE_MS

    monkeypatch.setattr(PortHandler, "setPacketTimeout", as_patient)
    monkeypatch.setattr(PortHandler, "getCurrentTime", lambda handler: time.monotonic() * 1e3)
