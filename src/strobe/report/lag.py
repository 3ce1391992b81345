"""Lags → a section: how late each joint follows its actions in the recording, and in a run of the policy."""

from __future__ import annotations

from strobe.report.document import Column, Row, Table
from strobe.results.lag import JointLag, Lag


def lag_section(lag: Lag) -> tuple[Table, list[str]]:
    """Return the table of joints with their lags in control ticks, and the notes below it."""
    columns = [Column("Joint follows its action by", numeric=False), Column("Recording (ticks)"), Column("95 % interval")]
    columns += [Column("Episodes"), *([Column("Run (ticks)")] if lag.run else [])]
    rows = [Row(_cells(joint, bool(lag.run))) for joint in lag.joints]
    notes = []
    if lag.run and lag.run_fps and lag.run_fps != lag.fps:
        notes.append(f"A tick is {1000 / lag.fps:.0f} ms of the recording and {1000 / lag.run_fps:.0f} ms of the run.")
    if lag.observations_run is not None:
        notes.append(f"Actions of the run rest on observations {lag.observations_run:.1f} ticks old (median).")
    notes += [f"Frames of {name} were {ticks:.1f} ticks old in the run." for name, ticks in lag.frames_run.items()]
    if not lag.run:
        notes.append("Beside those of a run: --rollout=RUN, of strobe rollout or strobe rehearse.")
    notes += [f"Not judged. {reason}" for reason in lag.unjudged]
    return Table(columns, rows), notes


def _cells(joint: JointLag, run: bool) -> list[str | None]:
    interval = joint.interval
    return [
        joint.joint,
        None if joint.recorded is None else f"{joint.recorded:.1f}",
        None if interval is None else f"{interval.low:.1f} to {interval.high:.1f}",
        str(joint.episodes) if joint.episodes else None,
        *([None if joint.run is None else f"{joint.run:.1f}"] if run else []),
    ]
