"""Rules on cameras: does each image come from the camera that the policy was trained with, and how much is seen?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.results.finding import Finding
from strobe.preflight.results.wiring import Place, Wiring

LITTLE = 0.5  # share of an image's area below which what is cut away is worth a look …
HARDLY = 0.1  # … and below which the policy is as good as blind
OTHER_SHAPE = 1.1  # ratio of two aspect ratios: a resized image is stretched by that
SOURCES: tuple[Place, ...] = ("robot", "dataset")


def names(wiring: Wiring) -> Iterator[Finding]:
    """Cameras of the policy that nothing feeds, and cameras that feed nothing (lerobot #3181, #2318, #1620)."""
    images = wiring.of_kind("image")
    wanted = [wire.name for wire in images if "policy" in wire.ends]
    for place in SOURCES:
        if place not in wiring.sources:
            continue
        unfed = [wire.name for wire in images if "policy" in wire.ends and place not in wire.ends]
        unused = [wire.ends[place].name for wire in images if "policy" not in wire.ends and place in wire.ends]
        where = "robot" if place == "robot" else "data set"
        if unfed:
            pairs = ", ".join(f'"{have}": "{want}"' for have, want in zip(unused, unfed, strict=False))
            yield Finding(
                rule="camera-missing",
                level="warning",
                title=f"The {where} has no {_short(unfed[0])} camera",
                seen=f"The policy sees {_listed(wanted)}. The {where} does not feed {_listed(unfed)}"
                + (f", and has {_listed(unused)}." if unused else "."),
                why="LeRobot stops. If one side has all of the other's cameras, it runs without that image.",
                do=f"--rename_map='{{{pairs}}}', if these are the same cameras." if pairs else "Connect that camera.",
                evidence={"missing": len(unfed), "unused": len(unused)},
            )  # fmt: skip
        elif unused and wanted:
            yield Finding(
                rule="camera-unused",
                level="info",
                title=f"The {where} has a camera that the policy does not see",
                seen=f"{_listed(unused)}.",
                why="It costs bandwidth and decoding. It does no other harm.",
                do="Remove it from --robot.cameras for this policy." if place == "robot" else "",
                evidence={"unused": len(unused)},
            )  # fmt: skip


def renamed(wiring: Wiring) -> Iterator[Finding]:
    """Names of a rename map that neither side knows, and cameras that change places."""
    if not wiring.rename:
        return
    here = {end.name for wire in wiring.wires for place, end in wire.ends.items() if place in SOURCES}
    known = {wire.name for wire in wiring.wires if "policy" in wire.ends}
    unknown = [have for have in wiring.rename if here and have not in here]
    unknown += [want for want in wiring.rename.values() if want not in known]
    if unknown:
        yield Finding(
            rule="rename-unknown",
            level="warning",
            title="The rename map has a name that is neither an input nor the policy's",
            seen=f"{', '.join(unknown)}; the policy has {', '.join(sorted(known))}.",
            why="LeRobot renames the names that it finds, and gives no warning about others. The image stays under "
            "its old name.",
            do="Correct --rename_map: a name in the inputs comes before the colon, the policy's name after it.",
            evidence={"unknown": len(unknown)},
        )
    swapped = [have for have, want in wiring.rename.items() if wiring.rename.get(want) == have and have < want]
    for have in swapped:
        yield Finding(
            rule="cameras-swapped",
            level="info",
            title=f"{_short(have)} and {_short(wiring.rename[have])} change places",
            seen="The rename map gives each camera the other's name.",
            why="If that is a mistake, the policy looks through the wrong camera.",
            do="strobe preflight with --dataset.root shows which way explains the data better.",
        )


def seen(wiring: Wiring) -> Iterator[Finding]:
    """Images of which a crop leaves little."""
    for camera in wiring.cameras:
        if camera.cropped is None or camera.seen_share >= LITTLE:
            continue
        height, width = camera.resized or (camera.height, camera.width)
        yield Finding(
            rule="camera-cropped",
            level="warning" if camera.seen_share < HARDLY else "info",
            title=f"The policy sees {100 * camera.seen_share:.1f} % of {_short(camera.name)}",
            seen=f"It sees {camera.cropped[1]}×{camera.cropped[0]} of {width}×{height} pixels.",
            why="A crop for small images cuts most of a large image away.",
            do="Train with images that are resized to that size first (--policy.resize_shape), or with a larger crop.",
            evidence={"share": camera.seen_share},
        )


def stretched(wiring: Wiring) -> Iterator[Finding]:
    """Images whose aspect ratio is another than in the training data (lerobot #2334, #2918)."""
    for wire in wiring.of_kind("image"):
        policy, robot = wire.ends.get("dataset") or wire.ends.get("policy"), wire.ends.get("robot")
        if policy is None or robot is None or len(policy.shape) != 3 or len(robot.shape) != 3:
            continue
        if not all(policy.shape) or not all(robot.shape):
            continue
        learnt, here = policy.shape[2] / policy.shape[1], robot.shape[2] / robot.shape[1]
        if max(learnt / here, here / learnt) > OTHER_SHAPE:
            yield Finding(
                rule="camera-shape",
                level="info",
                title=f"{_short(wire.name)} has another shape than in the training data",
                seen=f"{robot.shape[2]}×{robot.shape[1]} pixels here, {policy.shape[2]}×{policy.shape[1]} there.",
                why="LeRobot resizes the image to the policy's size, and that stretches everything in it.",
                do="Set width and height of --robot.cameras as they were in the recording.",
                evidence={"here": here, "learnt": learnt},
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names))


def _short(name: str) -> str:
    return name.removeprefix("observation.images.").removeprefix("observation.")


CHECKS = (names, renamed, seen, stretched)
