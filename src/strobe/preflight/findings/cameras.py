"""Rules on cameras: does each image come from the camera of the training, and how much of it does the policy see?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.results.finding import Finding, info, warning
from strobe.preflight.results.wiring import Place, Wiring

LITTLE = 0.5  # share of an image's area that the policy sees: below it the crop is worth a look …
HARDLY = 0.1  # … and below which the policy is as good as blind
OTHER_SHAPE = 1.1  # ratio of two aspect ratios: resizing stretches an image by that
SOURCES: tuple[Place, ...] = ("robot", "dataset")


def names(wiring: Wiring) -> Iterator[Finding]:
    """Cameras that the policy takes and a source lacks, or the policy does not use (lerobot #3181, #2318, #1620)."""
    images = wiring.select_wires("image")
    wanted = [wire.name for wire in images if "policy" in wire.ends and wire.name not in wiring.empty_cameras]
    for place in SOURCES:
        if place not in wiring.sources:
            continue
        unfed = [wire.name for wire in images if wire.name in wanted and place not in wire.ends]
        unused = [wire.ends[place].name for wire in images if "policy" not in wire.ends and place in wire.ends]
        where = "robot" if place == "robot" else "data set"
        if unfed:
            has = f", and has {_join_names(unused)}" if unused else ""
            pairs = ", ".join(f'"{have}": "{want}"' for have, want in zip(unused, unfed, strict=False))
            do = f"Give --rename_map='{{{pairs}}}', if these are the same cameras." if pairs else "Connect that camera."
            yield warning(
                rule="camera-missing",
                title=f"The {where} has no {_short(unfed[0])} camera",
                found=f"The policy takes {_join_names(wanted)}. The {where} lacks {_join_names(unfed)}{has}.",
                why="LeRobot stops, unless one side has all of the other's cameras: then it runs without that image.",
                do=do,
            )
        elif unused and wanted:
            yield info(
                rule="camera-unused",
                title=f"The {where} has a camera that the policy does not use",
                found=f"The policy does not use {_join_names(unused)}.",
                why="The camera costs bandwidth and decoding, and does no other harm.",
                do="Remove it from --robot.cameras for this policy." if where == "robot" else "",
            )


def unknown_names(wiring: Wiring) -> Iterator[Finding]:
    """Names of a rename map that neither side knows."""
    here = {end.name for wire in wiring.wires for place, end in wire.ends.items() if place in SOURCES}
    known = {wire.name for wire in wiring.wires if "policy" in wire.ends}
    unknown = [have for have in wiring.rename if here and have not in here]
    unknown += [want for want in wiring.rename.values() if want not in known]
    if unknown:
        yield warning(
            rule="rename-unknown",
            title="The rename map has a name that neither the inputs nor the policy have",
            found=f"Unknown: {', '.join(unknown)}. The policy has {', '.join(sorted(known))}.",
            why="LeRobot renames the names that it finds, and gives no warning about others. The image keeps its old "
            "name.",
            do="Correct --rename_map: the input's name comes before the colon, the policy's name after it.",
        )


def cropped_camera(wiring: Wiring) -> Iterator[Finding]:
    for camera in wiring.cameras:
        if camera.cropped is not None and camera.seen_share < LITTLE:
            height, width = camera.resized or (camera.height, camera.width)
            rows, columns = camera.cropped
            yield Finding(
                rule="camera-cropped",
                level="warning" if camera.seen_share < HARDLY else "info",
                title=f"The policy sees {100 * camera.seen_share:.1f} % of the camera image {_short(camera.name)}",
                found=f"Its crop is {columns}×{rows} of {width}×{height} pixels.",
                why="A crop for small images removes most of a large image.",
                do="Train with images that are resized to that size first (--policy.resize_shape), or with a larger "
                "crop.",
            )


def stretched_camera(wiring: Wiring) -> Iterator[Finding]:
    # lerobot #2334, #2918
    for wire in wiring.select_wires("image"):
        policy, robot = wire.ends.get("dataset") or wire.ends.get("policy"), wire.ends.get("robot")
        if policy is None or robot is None or len(policy.shape) != 3 or len(robot.shape) != 3:
            continue
        if not all(policy.shape) or not all(robot.shape):
            continue
        (_, rows, columns), (_, learnt_rows, learnt_columns) = robot.shape, policy.shape
        learnt, here = learnt_columns / learnt_rows, columns / rows
        if max(learnt / here, here / learnt) > OTHER_SHAPE:
            yield info(
                rule="camera-shape",
                title=f"Camera {_short(wire.name)} has another aspect ratio than in the training data",
                found=f"{columns}×{rows} pixels on the robot, {learnt_columns}×{learnt_rows} in the training.",
                why="LeRobot resizes the image to the policy's size, and that stretches everything in it.",
                do="Set width and height in --robot.cameras to those of the recording.",
            )


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names))


def _short(name: str) -> str:
    return name.removeprefix("observation.images.").removeprefix("observation.")


CHECKS = (names, unknown_names, cropped_camera, stretched_camera)
