"""The sections of a preflight's page on what the robot will be sent: the range of the actions, and the first one."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts
from strobe.core.report.document import Column, ColumnOf, Row, Section, Table, figure, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.loops.results.motion import FirstJump
from strobe.open_loop.results import ActionRange
from strobe.preflight.results.wiring import JointReach, PreflightResult, Reach


def sections(result: PreflightResult) -> list[Section]:
    """Return the range of the actions and the first action, each with what was not judged; [] without actions."""
    if result.wiring.reach is None:
        return []
    table, notes = _reach(result, result.wiring.reach)
    first, about = _first(result)
    return [
        Section("reach", "Range of the actions", table, notes),
        Section("first-action", "First action", first, about),
    ]


def figures(result: PreflightResult) -> Plots:
    """Return the ranges of each joint."""
    reach = result.wiring.reach
    return {} if reach is None or not reach.joints else {"reach": [_reach_plot(reach, _ranges(result))]}


def _ranges(result: PreflightResult) -> list[ActionRange]:
    return result.open_loop.ranges if result.open_loop is not None else []


def _missing_run_reason(result: PreflightResult) -> str:
    if result.refused:
        return f"{result.refused} reads files only; strobe preflight with --dataset.root=DATA runs the policy"
    if result.open_loop is None:
        given = "dataset" in result.wiring.sources
        return "only files were read (--read_only)" if given else "it takes recorded frames: --dataset.root=DATA"
    return result.open_loop.unjudged or "a predicted chunk has values that are not numbers"


def _reach(result: PreflightResult, reach: Reach) -> tuple[Table | None, list[str]]:
    ranges = _ranges(result)
    predicted = dict(zip(map(id, reach.joints), ranges, strict=False))
    limited = any(joint.limit_low is not None for joint in reach.joints)
    recorded = any(joint.data_low is not None for joint in reach.joints)
    columns: list[ColumnOf[JointReach]] = [
        words("Joint", lambda joint: joint.joint),
        figure("Will be sent", _sent_range_text, str),
    ]
    if ranges:
        columns.append(
            figure("Predicted", lambda joint: predicted.get(id(joint)), lambda own: _span(own.low, own.high))
        )
    if limited:
        columns.append(figure("Limits", lambda joint: _span(joint.limit_low, joint.limit_high), str))
    if recorded:
        columns.append(figure("In the data", lambda joint: _span(joint.data_low, joint.data_high), str))
    notes = [
        *_describe_sent_range(reach),
        *_describe_predicted_range(result, ranges),
        *_describe_limits(result, reach, limited=limited),
    ]
    if not recorded and "dataset" not in result.wiring.sources:
        notes.append("Not judged. In the data: name it with --dataset.root=DATA.")
    notes += [f"Not judged. {reason}" for reason in reach.unjudged]
    return table(reach.joints, columns) if reach.joints else None, notes


def _describe_sent_range(reach: Reach) -> list[str]:
    notes = []
    if reach.basis is not None and any(joint.low is not None for joint in reach.joints):
        notes.append(f"'Will be sent' is {reach.basis} of the actions in the postprocessor's statistics, by joint.")
        notes[0] += f" In {reach.unit}." if reach.unit and "100" not in reach.unit else ""
    if any(joint.outer for joint in reach.joints):
        notes.append(
            "'Within' means that the actions are relative to the state, and the range is an outer bound: the ends of "
            "the relative actions plus the ends of the data's states. Actions need not reach it."
        )
    return notes


def _describe_predicted_range(result: PreflightResult, ranges: Sequence[ActionRange]) -> list[str]:
    loop = result.open_loop
    if not ranges or loop is None:
        return [f"Not judged. Predicted actions: {_missing_run_reason(result)}."]
    frames = loop.frames + (loop.first_jump.episodes if loop.first_jump is not None else 0)
    actions = units.count(loop.executed, "action")
    return [f"Predicted is the range of the first {actions} of each chunk, on {units.count(frames, 'recorded frame')}."]


def _describe_limits(result: PreflightResult, reach: Reach, *, limited: bool) -> list[str]:
    if limited:
        without = [joint.joint for joint in reach.joints if joint.limit_low is None]
        more = (
            f" It has no limits of {', '.join(without)}: LeRobot clamps joints that are not in degrees."
            if without
            else ""
        )
        return [f"Limits are those of the calibration {reach.calibration}.{more}"]
    if "robot" not in result.wiring.sources:
        return ["Not judged. Limits need lerobot-rollout's arguments after --."]
    if reach.calibration:
        return [f"Not judged. Limits: {reach.calibration} has no joint in degrees; LeRobot clamps the others."]
    return ["Not judged. Limits: there is no calibration file for --robot.id, or the robot has none."]


def _sent_range_text(joint: JointReach) -> str | None:
    span = _span(joint.low, joint.high)
    return f"within {span}" if joint.outer and span is not None else span


def _span(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{units.number(low)} to {units.number(high)}"


def _reach_plot(reach: Reach, predicted: Sequence[ActionRange]) -> charts.Plot:
    known = [(own.low, own.high) for own in predicted[: len(reach.joints)]]
    ranges: dict[str, list[tuple[float | None, float | None]]] = {
        "limits": [(joint.limit_low, joint.limit_high) for joint in reach.joints],
        "in the data": [(joint.data_low, joint.data_high) for joint in reach.joints],
        "will be sent": [(joint.low, joint.high) for joint in reach.joints],
        "predicted": [*known, *[(None, None)] * (len(reach.joints) - len(known))],
    }
    data = []
    for number, (name, ends) in enumerate(ranges.items()):
        x = [end for low, high in ends for end in (low, high, None)]
        y = [place + (number - 1.5) * 0.18 for place in range(len(ends)) for _ in range(3)]
        if any(end is not None for end in x):
            data.append(charts.line(name, x, y, charts.colour(number), style={"width": 6}))  # type: ignore[arg-type]
    names = charts.names_axis([joint.joint for joint in reach.joints], **charts.DOWN)
    layout = charts.layout(
        120 + 48 * len(reach.joints), charts.axis(reach.unit or None), names, legend=charts.LEGEND_ABOVE
    )
    return charts.Plot("Range of each joint's action", "A servo stops at its limits.", data, layout)


def _first(result: PreflightResult) -> tuple[Table | None, list[str]]:
    jump = result.open_loop.first_jump if result.open_loop is not None else None
    notes = []
    if jump is not None and jump.joints:
        notes.append(
            f"How far the first action is from the state on the first frames of "
            f"{units.count(jump.episodes, 'episode')}, in the data's unit and in σ, the spread of the recorded "
            "actions. 'From the state' and 'From action to action' are the largest of any recorded tick."
        )
    elif jump is None or not jump.unjudged:
        notes.append(f"Not judged. The first action on recorded frames: {_missing_run_reason(result)}.")
    if jump is not None:
        notes += [f"Not judged. {reason}" for reason in jump.unjudged]
    if jump is not None and jump.run and any(joint.run is not None for joint in jump.joints):
        notes.append(f"The run is {jump.run}.")
    if "robot" in result.wiring.sources:
        notes.append(
            "Not judged. The distance of the first action from this arm's present position: LeRobot turns the torque "
            "on before the first observation can be read. strobe rollout and strobe rehearse show it for a run, and "
            "--robot.max_relative_target limits it."
        )
    if result.wiring.engine == "rtc":
        notes.append(
            "With RTC, LeRobot drops the actions of the first chunk that are due during the call. A later action is "
            "the first one that is sent."
        )
    return (_first_table(jump) if jump is not None and jump.joints else None), notes


def _first_table(jump: FirstJump) -> Table:
    run = any(joint.run is not None for joint in jump.joints)
    titles = ["Predicted (median)", "Predicted (largest)", "Recorded (median)", "Recorded (largest)"]
    titles += ["From the state", "From action to action", *(["In the run"] if run else [])]
    rows = []
    for joint in jump.joints:
        sizes = [joint.predicted, joint.predicted_largest, joint.recorded, joint.recorded_largest]
        sizes += [joint.ahead, joint.step, *([joint.run] if run else [])]
        rows.append(Row([joint.joint, *(_size(size, joint.spread) for size in sizes)]))
    return Table([Column("Joint", numeric=False), *(Column(title) for title in titles)], rows)


def _size(size: float | None, spread: float) -> str | None:
    """Return a distance in the data's unit, and in σ where the joint moves."""
    if size is None:
        return None
    return f"{units.number(size, 3)} ({units.number(size / spread, 2)} σ)" if spread > 0 else units.number(size, 3)
