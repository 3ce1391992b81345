"""The ranges of a policy's actions → a section: what will be sent, beside the limits and the data."""

from __future__ import annotations

from strobe.report.document import Column, Row, Table
from strobe.results.reach import Reach


def reach_section(reach: Reach) -> tuple[Table, list[str]]:
    """Return the table of joints with their ranges, and the notes below it."""
    limited = any(joint.limit_low is not None for joint in reach.joints)
    recorded = any(joint.data_low is not None for joint in reach.joints)
    columns = [Column("Joint", numeric=False), Column("Will be sent")]
    columns += [Column("Limits")] * limited + [Column("In the data")] * recorded
    rows = []
    for joint in reach.joints:
        cells = [joint.joint, _span(joint.low, joint.high)]
        cells += [_span(joint.limit_low, joint.limit_high)] * limited
        cells += [_span(joint.data_low, joint.data_high)] * recorded
        rows.append(Row(cells))
    notes = [f"What will be sent is {reach.basis} of the actions in the postprocessor's statistics, by joint."]
    notes[0] += f" In {reach.unit}." if reach.unit and "100" not in reach.unit else ""
    if limited:
        notes.append(f"Limits are those of the calibration {reach.calibration}.")
    elif reach.unit:
        notes.append("Limits were not judged: there is no calibration file for --robot.id.")
    return Table(columns, rows), notes


def _span(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{low:.4g} to {high:.4g}"
