"""Rules on the order, the number and the unit of joints, and on cameras: do policy, data set and robot mean the same?

Do the actions stay within the limits of the arm? How much of each image does the policy see?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.results.finding import Finding, info, warning
from strobe.preflight.results.wiring import Feature, Place, WiredFeature, Wiring

# A joint in radians stays within half a turn. A joint in degrees leaves that range in a motion of 5°.
RADIANS = 3.2
NORMALISED = 1.05
WIDE_UNITS = ("degrees", "−100 to 100")
BEYOND = 0.05  # share of a joint's width by which a range may exceed its limits: demonstrations push against them
ELSEWHERE: tuple[Place, ...] = ("dataset", "robot")
WITH_STATISTICS: tuple[Place, ...] = ("dataset", "preprocessor", "postprocessor")


def action_order(wiring: Wiring) -> Iterator[Finding]:
    """Joints of the action that policy and robot name in another order (lerobot #4122)."""
    wire = wiring.wire("action")
    robot = wire.ends.get("robot") if wire is not None else None
    learnt, source = _learnt(wiring, wire)
    if wire is None or robot is None or not learnt or not robot.dimensions or learnt == robot.dimensions:
        return
    if sorted(learnt) != sorted(robot.dimensions):
        yield from () if any(shapes(wiring)) else _other_joints("action", learnt, robot.dimensions, source)
        return
    first, own, other = _first_apart(learnt, robot.dimensions)
    rtc, kept = f"RTC sends it to {own}, by the policy's own order", wiring.engine == "rtc"
    if not wiring.order:  # of the policy's config: LeRobot's RTC engine sends by it
        rtc, kept = "RTC does too, because the policy's config has no action_feature_names", False
    to = f"the sync engine sends it to {other}, which has that place on the robot"
    seen = f"Dimension {first} of the action is {own} in {source}: {to}; {rtc}."
    state = wiring.wire("observation.state")
    places = state.ends if state is not None and "policy" in state.ends else {}
    if places:
        seen += " With either engine LeRobot builds the state in the robot's order."
    known = [places[place].dimensions for place in ELSEWHERE if place in places and places[place].dimensions]
    other_state = len(known) == 2 and known[0] != known[1]  # which has a finding of its own
    careful = "" if not places or len(known) == 2 else " Name the training data (--dataset.root): is its state in "
    careful += "the robot's order?" if careful else ""
    if kept and not other_state:
        yield info(
            rule="action-order-of-sync",
            title="Policy and robot order their joints differently, and only RTC keeps the policy's order",
            found=seen,
            why="With the sync engine a joint would get another joint's action.",
            do=f"Keep --inference.type=rtc.{careful}",
        )
    else:
        by_hand = f"Train on data of a robot that names its joints in this order: {', '.join(robot.dimensions)}."
        yield warning(
            rule="action-order",
            title="Policy and robot order their joints differently",
            found=seen,
            why="A joint gets another joint's action.",
            do=f"--inference.type=rtc keeps the policy's order.{careful}"
            if wiring.order and not other_state
            else by_hand,
        )


def state_order(wiring: Wiring) -> Iterator[Finding]:
    """Joints of the state that data set and robot name in another order."""
    wire = wiring.wire("observation.state")
    data, robot = (wire.ends.get(place) if wire is not None else None for place in ELSEWHERE)
    if data is None or robot is None or not data.dimensions or not robot.dimensions or any(shapes(wiring)):
        return
    if sorted(data.dimensions) != sorted(robot.dimensions):
        yield from _other_joints("observation.state", data.dimensions, robot.dimensions, "the data set")
    elif data.dimensions != robot.dimensions:
        first, own, other = _first_apart(data.dimensions, robot.dimensions)
        yield warning(
            rule="state-order",
            title="Data set and robot order the joints of the state differently",
            found=f"Dimension {first} of the state is {own} in the data and {other} on the robot.",
            why="The policy reads one joint's position as another's.",
            do=f"Record with a robot that names its joints in this order: {', '.join(data.dimensions)}.",
        )


def _first_apart(names: Sequence[str], others: Sequence[str]) -> tuple[int, str, str]:
    return next((i, one, other) for i, (one, other) in enumerate(zip(names, others, strict=True)) if one != other)


def shapes(wiring: Wiring) -> Iterator[Finding]:
    for place in ELSEWHERE:
        where, do = "data set", "Use the data set that this policy was trained on (--dataset.root)."
        if place == "robot":
            where, do = "robot", "Use the robot that this policy was trained on (--robot.type)."
        sizes = [(wire.name, *map(_size, (wire.ends.get("policy"), wire.ends.get(place)))) for wire in wiring.wires
                 if wire.kind in ("state", "action")]  # fmt: skip
        apart = [each for each in sizes if each[1] and each[2] and each[1] != each[2]]
        if apart:
            _, policy, there = apart[0]
            found = [f"{name} has {own} numbers in the policy and {other} in the {where}" for name, own, other in apart]
            yield warning(
                rule="joints-differ",
                title=f"The policy has {policy} joints, the {where} has {there}",
                found=f"{', '.join(found)}.",
                why="LeRobot stops at the first control tick, or fills the missing numbers with zeros.",
                do=do,
            )


def _size(feature: Feature | None) -> int:
    """Return the length of a vector; 0 for anything else."""
    return feature.shape[0] if feature is not None and len(feature.shape) == 1 else 0


def units(wiring: Wiring) -> Iterator[Finding]:
    for name in ("action", "observation.state"):
        wire = wiring.wire(name)
        robot = wire.ends.get("robot") if wire is not None else None
        if wire is None or robot is None or wire.relative or any(shapes(wiring)):
            continue
        extents = _extents(wire, wiring.order)
        kinds = robot.units or [robot.unit] * len(robot.dimensions)
        # Only joints of such a unit count: a gripper in 0 to 100 says nothing about them.
        own = {
            joint: extents[joint if joint in extents else at]
            for at, (joint, unit) in enumerate(zip(robot.dimensions, kinds, strict=False))
            if unit in WIDE_UNITS and (joint in extents or at in extents)
        }
        if own and max(own.values()) <= RADIANS:
            widest, extent = max(own.items(), key=lambda pair: pair[1])
            unit = "−1 to 1" if extent <= NORMALISED else "radians"
            takes = next(each for each in kinds if each in WIDE_UNITS)
            yield warning(
                rule="units-differ",
                title=f"The policy's {name} is in {unit}, and the robot's in {takes}",
                found=f"By the statistics none of its {len(own)} joints exceeds {extent:.3g} ({widest}).",
                why=f"The robot reads an action of {extent:.3g} in its own unit, so the arm hardly moves.",
                do="Use the robot that the data was recorded with, or convert the data to this robot's unit and train "
                "again.",
            )


def limits(wiring: Wiring) -> Iterator[Finding]:
    reach = wiring.reach
    for each in sorted(reach.joints, key=lambda each: -each.excess_share) if reach is not None else ():
        if reach is not None and each.excess_share > BEYOND:
            unit, joint = f" {reach.unit}" if reach.unit else "", each.joint.rpartition(".")[0] or each.joint
            careful = f" For the first runs: --robot.max_relative_target='{{{joint}: 5}}' and so on."
            yield warning(
                rule="reach-beyond-limits",
                title=f"The policy will send {joint} beyond its limits",
                found=f"Its actions range from {each.low:.4g} to {each.high:.4g}{unit} ({reach.basis}); the "
                f"calibration allows {each.limit_low:.4g} to {each.limit_high:.4g}.",
                why="LeRobot does not clamp degrees: the servo stops at its limit, or pushes against an obstacle. The "
                "arm of the data was calibrated differently, or was another arm.",
                do="Calibrate this arm like the arm of the data, or use that arm's file "
                f"(--robot.calibration_dir).{'' if reach.capped else careful}",
            )


def _other_joints(name: str, learnt: Sequence[str], robot: Sequence[str], source: str) -> Iterator[Finding]:
    lacking = [joint for joint in learnt if joint not in robot]
    more = [joint for joint in robot if joint not in learnt]
    yield warning(
        rule="joints-differ",
        title=f"The robot has other joints than {source}",
        found=f"{name}: the robot lacks {', '.join(lacking) or 'none'}, and also has {', '.join(more) or 'none'}.",
        why="LeRobot matches numbers by their position, so a joint gets another joint's number.",
        do="Use the robot that the policy was trained on (--robot.type).",
    )


def _extents(wire: WiredFeature, order: Sequence[str]) -> dict[str | int, float]:
    found: dict[str | int, float] = {}
    data = wire.ends.get("dataset")
    names = (data.dimensions if data is not None else []) or order
    for place in WITH_STATISTICS:
        end = wire.ends.get(place)
        statistics = end.normalisation.statistics if end is not None and end.normalisation is not None else {}
        for values in (statistics.get("min", ()), statistics.get("max", ())):
            for at, value in enumerate(values):
                for key in (at, names[at]) if at < len(names) else (at,):
                    found[key] = max(found.get(key, 0.0), abs(value or 0.0))
    return found


def _learnt(wiring: Wiring, wire: WiredFeature | None) -> tuple[Sequence[str], str]:
    if wiring.order:
        return wiring.order, "the policy"
    data: Feature | None = wire.ends.get("dataset") if wire is not None else None
    return (data.dimensions, "the data set") if data is not None else ([], "")


CHECKS = (shapes, units, action_order, state_order, limits)


LITTLE = 0.5  # share of an image's area that the policy sees: below it the crop is worth a look …
HARDLY = 0.1  # … and below which the policy is as good as blind
OTHER_SHAPE = 1.1  # ratio of two aspect ratios: resizing stretches an image by that
SOURCES: tuple[Place, ...] = ("robot", "dataset")


def names(wiring: Wiring) -> Iterator[Finding]:
    """Cameras that the policy takes and a source lacks (lerobot #3181, #2318, #1620)."""
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


CAMERA_CHECKS = (names, unknown_names, cropped_camera, stretched_camera)
