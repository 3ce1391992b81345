"""Arms that can be emulated, by the names of LeRobot's robots and leaders: joints, servos, a plausible calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strobe.emulator.brands import Brand, brand_of
from strobe.emulator.calibration import Calibration, Joint, so101

_JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")


@dataclass(frozen=True)
class Arm:
    """A kind of arm that can be emulated.

    Args:
        models: the servos' models by joint.
        folder: where LeRobot saves calibration files of such arms.
        plausible: a calibration as LeRobot might have saved it.
        owner: name of the arm that ``plausible`` is for.
    """

    models: Mapping[str, str]
    folder: str
    plausible: Calibration
    owner: str

    @property
    def brand(self) -> Brand:
        return brand_of(next(iter(self.models.values())))


def _models(*models: str) -> dict[str, str]:
    return dict(zip(_JOINTS, models, strict=True))


def _koch(elbow: int = 0) -> Calibration:
    values = (
        (1024, 0, 4095), (-985, 890, 3120), (1013, 910, 3205), (42, 850, 3190), (-510, 0, 4095), (-1291, 1890, 3010),
    )  # fmt: skip
    return {
        name: Joint(id, elbow if name == "elbow_flex" else 0, *counts)
        for id, (name, counts) in enumerate(zip(_JOINTS, values, strict=True), start=1)
    }


def _omx(first: int, gripper: tuple[int, int] = (0, 0)) -> Calibration:
    """Return a calibration of servos with factory settings, which LeRobot writes to an OMX arm.

    Args:
        first: id of the first joint.
        gripper: drive mode and homing offset of the gripper, which differ in a leader.
    """
    joints = enumerate(_JOINTS, start=first)
    return {name: Joint(id, *(gripper if name == "gripper" else (0, 0)), 0, 4095) for id, name in joints}


_SO = _models(*["sts3215"] * 6)
_FOLLOWER = Arm(_SO, "so_follower", so101(), "SO-101")
_LEADER = Arm(_SO, "so_leader", so101(), "SO-101")
_SMALL, _LARGE, _LEADING = "xl330-m288", "xl430-w250", "xl330-m077"

FOLLOWERS = {
    "so100_follower": _FOLLOWER,
    "so101_follower": _FOLLOWER,
    "koch_follower": Arm(_models(_LARGE, _LARGE, *[_SMALL] * 4), "koch_follower", _koch(), "Koch"),
    "omx_follower": Arm(_models(*[_LARGE] * 3, *[_SMALL] * 3), "omx_follower", _omx(11), "OMX"),
}
LEADERS = {
    "so100_leader": _LEADER,
    "so101_leader": _LEADER,
    "koch_leader": Arm(_models(*[_LEADING] * 6), "koch_leader", _koch(elbow=1), "Koch"),
    "omx_leader": Arm(_models(*[_SMALL] * 5, _LEADING), "omx_leader", _omx(1, gripper=(1, 100)), "OMX"),
}
