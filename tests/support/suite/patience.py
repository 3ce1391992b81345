"""Drivers of servos that wait, for rehearsals on a busy machine."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import pytest

PATIENCE_MS = 60000
# Rules on times, which a busy machine breaks.
BUSY = {"slow-pace", "slow-loop", "slow-inference", "slow-bus", "slow-camera", "repeated-frames", "camera-stall"}
BUSY |= {"busy-machine", "busy-process", "threads-fight", "frames-stamped", "device-stall"}


@pytest.fixture
def patient_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drivers of servos wait a minute for an answer, by a clock that nobody sets: a busy machine is no fault."""
    from lerobot.motors.feetech import feetech

    _wait_longer(monkeypatch, feetech, "patch_setPacketTimeout", feetech.scs.PortHandler)
    if importlib.util.find_spec("dynamixel_sdk") is not None:
        from dynamixel_sdk import PortHandler

        _wait_longer(monkeypatch, PortHandler, "setPacketTimeout", PortHandler)


def _wait_longer(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, port: Any) -> None:
    """``owner.name``: the function that sets how long a ``port`` waits."""
    plain = getattr(owner, name)

    def patient(handler: Any, length: int) -> None:
        plain(handler, length)
        handler.packet_timeout += PATIENCE_MS

    monkeypatch.setattr(owner, name, patient)
    monkeypatch.setattr(port, "getCurrentTime", lambda handler: time.monotonic() * 1e3)


def patient(robot: Any, wait_ms: float = 250) -> Any:
    """Return ``robot``, whose own driver alone waits ``wait_ms`` longer for an answer, and misses a late one."""
    handler = robot.bus.port_handler
    plain = handler.setPacketTimeout

    def wait(length: int) -> None:
        plain(length)
        handler.packet_timeout += wait_ms

    handler.setPacketTimeout = wait
    handler.getCurrentTime = lambda: time.monotonic() * 1e3
    return robot
