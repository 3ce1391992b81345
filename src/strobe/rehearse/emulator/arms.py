"""Arms that can be emulated, and those that a robot's config names, with its cameras.

`Arm` is a kind of arm, by the name of LeRobot's robot or leader: joints, servos, a plausible calibration.
`EmulatedPart` is one arm of a robot or leader that a rehearsal puts an emulated one in the place of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError
from strobe.rehearse.emulator import calibration as cal
from strobe.rehearse.emulator.bus import Brand, find_brand
from strobe.rehearse.emulator.calibration import Calibration, Joint, so101

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
        """The maker of its servos."""
        return find_brand(next(iter(self.models.values())))


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


SIDES = ("left", "right")
# Two arms in one robot or leader, and what each of them is.
PAIRS = {"bi_so_follower": "so101_follower", "bi_so_leader": "so101_leader"}


@dataclass(frozen=True)
class EmulatedPart:
    """An arm of a robot or a leader that is emulated.

    Attributes:
        part: "robot" or "teleop", whose flags it takes.
        flag: of its own config, without the dashes; ``flag.port`` is its port.
        kind: joints and servos.
        calibration: what its servos hold.
        file: where that was found; None for a plausible one.
        suffix: of its calibration file's name, after the id.
    """

    part: str
    flag: str
    kind: Arm
    calibration: cal.Calibration
    file: Path | None
    suffix: str = ""

    @property
    def calibration_text(self) -> str:
        """The calibration that the servos' registers agree with, in words."""
        return f"a plausible {self.kind.owner}: no calibration file was found" if self.file is None else str(self.file)


def emulated_arms(config: Any, part: str) -> dict[str, EmulatedPart]:
    """Return arms of a robot ("robot") or of a leader ("teleop") by name: the part's, or the side's of two.

    Raises:
        UserError: the arm cannot be emulated; an invalid calibration file.
    """
    kind = _arm(part, config.type)
    if config.type not in PAIRS:
        return {part: _emulate_part(config, part, part, kind, "")}
    before = "" if part == "robot" else f"{part} "
    return {
        f"{before}{side}": _emulate_part(config, part, f"{part}.{side}_arm_config", kind, f"_{side}") for side in SIDES
    }


def configured_cameras(config: object) -> dict[str, tuple[str, str, Any]]:
    """Return a robot's cameras by their names in an observation: their dict's flag, their name there, their config."""
    return {
        f"{before}{short}": (flag, short, camera)
        for flag, before, cameras in _dicts(config)
        for short, camera in cameras.items()
    }


def add_ports(argv: list[str]) -> list[str]:
    """Return ``argv`` with a port for each arm that it names none for: a rehearsal has its own.

    Raises:
        UserError: an arm that cannot be emulated.
    """
    split = (argument.removeprefix("--").partition("=") for argument in argv)
    given = {name: value for name, _, value in split}
    arguments = list(argv)
    for part in ("robot", "teleop"):
        kind = given.get(f"{part}.type", "so101_follower" if part == "robot" else "")
        if kind:
            _arm(part, kind)
        flags = [f"{part}.{side}_arm_config.port" for side in SIDES] if kind in PAIRS else [f"{part}.port"] * bool(kind)
        arguments += [f"--{flag}=emulated" for flag in flags if flag not in given]
    return arguments


def _arm(part: str, name: str) -> Arm:
    known = FOLLOWERS if part == "robot" else LEADERS
    single = PAIRS.get(name, name)
    if single not in known:
        names = [*known, *(pair for pair, each in PAIRS.items() if each in known)]
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        raise UserError(f"--{part}.type={name}: a rehearsal can play {listed} only")
    return known[single]


def _dicts(config: object) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    yield "robot.cameras", "", getattr(config, "cameras", {})
    for side in SIDES:
        own = getattr(config, f"{side}_arm_config", None)
        if own is not None:
            yield f"robot.{side}_arm_config.cameras", f"{side}_", own.cameras


def _emulate_part(config: Any, part: str, flag: str, kind: Arm, suffix: str) -> EmulatedPart:
    from lerobot.utils.constants import HF_LEROBOT_CALIBRATION

    of = "robots" if part == "robot" else "teleoperators"
    folder = config.calibration_dir or HF_LEROBOT_CALIBRATION / of / kind.folder
    file = Path(folder) / f"{config.id}{suffix}.json"
    if not file.is_file():
        return EmulatedPart(part, flag, kind, kind.plausible, None, suffix)
    return EmulatedPart(part, flag, kind, cal.read(file, kind.brand.offset), file, suffix)
