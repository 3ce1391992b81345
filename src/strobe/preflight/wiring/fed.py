"""The inputs of a run next to the policy's statistics: joints of all ticks, and the first observation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from strobe.preflight.results.wiring import FedImage, FedJoint, WiredFeature, Wiring, scales

STATE = "observation.state"
IMAGES = "observation.images."
IMAGENET = (0.485, 0.456, 0.406)  # torchvision's means, which LeRobot writes over those of the data by default
SAME = 1e-3
STATS = ("mean", "std")
EDGE = 0.25  # normalised: a position that is nearer to the range is in it


def add_fed(wiring: Wiring, joints: Sequence[str], positions: Sequence[Sequence[float] | None]) -> None:
    """Add to ``wiring`` what the policy was given of each joint; nothing where statistics or names are not there.

    Args:
        joints: names of the positions.
        positions: of each tick, in the robot's unit; None where they are not known.
    """
    wire = wiring.wire(STATE)
    own, robot = (wire.ends.get("preprocessor"), wire.ends.get("robot")) if wire is not None else (None, None)
    known = [row for row in positions if row is not None and len(row) == len(joints)]
    if own is None or own.normalisation is None or robot is None or not known or positions[0] is None:
        return
    read = scales(own.normalisation.mode, own.normalisation.statistics)
    ends = [own.normalisation.statistics.get(name) or [] for name in ("min", "max")]
    every, found = np.array(known, dtype=float), []
    for at, joint in enumerate(joints):
        # LeRobot hands the state on in the order of the robot's features.
        same = joint in robot.dimensions and len(read) == len(robot.dimensions)  # else the policy's places are others
        place = robot.dimensions.index(joint) if same else -1
        scale = read[place] if 0 <= place < len(read) else None
        low, high = (end[place] if 0 <= place < len(end) else None for end in ends)
        own_positions = every[:, at]
        if scale is None or low is None or high is None or scale.half <= 0 or not np.isfinite(own_positions).all():
            continue
        beyond = np.maximum(low - own_positions, own_positions - high).clip(min=0.0) / scale.half
        first = float(own_positions[0])
        found.append(
            FedJoint(
                joint=joint,
                low=low,
                high=high,
                first=first,
                normalised=(first - scale.centre) / scale.half,
                beyond=float(beyond[0]),
                outside=float((beyond > EDGE).mean()),
            )
        )
    wiring.fed = found or None


def add_first(wiring: Wiring, observation: Mapping[str, Any], filmed: Collection[str] | None = None) -> None:
    """Add the first observation's joints and images to ``wiring``.

    Args:
        observation: as the robot's driver returns it: joints as numbers, images (height, width, 3) by their camera.
        filmed: cameras that show recorded or live images; the others of a rehearsal show a test pattern. None: all do.
    """
    state = wiring.wire(STATE)
    robot = state.ends.get("robot") if state is not None else None
    if robot is not None and robot.dimensions and all(name in observation for name in robot.dimensions):
        add_fed(wiring, robot.dimensions, [[float(observation[name]) for name in robot.dimensions]])
    images = []
    for wire in wiring.select_wires("image"):
        if "policy" in wire.ends and "robot" in wire.ends:
            camera = wire.ends["robot"].name.removeprefix(IMAGES)
            pattern = filmed is not None and camera not in filmed and "" not in filmed
            if (image := _image(wire, camera, observation.get(camera), pattern)) is not None:
                images.append(image)
    wiring.fed_images = images or None


def _image(wire: WiredFeature, camera: str, frame: Any, pattern: bool) -> FedImage | None:
    pixels = np.asarray(frame)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        return None
    # LeRobot divides bytes by 255, and hands other numbers on as they are (`policies/utils.py`).
    given = pixels.reshape(-1, 3).astype(np.float32) / (255.0 if pixels.dtype == np.uint8 else 1.0)
    if not np.isfinite(given).all():
        return None
    mean, spread, unjudged = (
        ([], [], "this rehearsal shows a test pattern") if pattern else _training_image_statistics(wire)
    )
    return FedImage(
        name=wire.name,
        camera=camera,
        mean=[float(each) for each in given.mean(0)],
        spread=[float(each) for each in given.std(0)],
        trained_mean=mean,
        trained_spread=spread,
        unjudged=unjudged or None,
        pattern=pattern,
    )


def _training_image_statistics(wire: WiredFeature) -> tuple[list[float], list[float], str]:
    why = "neither the policy nor a data set has statistics of it"
    for place in ("preprocessor", "dataset"):
        own = wire.ends.get(place)
        if own is None or own.normalisation is None:
            continue
        mean, spread = ([x for x in own.normalisation.statistics.get(key, []) if x is not None] for key in STATS)
        if len(mean) != 3 or len(spread) != 3:
            continue
        if np.allclose(mean, IMAGENET, atol=SAME):
            why = "the policy has ImageNet's statistics of it, and not the training data's"
            continue
        return mean, spread, ""
    return [], [], why
