"""The motors' bus in a rollout's report, and how a rehearsal's servos were left."""

from __future__ import annotations

from strobe.report import units
from strobe.report.document import Column, Row, Table
from strobe.report.quantiles import quantile_table
from strobe.results.motor_bus import Bus, Rehearsal, Turns
from strobe.results.rollout import Rollout


def bus(rollout: Rollout) -> Table:
    """Reads of all motors, those that went well and those that had to be repeated; of each arm."""
    rows = [
        (f"{one.arm}: {name}" if one.arm else name, took)
        for one in _each(rollout)
        for name, took in (("answered at once", one.ms), ("asked again", one.failed_ms))
    ]
    return quantile_table("Reads", rows)


def _each(rollout: Rollout) -> list[Bus]:
    return rollout.buses or ([rollout.bus] if rollout.bus is not None else [])


def about(rollout: Rollout) -> list[str]:
    """Tries that failed, old answers, and the reading thread's share of a CPU."""
    said = []
    for bus in _each(rollout):
        said.append(
            f"{f'{bus.arm}: t' if bus.arm else 'T'}ries without an answer: {bus.lost:,}; with a damaged one: "
            f"{bus.damaged:,}; reads that found old answers: {bus.stale:,}. The reading thread had a CPU for "
            f"{bus.on_cpu:.0%} of a read that went well (median)."
        )
    return said


def turns(turns: Turns) -> str:
    """Who had the CPUs, in a sentence."""
    return (
        f"The control thread waited for a CPU for {turns.waited_share:.1%} of the run. This process kept "
        f"{turns.own_cpus:.1f} CPUs busy, others {turns.other_cpus:.1f}."
    )


def servos(told: Rehearsal) -> Table | None:
    """Each servo as it was left; None where the arm could not tell."""
    if not told.arms:
        return None
    several = len(told.arms) > 1
    columns = [Column("Servo", numeric=False), Column("Torque", numeric=False), Column("Lock", numeric=False)]
    columns += [Column("Goal (counts)"), Column("Position (counts)"), Column("Temperature (°C)")]
    rows = []
    for arm, left in told.arms.items():
        for one in left:
            name = f"{one.id} {one.joint}" if not several else f"{arm}: {one.id} {one.joint}"
            state = ["on" if one.torque else "off", "on" if one.lock else "off"]
            rows.append(Row([units.plain(name), *state, str(one.goal), str(one.present), str(one.celsius)]))
    return Table(columns, rows)


def about_rehearsal(told: Rehearsal) -> list[str]:
    """Lines on the stand-ins for the robot, and on the faults that were planted."""
    led = any(name.startswith("teleop") for name in told.arms)
    whose = "for the arm and its leader, whose joints a hand swung" if led else "for the arm"
    said = [
        f"Emulated servos stood in {whose}, {told.latency_ms:g} ms from question to answer besides the bytes' own "
        f"time; calibration: {told.calibration}. Cameras: {told.frames}.",
        f"They were sent {units.count(told.goals, 'goal')}. The table is how they were left.",
    ]
    if told.planted:
        struck = ", ".join(f"{name} {units.count(count, 'request')}" for name, count in told.struck.items())
        said.append(f"Planted: {'; '.join(told.planted)}. Struck on the bus: {struck or 'nothing'}.")
    if told.ended:
        said.append(f"{told.ended[:1].upper()}{told.ended[1:]}: how the servos were left is not known.")
    return [units.plain(text) for text in said]
