"""Rules on the order, the number and the unit of joints: do policy, data set and robot mean the same ones?

And does what the policy will send stay within the limits of the arm?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.results.finding import Finding
from strobe.preflight.results.wiring import Feature, Place, WiredFeature, Wiring

# A joint in radians stays within half a turn. One in degrees leaves that even in a motion of 5°.
RADIANS = 3.2
NORMALISED = 1.05
WIDE_UNITS = ("degrees", "−100 to 100")
BEYOND = 0.05  # of a joint's width by which a range may leave its limits: demonstrations push against them
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
        yield _other_joints("action", learnt, robot.dimensions, source)
        return
    first = next(index for index, pair in enumerate(zip(learnt, robot.dimensions, strict=True)) if pair[0] != pair[1])
    sync = f"the sync engine sends it to {robot.dimensions[first]}, which has that place on the robot"
    if not wiring.order:  # of the policy's config: LeRobot's RTC engine sends by it
        rtc, kept = "RTC does too, as the policy's config has no action_feature_names", False
    else:
        rtc, kept = f"RTC sends it to {learnt[first]}, by the policy's own order", wiring.engine == "rtc"
    seen = f"Number {first} of the action is {learnt[first]} in {source}: {sync}; {rtc}."
    evidence: dict[str, float | str | None] = {
        "first": first, "policy": learnt[first], "robot": robot.dimensions[first],
    }  # fmt: skip
    if kept:
        yield Finding(
            rule="action-order-of-sync",
            level="info",
            title="Policy and robot have their joints in another order, and only RTC keeps the policy's",
            seen=seen,
            why="With the sync engine a joint would get another joint's action.",
            do="Keep --inference.type=rtc.",
            evidence=evidence,
        )  # fmt: skip
        return
    by_hand = f"Train on data of a robot that names its joints in this order: {', '.join(robot.dimensions)}."
    yield Finding(
        rule="action-order",
        level="warning",
        title="Policy and robot have their joints in another order",
        seen=seen,
        why="A joint gets another joint's action.",
        do="--inference.type=rtc keeps the policy's order." if wiring.order else by_hand,
        evidence=evidence,
    )


def state_order(wiring: Wiring) -> Iterator[Finding]:
    """Joints of the state that data set and robot name in another order."""
    wire = wiring.wire("observation.state")
    if wire is None:
        return
    data, robot = wire.ends.get("dataset"), wire.ends.get("robot")
    if data is None or robot is None or not data.dimensions or not robot.dimensions:
        return
    if data.dimensions == robot.dimensions:
        return
    if sorted(data.dimensions) != sorted(robot.dimensions):
        yield _other_joints("observation.state", data.dimensions, robot.dimensions, "the data set")
        return
    first = next(i for i, pair in enumerate(zip(data.dimensions, robot.dimensions, strict=True)) if pair[0] != pair[1])
    yield Finding(
        rule="state-order",
        level="warning",
        title="Data set and robot have the joints of the state in another order",
        seen=f"Number {first} of the state is {data.dimensions[first]} in the data and {robot.dimensions[first]} "
        "on the robot.",
        why="The policy reads one joint's position as another's.",
        do=f"Record with a robot that names its joints in this order: {', '.join(data.dimensions)}.",
        evidence={"first": first},
    )  # fmt: skip


def shapes(wiring: Wiring) -> Iterator[Finding]:
    """Vectors of another length than the policy takes."""
    for wire in wiring.wires:
        policy = wire.ends.get("policy")
        if policy is None or wire.kind not in ("state", "action") or len(policy.shape) != 1:
            continue
        for place in ELSEWHERE:
            end = wire.ends.get(place)
            if end is not None and len(end.shape) == 1 and end.shape != policy.shape:
                where = "The data set" if place == "dataset" else "The robot"
                yield Finding(
                    rule="joints-differ",
                    level="warning",
                    title=f"{where} has another number of joints than the policy",
                    seen=f"{wire.name}: {policy.shape[0]} for the policy, {end.shape[0]} there.",
                    why="LeRobot stops at the first tick, or fills the missing numbers with zeros.",
                    do="Name the data and the robot that the policy was trained for.",
                    evidence={"policy": policy.shape[0], place: end.shape[0]},
                )


def units(wiring: Wiring) -> Iterator[Finding]:
    """Data whose joints stay within what the robot's unit makes of them: radians or −1 to 1, for a robot in degrees.

    Only joints of such a unit are looked at: a gripper in 0 to 100 beside them says nothing of them.
    """
    for name in ("action", "observation.state"):
        wire = wiring.wire(name)
        robot = wire.ends.get("robot") if wire is not None else None
        if wire is None or robot is None or wire.relative:
            continue
        extents = _extents(wire, wiring.order)
        kinds = robot.units or [robot.unit] * len(robot.dimensions)
        own = {
            joint: extents[joint if joint in extents else at]
            for at, (joint, unit) in enumerate(zip(robot.dimensions, kinds, strict=False))
            if unit in WIDE_UNITS and (joint in extents or at in extents)
        }
        if not own or max(own.values()) > RADIANS:
            continue
        widest = max(own, key=lambda joint: own[joint])
        unit = "−1 to 1" if own[widest] <= NORMALISED else "radians"
        takes = next(each for each in kinds if each in WIDE_UNITS)
        yield Finding(
            rule="units-differ",
            level="warning",
            title=f"{name} looks like {unit}, and the robot takes {takes}",
            seen=f"In the statistics none of its {len(own)} joints in {takes} is beyond {own[widest]:.3g} ({widest}).",
            why=f"An action of {own[widest]:.3g} is {own[widest]:.3g} of the robot's units: the arm hardly moves.",
            do="Convert the data to the robot's unit and train again, or use the robot that it was recorded with.",
            evidence={"extent": own[widest], "joint": widest, "robot": takes},
        )


def limits(wiring: Wiring) -> Iterator[Finding]:
    """Joints whose actions leave the range of the calibration."""
    reach = wiring.reach
    if reach is None:
        return
    for joint in sorted(reach.joints, key=lambda each: -each.beyond):
        if joint.beyond <= BEYOND:
            continue
        unit = f" {reach.unit}" if reach.unit else ""
        part = joint.joint.rpartition(".")[0] or joint.joint
        careful = "" if reach.capped else f" For the first runs: --robot.max_relative_target='{{{part}: 5}}' and so on."
        yield Finding(
            rule="reach-beyond-limits",
            level="warning",
            title=f"{part} will be sent beyond its limits",
            seen=f"{joint.low:.4g} to {joint.high:.4g}{unit} ({reach.basis} of the actions); the calibration allows "
            f"{joint.limit_low:.4g} to {joint.limit_high:.4g}.",
            why="LeRobot does not clamp degrees: the servo stops at its limit, or pushes against what is in the way. "
            "The arm of the data was calibrated in another way, or it was another arm.",
            do="Calibrate this arm like the arm of the data, or use that arm's file "
            f"(--robot.calibration_dir).{careful}",
            evidence={"joint": part, "low": joint.low, "high": joint.high, "share": joint.beyond},
        )


def _extents(wire: WiredFeature, order: Sequence[str]) -> dict[str | int, float]:
    """Return the largest number that the statistics have of each dimension, by its name and by its place."""
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
    """Return the order of joints that the policy learnt, and where that is said."""
    if wiring.order:
        return wiring.order, "the policy"
    data: Feature | None = wire.ends.get("dataset") if wire is not None else None
    return (data.dimensions, "the data set") if data is not None else ([], "")


def _other_joints(name: str, learnt: Sequence[str], robot: Sequence[str], source: str) -> Finding:
    lacking = [joint for joint in learnt if joint not in robot]
    more = [joint for joint in robot if joint not in learnt]
    return Finding(
        rule="joints-differ",
        level="warning",
        title=f"The robot has other joints than {source}",
        seen=f"{name}: the robot lacks {', '.join(lacking) or 'none'} and has {', '.join(more) or 'none'} more.",
        why="LeRobot matches numbers by their place, so a joint gets another joint's number.",
        do="Name the robot that the policy was trained for.",
        evidence={"lacking": len(lacking), "more": len(more)},
    )


CHECKS = (action_order, state_order, shapes, units, limits)
