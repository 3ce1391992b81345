"""Arms and cameras that a robot's config names: those that a rehearsal puts stand-ins in the place of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.emulator import calibration as cal
from strobe.emulator.arms import FOLLOWERS, LEADERS, Arm
from strobe.errors import UserError

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
    def about(self) -> str:
        """The calibration that the servos' registers agree with, in words."""
        return f"a plausible {self.kind.owner}: no calibration file was found" if self.file is None else str(self.file)


def arms_of(config: Any, part: str) -> dict[str, EmulatedPart]:
    """Return arms of a robot ("robot") or of a leader ("teleop") by name: the part's, or the side's of two.

    Raises:
        UserError: the arm cannot be emulated; an invalid calibration file.
    """
    kind = _arm(part, config.type)
    if config.type not in PAIRS:
        return {part: _emulated(config, part, part, kind, "")}
    before = "" if part == "robot" else f"{part} "
    return {f"{before}{side}": _emulated(config, part, f"{part}.{side}_arm_config", kind, f"_{side}") for side in SIDES}


def cameras_of(config: Any) -> dict[str, tuple[str, str, Any]]:
    """Return a robot's cameras by their names in an observation: their dict's flag, their name there, their config."""
    return {
        f"{before}{short}": (flag, short, camera)
        for flag, before, told in _dicts(config)
        for short, camera in told.items()
    }


def with_ports(argv: list[str]) -> list[str]:
    """Return ``argv`` with a port for each arm that it names none for: a rehearsal has its own.

    Raises:
        UserError: an arm that cannot be emulated.
    """
    split = (argument.removeprefix("--").partition("=") for argument in argv)
    given = {name: value for name, _, value in split}
    found = list(argv)
    for part in ("robot", "teleop"):
        kind = given.get(f"{part}.type", "so101_follower" if part == "robot" else "")
        if kind:
            _arm(part, kind)
        flags = [f"{part}.{side}_arm_config.port" for side in SIDES] if kind in PAIRS else [f"{part}.port"] * bool(kind)
        found += [f"--{flag}=emulated" for flag in flags if flag not in given]
    return found


def _arm(part: str, name: str) -> Arm:
    """Return the arm of LeRobot's type ``name``, or each one of two."""
    known = FOLLOWERS if part == "robot" else LEADERS
    one = PAIRS.get(name, name)
    if one not in known:
        names = [*known, *(pair for pair, each in PAIRS.items() if each in known)]
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        raise UserError(f"--{part}.type={name}: a rehearsal can play {listed} only")
    return known[one]


def _dicts(config: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Flag, prefix in the observation, and cameras by name."""
    yield "robot.cameras", "", getattr(config, "cameras", {})
    for side in SIDES:
        own = getattr(config, f"{side}_arm_config", None)
        if own is not None:
            yield f"robot.{side}_arm_config.cameras", f"{side}_", own.cameras


def _emulated(config: Any, part: str, flag: str, kind: Arm, suffix: str) -> EmulatedPart:
    from lerobot.utils.constants import HF_LEROBOT_CALIBRATION

    of = "robots" if part == "robot" else "teleoperators"
    folder = config.calibration_dir or HF_LEROBOT_CALIBRATION / of / kind.folder
    file = Path(folder) / f"{config.id}{suffix}.json"
    if not file.is_file():
        return EmulatedPart(part, flag, kind, kind.plausible, None, suffix)
    return EmulatedPart(part, flag, kind, cal.read(file, kind.brand.offset), file, suffix)
