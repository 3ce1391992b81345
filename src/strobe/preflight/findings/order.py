"""Rules on the order, the number and the unit of joints: do policy, data set and robot mean the same ones?

Do the actions stay within the limits of the arm?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.findings.texts import Evidence, Found, finding
from strobe.core.results.finding import Finding
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
        yield from _other_joints("action", learnt, robot.dimensions, source)
        return
    first, own, other = _first_apart(learnt, robot.dimensions)
    rtc, kept = f"RTC sends it to {own}, by the policy's own order", wiring.engine == "rtc"
    if not wiring.order:  # of the policy's config: LeRobot's RTC engine sends by it
        rtc, kept = "RTC does too, because the policy's config has no action_feature_names", False
    to = f"the sync engine sends it to {other}, which has that place on the robot"
    seen = f"Dimension {first} of the action is {own} in {source}: {to}; {rtc}."
    evidence: Evidence = {"first": first, "policy": own, "robot": other}
    if kept:
        yield from _order_of_sync(seen, evidence)
    else:
        yield from _order(seen, evidence, robot.dimensions, by_rtc=bool(wiring.order))


@finding("action-order-of-sync", "info")
def _order_of_sync(seen: str, evidence: Evidence) -> Found:
    """Policy and robot order their joints differently, and only RTC keeps the policy's order.

    Found: {seen}
    Why: With the sync engine a joint would get another joint's action.
    Do: Keep --inference.type=rtc.
    """
    yield evidence


@finding("action-order", "warning")
def _order(seen: str, evidence: Evidence, names: Sequence[str], *, by_rtc: bool) -> Found:
    """Policy and robot order their joints differently.

    Found: {seen}
    Why: A joint gets another joint's action.
    Do: {do}
    """
    by_hand = f"Train on data of a robot that names its joints in this order: {', '.join(names)}."
    yield evidence, {"do": "--inference.type=rtc keeps the policy's order." if by_rtc else by_hand}


def state_order(wiring: Wiring) -> Iterator[Finding]:
    """Joints of the state that data set and robot name in another order."""
    wire = wiring.wire("observation.state")
    data, robot = (wire.ends.get(place) if wire is not None else None for place in ELSEWHERE)
    if data is None or robot is None or not data.dimensions or not robot.dimensions:
        return
    if sorted(data.dimensions) != sorted(robot.dimensions):
        yield from _other_joints("observation.state", data.dimensions, robot.dimensions, "the data set")
    elif data.dimensions != robot.dimensions:
        yield from _order_of_state(data.dimensions, robot.dimensions)


@finding("state-order", "warning")
def _order_of_state(data: Sequence[str], robot: Sequence[str]) -> Found:
    """Data set and robot order the joints of the state differently.

    Found: Dimension {first} of the state is {own} in the data and {other} on the robot.
    Why: The policy reads one joint's position as another's.
    Do: Record with a robot that names its joints in this order: {data:list}.
    """
    first, own, other = _first_apart(data, robot)
    yield {"first": first}, {"own": own, "other": other}


def _first_apart(names: Sequence[str], others: Sequence[str]) -> tuple[int, str, str]:
    return next((i, one, other) for i, (one, other) in enumerate(zip(names, others, strict=True)) if one != other)


@finding("joints-differ", "warning")
def shapes(wiring: Wiring) -> Found:
    """The policy has {policy} joints, the {where} has {there}.

    Found: {found:list}.
    Why: LeRobot stops at the first control tick, or fills the missing numbers with zeros.
    Do: {do}
    """
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
            yield {"policy": policy, place: there}, locals()


def _size(feature: Feature | None) -> int:
    """Return the length of a vector; 0 for anything else."""
    return feature.shape[0] if feature is not None and len(feature.shape) == 1 else 0


@finding("units-differ", "warning")
def units(wiring: Wiring) -> Found:
    """The policy's {name} is in {unit}, and the robot's in {robot}.

    Found: By the statistics none of its {count} joints exceeds {extent:.3g} ({joint}).
    Why: The robot reads an action of {extent:.3g} in its own unit, so the arm hardly moves.
    Do: Use the robot that the data was recorded with, or convert the data to this robot's unit and train again.
    """
    for name in ("action", "observation.state"):
        wire = wiring.wire(name)
        robot = wire.ends.get("robot") if wire is not None else None
        if wire is None or robot is None or wire.relative:
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
            widest = max(own, key=lambda joint: own[joint])
            unit = "−1 to 1" if own[widest] <= NORMALISED else "radians"
            takes = next(each for each in kinds if each in WIDE_UNITS)
            words = {"name": name, "unit": unit, "count": len(own)}
            yield {"extent": own[widest], "joint": widest, "robot": takes}, words


@finding("reach-beyond-limits", "warning")
def limits(wiring: Wiring) -> Found:
    """The policy will send {joint} beyond its limits.

    Found: Its actions range from {low:.4g} to {high:.4g}{unit} ({reach.basis}); the calibration allows
        {each.limit_low:.4g} to {each.limit_high:.4g}.
    Why: LeRobot does not clamp degrees: the servo stops at its limit, or pushes against an obstacle. The arm of the
        data was calibrated differently, or was another arm.
    Do: Calibrate this arm like the arm of the data, or use that arm's file (--robot.calibration_dir).{careful}
    """
    reach = wiring.reach
    for each in sorted(reach.joints, key=lambda each: -each.excess_share) if reach is not None else ():
        if reach is not None and each.excess_share > BEYOND:
            unit, joint = f" {reach.unit}" if reach.unit else "", each.joint.rpartition(".")[0] or each.joint
            careful = f" For the first runs: --robot.max_relative_target='{{{joint}: 5}}' and so on."
            careful = "" if reach.capped else careful
            yield {"joint": joint, "low": each.low, "high": each.high, "share": each.excess_share}, locals()


@finding("joints-differ", "warning")
def _other_joints(name: str, learnt: Sequence[str], robot: Sequence[str], source: str) -> Found:
    """The robot has other joints than {source}.

    Found: {name}: the robot lacks {lacks}, and also has {has}.
    Why: LeRobot matches numbers by their position, so a joint gets another joint's number.
    Do: Use the robot that the policy was trained on (--robot.type).
    """
    lacking = [joint for joint in learnt if joint not in robot]
    more = [joint for joint in robot if joint not in learnt]
    words = {"lacks": ", ".join(lacking) or "none", "has": ", ".join(more) or "none"}
    yield {"lacking": len(lacking), "more": len(more)}, words


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
