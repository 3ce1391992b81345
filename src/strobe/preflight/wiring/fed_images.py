"""The first observation of a run: its joints and images next to the policy's statistics of the training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from strobe.preflight.results.wiring import FedImage, WiredFeature, Wiring
from strobe.preflight.wiring.fed import STATE, add_fed

IMAGES = "observation.images."
IMAGENET = (0.485, 0.456, 0.406)  # torchvision's means, which LeRobot writes over those of the data by default
SAME = 1e-3
STATS = ("mean", "std")


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
