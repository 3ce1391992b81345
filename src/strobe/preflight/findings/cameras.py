"""Rules on cameras: does each image come from the camera of the training, and how much of it does the policy see?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.findings.texts import Found, finding
from strobe.core.results.finding import Finding
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
            yield from _missing(where, wanted, unfed, unused)
        elif unused and wanted:
            yield from _unused_cameras(where, unused)


@finding("camera-missing", "warning")
def _missing(where: str, wanted: list[str], unfed: list[str], unused: list[str]) -> Found:
    """The {where} has no {first} camera.

    Found: The policy takes {sees}. The {where} lacks {lacks}{has}.
    Why: LeRobot stops, unless one side has all of the other's cameras: then it runs without that image.
    Do: {do}
    """
    first, sees, lacks = _short(unfed[0]), _join_names(wanted), _join_names(unfed)
    has = f", and has {_join_names(unused)}" if unused else ""
    pairs = ", ".join(f'"{have}": "{want}"' for have, want in zip(unused, unfed, strict=False))
    do = f"Give --rename_map='{{{pairs}}}', if these are the same cameras." if pairs else "Connect that camera."
    yield {"missing": len(unfed), "unused": len(unused)}, locals()


@finding("camera-unused", "info")
def _unused_cameras(where: str, unused: list[str]) -> Found:
    """The {where} has a camera that the policy does not use.

    Found: The policy does not use {names}.
    Why: The camera costs bandwidth and decoding, and does no other harm.
    Do: {do}
    """
    do = "Remove it from --robot.cameras for this policy." if where == "robot" else ""
    yield {"unused": len(unused)}, {"names": _join_names(unused), "do": do}


def renamed_cameras(wiring: Wiring) -> Iterator[Finding]:
    """Names of a rename map that neither side knows, and cameras that change places."""
    if wiring.rename:
        yield from _unknown_names(wiring)
        yield from _swapped_cameras(wiring)


@finding("rename-unknown", "warning")
def _unknown_names(wiring: Wiring) -> Found:
    """The rename map has a name that neither the inputs nor the policy have.

    Found: Unknown: {names:list}. The policy has {own:list}.
    Why: LeRobot renames the names that it finds, and gives no warning about others. The image keeps its old name.
    Do: Correct --rename_map: the input's name comes before the colon, the policy's name after it.
    """
    here = {end.name for wire in wiring.wires for place, end in wire.ends.items() if place in SOURCES}
    known = {wire.name for wire in wiring.wires if "policy" in wire.ends}
    unknown = [have for have in wiring.rename if here and have not in here]
    unknown += [want for want in wiring.rename.values() if want not in known]
    if unknown:
        yield {"unknown": len(unknown)}, {"names": unknown, "own": sorted(known)}


@finding("cameras-swapped", "info")
def _swapped_cameras(wiring: Wiring) -> Found:
    """The rename map swaps the cameras {first} and {second}.

    Found: The rename map gives each camera the other's name.
    Why: If that is a mistake, the policy looks through the wrong camera.
    Do: Run strobe preflight with --dataset.root=FOLDER: it shows which assignment predicts the actions better.
    """
    for have, want in wiring.rename.items():
        if wiring.rename.get(want) == have and have < want:
            yield {}, {"first": _short(have), "second": _short(want)}


@finding("camera-cropped", "{level}")
def cropped_camera(wiring: Wiring) -> Found:
    """The policy sees {percent:.1f} % of the camera image {name}.

    Found: Its crop is {columns}×{rows} of {width}×{height} pixels.
    Why: A crop for small images removes most of a large image.
    Do: Train with images that are resized to that size first (--policy.resize_shape), or with a larger crop.
    """
    for camera in wiring.cameras:
        if camera.cropped is not None and camera.seen_share < LITTLE:
            name, (height, width) = _short(camera.name), camera.resized or (camera.height, camera.width)
            rows, columns = camera.cropped
            percent, level = 100 * camera.seen_share, "warning" if camera.seen_share < HARDLY else "info"
            yield {"share": camera.seen_share}, locals()


@finding("camera-shape", "info")
def stretched_camera(wiring: Wiring) -> Found:
    """Camera {name} has another aspect ratio than in the training data.

    Found: {columns}×{rows} pixels on the robot, {learnt_columns}×{learnt_rows} in the training.
    Why: LeRobot resizes the image to the policy's size, and that stretches everything in it.
    Do: Set width and height in --robot.cameras to those of the recording.
    """
    # lerobot #2334, #2918
    for wire in wiring.select_wires("image"):
        policy, robot = wire.ends.get("dataset") or wire.ends.get("policy"), wire.ends.get("robot")
        if policy is None or robot is None or len(policy.shape) != 3 or len(robot.shape) != 3:
            continue
        if not all(policy.shape) or not all(robot.shape):
            continue
        (_, rows, columns), (_, learnt_rows, learnt_columns), name = robot.shape, policy.shape, _short(wire.name)
        learnt, here = learnt_columns / learnt_rows, columns / rows
        if max(learnt / here, here / learnt) > OTHER_SHAPE:
            yield {"here": here, "learnt": learnt}, locals()


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names))


def _short(name: str) -> str:
    return name.removeprefix("observation.images.").removeprefix("observation.")


CHECKS = (names, renamed_cameras, cropped_camera, stretched_camera)
