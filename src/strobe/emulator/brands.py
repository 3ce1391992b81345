"""Makers of servos: the protocol and the models of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strobe.emulator.dynamixel.packets import Dynamixel
from strobe.emulator.dynamixel.x_series import X_SERIES
from strobe.emulator.feetech.packets import Feetech
from strobe.emulator.feetech.sts3215 import STS3215
from strobe.emulator.servo import Model
from strobe.emulator.wire import Wire


@dataclass(frozen=True)
class Brand:
    """A maker: ``models`` by LeRobot's names, the largest homing ``offset``, the ``sdk`` of LeRobot's driver."""

    wire: Wire
    models: Mapping[str, Model]
    offset: int
    sdk: str


BRANDS = {
    "feetech": Brand(Feetech(), {"sts3215": STS3215}, offset=2047, sdk="scservo_sdk"),  # the register's sign is bit 11
    "dynamixel": Brand(Dynamixel(), X_SERIES, offset=1_044_479, sdk="dynamixel_sdk"),
}


def brand_of(model: str) -> Brand:
    """Return the brand that makes ``model``. Raises ValueError for a servo that none makes."""
    for brand in BRANDS.values():
        if model in brand.models:
            return brand
    raise ValueError(f"no servo '{model}' can be emulated")
