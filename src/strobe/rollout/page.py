"""Rollout → document: whether the robot got its actions in time, and what was in the way."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts, measured, more
from strobe.core.report.charts import Plot, Trace
from strobe.core.report.document import (
    Column,
    Columns,
    Document,
    Row,
    Section,
    Table,
    figure,
    figures,
    heads,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.report.tables import QUANTILES, quantile_cells, quantile_table
from strobe.core.results import units
from strobe.core.results.data import Quantiles
from strobe.rollout import page_calls
from strobe.rollout.results.arm import Bus, Rehearsal
from strobe.rollout.results.motion import FirstAction
from strobe.rollout.results.rollout import (
    Camera,
    Delays,
    Inference,
    JointSeam,
    JointTracking,
    Pace,
    Queue,
    Rollout,
    RolloutResult,
    Series,
    Turns,
)

THREE = units.figures(3)
GAP = 0.05  # between two rows of the course's plot, of its height


def outline(result: RolloutResult, depth: int | None = None) -> Document:
    """Return the document of a rollout; ``depth`` limits the levels of its trees."""
    rollout = result.rollout
    shown = sections(rollout) + more.sections(result) + measured.each(result, depth)
    command = "" if rollout.rehearsal is None else "rehearse"
    return measured.document(
        result, answers(rollout), shown, command=command, notes=notes(rollout), failure=rollout.error
    )


def answers(rollout: Rollout) -> list[str]:
    """Return the verdict, then inference, then the age of what the robot acts on."""
    sentences = [rollout.sentence]
    if rollout.engine == "remote" and rollout.remote is not None:
        sentences += page_calls.remote_answers(rollout.remote)
    elif (inference := rollout.inference) is not None:
        later = inference.latency
        text = f"{units.count(inference.calls, 'call')} of the policy: the first took {inference.first_ms:,.0f} ms"
        if later is not None:
            within = f"{units.TAIL_PERCENT} within {later.quantile(units.TAIL):,.1f}"
            text += f", the others {later.median:,.1f} ms (median; {within}, longest {later.max:,.1f})"
        sentences.append(f"{text}.")
    sentences += page_calls.bench_answers(rollout.bench)
    if rollout.age is not None:
        sentences.append(
            f"Actions rested on observations {rollout.age.median:,.0f} ms old (median; {units.TAIL_PERCENT} within "
            f"{rollout.age.quantile(units.TAIL):,.0f}, oldest {rollout.age.max:,.0f})."
        )
    if aged := [(camera.age, camera.name) for camera in rollout.cameras if camera.age is not None]:
        age, name = max(aged, key=lambda pair: pair[0].quantile(units.TAIL))
        of = "" if len(aged) == 1 else f" (camera {name}, the slowest)"
        within = f"{units.TAIL_PERCENT} within {age.quantile(units.TAIL):,.0f}{of}"
        sentences.append(f"Frames were {age.median:,.0f} ms old when they were read, {within}.")
    if (rehearsal := rollout.rehearsal) is not None and rehearsal.arms:
        holding = rehearsal.holding
        state = f"torque was still on in {', '.join(holding)}" if holding else "no servo had torque"
        sentences.append(f"A rehearsal on emulated servos: at its end {state}.")
    return sentences


def sections(rollout: Rollout) -> list[Section]:
    """Return pace and course, inference, delays, the queue, seams, cameras, recording."""
    shown = []
    if rollout.pace is not None:
        about = _describe_pace(rollout.pace) + ([_turns(rollout.turns)] if rollout.turns is not None else [])
        shown.append(Section("pace", "Control loop", _pace(rollout.pace), about))
    if (inference := rollout.inference) is not None:
        shown.append(Section("inference", "Inference", _inference(inference)))
        if (delays := inference.delays) is not None:
            shown.append(Section("delays", "Delay", _delays(delays), [_describe_delays(delays)]))
    shown += page_calls.bench_sections(rollout.bench)
    if rollout.remote is not None:
        shown += page_calls.remote_sections(rollout.remote)
    if rollout.engine not in ("none", "server"):
        shown.append(Section("queue", "Actions", _queue(rollout.queue, rollout.age)))
    if rollout.first_action is not None and rollout.queue.first_action_ms is not None:
        shown.append(Section("first-action", "First action", *_first_action(rollout)))
    if rollout.seams:
        about = "A seam is the step from a chunk's last executed action to the next chunk's first, in the robot's unit."
        shown.append(Section("seams", "Seams between chunks", table(rollout.seams, _SEAMS), [about]))
    if rollout.tracking:
        shown.append(
            Section("tracking", "Following", table(rollout.tracking, _TRACKING), [_describe_tracking(rollout)])
        )
    if rollout.cameras:
        shown.append(Section("cameras", "Cameras", _cameras(rollout.cameras)))
    if rollout.bus is not None:
        shown.append(Section("bus", "Motor bus", _bus(rollout), _describe_bus(rollout)))
    if rollout.rehearsal is not None:
        rehearsal = rollout.rehearsal
        shown.append(Section("rehearsal", "Rehearsal", _servos(rehearsal), describe_rehearsal(rehearsal)))
    if (frames := rollout.recording) is not None:
        text = f"{units.count(frames.frames, 'frame')} of {frames.real_s:.1f} s, stamped as {frames.stamped_s:.1f} s "
        text += f"at the dataset's {frames.dataset_fps:g} Hz"
        rate = f"{(frames.stamped_s * frames.dataset_fps) / frames.real_s:.2f}" if frames.real_s > 0 else "?"
        shown.append(Section("recording", "Recording", None, [f"{text}; the true rate was {rate} Hz."]))
    if rollout.cadence:
        lines = [line.strip() for line in rollout.cadence.splitlines()]
        shown.append(Section("cadence", "What LeRobot's own timer said", None, lines))
    return shown


def notes(rollout: Rollout) -> list[str]:
    """Return the price of watching it."""
    of = "call" if rollout.engine == "server" else "tick"
    return [f"recording took {rollout.overhead_ms:.3f} ms of a {of}, computed from the price of a section here"]


def _pace(pace: Pace) -> Table:
    rows = [("from tick to tick", pace.period), ("off the requested period", pace.jitter)]
    return quantile_table("Ticks", [*rows, ("work, without sleep", pace.work)])


def _describe_pace(pace: Pace) -> list[str]:
    about = [
        f"{pace.held_hz:.2f} of {pace.asked_hz:g} Hz over {units.count(pace.ticks, 'tick')} in {pace.seconds:.1f} s; "
        f"{units.count(pace.late, 'tick')} worked longer than {1e3 / pace.asked_hz:.1f} ms."
    ]
    if pace.late_part and pace.late_part_ms is not None:
        about.append(f"Late ticks spent {pace.late_part_ms:.1f} ms in: {pace.late_part}.")
    return about


def _inference(inference: Inference) -> Table:
    table = quantile_table("Calls", [("after the first", inference.latency)])
    first = Row(["the first", None, None, None, units.ms(inference.first_ms)])
    return Table(table.columns, [first, *table.rows])


def _delays(delays: Delays) -> Table:
    rows = [("assumed by the policy", delays.assumed), ("needed by the call", delays.needed)]
    return quantile_table("In actions", [*rows, ("executed in that time", delays.executed)], decimals=0, unit="")


def _describe_delays(delays: Delays) -> str:
    text = f"Without the first call, which needed {units.count(delays.first_needed, 'action')}"
    if delays.first_dropped:
        dropped = units.count(delays.first_dropped, "action")
        text += f"; {dropped} of its chunk were dropped though the robot had executed none"
    return f"{text}."


def _queue(queue: Queue, age: Quantiles | None) -> Table:
    cells = {
        "first action after": "never" if queue.first_action_ms is None else f"{queue.first_action_ms:,.0f} ms",
        "ticks without an action, after it": f"{queue.starved:,}",
        "time without an action": f"{queue.starved_ms:,.0f} ms, at most {queue.longest_ms:,.0f} ms in one go",
    }
    if queue.depth is not None and queue.least is not None:
        cells["actions in the queue"] = f"{queue.depth.median:,.0f} (median), {queue.least:,} at least"
    if age is not None:
        cells["age of the observation"] = f"{age.median:,.0f} ms (median), {age.max:,.0f} ms at most"
    return Table(heads("<Actions | "), [Row([name, cell]) for name, cell in cells.items()])


def _first_action(rollout: Rollout) -> tuple[Table | None, list[str]]:
    """Return where each joint stood, what it was sent first, and its usual steps after that."""
    if not rollout.first_action:
        return None, ["Not judged: the robot does not report the positions of all its joints."]
    steps = {seam.joint: seam.step.quantile(units.TAIL) for seam in rollout.seams}
    columns: Columns[FirstAction] = [
        words("Joint", lambda action: action.joint),
        *figures(units.number, ("Stood at", lambda action: action.at), ("Was sent", lambda action: action.sent)),
        figure("Jump", lambda action: action.jump, units.number),
        *([figure(f"Step ({units.TAIL_PERCENT})", lambda action: steps.get(action.joint), THREE)] if steps else []),
    ]
    about = ["From the arm's position to the first action that it was sent, in the robot's unit."]
    if rollout.rehearsal is not None:
        about.append("An emulated arm starts in the middle of its range. A real arm starts elsewhere.")
    return table(rollout.first_action, columns), about


_SEAMS: Columns[JointSeam] = [
    words("Joint", lambda seam: seam.joint),
    figure("Step (median)", lambda seam: seam.step.median, THREE),
    figure(f"Step ({units.TAIL_PERCENT})", lambda seam: seam.step.quantile(units.TAIL), THREE),
    *figures(THREE, ("Jump (median)", lambda seam: seam.jump.median), ("Largest jump", lambda seam: seam.jump.max)),
    figure("Seams", lambda seam: seam.jump.n, str),
    figure("Jump over step", lambda seam: seam.ratio, "{:.1f} ×".format),
]
_TRACKING: Columns[JointTracking] = [
    words("Joint", lambda joint: joint.joint),
    figure("Off (median)", lambda joint: joint.error.median, THREE),
    figure(f"Off ({units.TAIL_PERCENT})", lambda joint: joint.error.quantile(units.TAIL), THREE),
    figure("Off (most)", lambda joint: joint.error.max, THREE),
    figure("Trails by (ticks)", lambda joint: joint.lag_ticks, str),
    figure("Then off (median)", lambda joint: joint.left and joint.left.median, THREE),
]


def _describe_tracking(rollout: Rollout) -> str:
    lags = [joint.lag_ticks for joint in rollout.tracking if joint.lag_ticks is not None]
    text = "How far each joint is from its command when the next tick looks, in the robot's unit."
    if not lags:
        return f"{text} No joint was sent a motion."
    least, most = min(lags), max(lags)
    ticks = f"{least} to {most} ticks" if least < most else units.count(most, "tick")
    tick = f"{1e3 / (rollout.fps * rollout.multiplier):.3g} ms"
    text += f" Joints trail their commands by {ticks} of {tick}."
    return f"{text} The last column is the distance that remains after that."


def _cameras(cameras: Sequence[Camera]) -> Table:
    aged = any(camera.age is not None for camera in cameras)
    columns = [*heads("<Camera"), *(Column(f"{name} (ms)") for name in QUANTILES)]
    columns += heads("Frames/s | Same frame at most (ms)")
    columns += heads(f"Age (ms) | Age, {units.TAIL_PERCENT} (ms)") if aged else []
    rows = []
    for camera in cameras:
        cells = [camera.name, *quantile_cells(camera.ms), f"{camera.fresh_hz:.1f}", f"{camera.longest_ms:,.0f}"]
        if aged:
            cells += [camera.age and f"{camera.age.quantile(share):,.0f}" for share in (0.5, units.TAIL)]
        rows.append(Row(cells))
    return Table(columns, rows)


def _bus(rollout: Rollout) -> Table:
    """Return each arm's reads of all motors, those that went well and those that had to be repeated."""
    rows = [
        (f"{bus.arm}: {name}" if bus.arm else name, took)
        for bus in _buses(rollout)
        for name, took in (("answered at once", bus.ms), ("repeated", bus.failed_ms))
    ]
    return quantile_table("Reads", rows)


def _buses(rollout: Rollout) -> list[Bus]:
    return rollout.buses or ([rollout.bus] if rollout.bus is not None else [])


def _describe_bus(rollout: Rollout) -> list[str]:
    """Return tries that failed, old answers, and the reading thread's share of a CPU."""
    return [
        f"{f'{bus.arm}: t' if bus.arm else 'T'}ries without an answer: {bus.lost:,}; with a damaged one: "
        f"{bus.damaged:,}; reads that found old answers: {bus.stale:,}. The reading thread had a CPU for "
        f"{bus.on_cpu:.0%} of a read that went well (median)."
        for bus in _buses(rollout)
    ]


def _turns(turns: Turns) -> str:
    """Return who had the CPUs, in a sentence."""
    return (
        f"The control thread waited for a CPU for {turns.waited_share:.1%} of the run. This process kept "
        f"{turns.own_cpus:.1f} CPUs busy, others {turns.other_cpus:.1f}."
    )


def _servos(rehearsal: Rehearsal) -> Table | None:
    """Return each servo as it was left; None where the arm could not tell."""
    several = len(rehearsal.arms) > 1
    rows = [
        Row([
            f"{arm}: {servo.id} {servo.joint}" if several else f"{servo.id} {servo.joint}",
            *("on" if state else "off" for state in (servo.torque, servo.lock)),
            *map(str, (servo.goal, servo.present, servo.celsius)),
        ])
        for arm, servos in rehearsal.arms.items()
        for servo in servos
    ]  # fmt: skip
    columns = heads("<Servo | <Torque | <Lock | Goal (counts) | Position (counts) | Temperature (°C)")
    return Table(columns, rows) if rehearsal.arms else None


def describe_rehearsal(rehearsal: Rehearsal) -> list[str]:
    """Return lines on the stand-ins for the robot, and on the faults that were planted."""
    led = any(name.startswith("teleop") for name in rehearsal.arms)
    whose = "for the arm and its leader, whose joints a hand swung" if led else "for the arm"
    about = [
        f"Emulated servos stood in {whose}, {rehearsal.latency_ms:g} ms from question to answer besides the bytes' own "
        f"time; calibration: {rehearsal.calibration}. Cameras: {rehearsal.frames}.",
        f"They were sent {units.count(rehearsal.goals, 'goal')}. The table shows their state at the end.",
    ]
    if rehearsal.planted:
        struck = ", ".join(f"{name} {units.count(count, 'request')}" for name, count in rehearsal.struck.items())
        about.append(f"Planted: {'; '.join(rehearsal.planted)}. Struck on the bus: {struck or 'nothing'}.")
    if rehearsal.ended:
        about.append(f"{rehearsal.ended[:1].upper()}{rehearsal.ended[1:]}: the servos' state at the end is not known.")
    return about


def plots(result: RolloutResult, depth: int | None = None) -> Plots:
    """Return the course of the run, then the parts of a tick and of a call, by the key of their section."""
    drawn = {key: of_section for key, of_section in measured.plots(result, depth).items() if key != "samples"}
    drawn |= page_calls.bench_plots(result.rollout.bench)
    course = result.rollout.series
    if course.at_s and result.rollout.pace is not None:
        drawn["pace"] = [_course(course, 1e3 / result.rollout.pace.asked_hz)]
    return drawn


def _course(course: Series, asked_ms: float) -> Plot:
    """Draw ticks, the queue, inference calls and the age of observations, one below the other on one time axis."""
    thin, at = {"width": 1.2}, course.at_s
    ticks = [
        charts.line("from tick to tick", at, course.period_ms, charts.colour(0), style=thin),
        charts.line("work", at, course.work_ms, charts.colour(1), style=thin),
    ]
    rows: list[tuple[str, list[Trace]]] = [("tick (ms)", ticks)]
    if any(depth is not None for depth in course.depth):
        stepped = thin | {"shape": "hv"}
        rows.append(
            ("actions queued", [charts.line("actions queued", at, course.depth, charts.colour(2), style=stepped)])
        )
    if course.call_at_s:
        rows.append(("call (ms)", [_calls(course)]))
    if any(age is not None for age in course.age_ms):
        ages = charts.line("age of the observation", at, course.age_ms, charts.colour(4), style=thin)
        rows.append(("age (ms)", [ages]))
    layout = charts.layout_of_rows(120 + 150 * len(rows), [title for title, _ in rows], GAP)
    layout["xaxis"] |= charts.axis("seconds from the first tick")
    layout |= {"showlegend": True, "hovermode": "x unified"}
    layout["shapes"] = [charts.dashed_line(asked_ms, "y")]
    data = [
        trace | {"yaxis": charts.row_name(i), "xaxis": "x"} for i, (_, traces) in enumerate(rows) for trace in traces
    ]
    caption = f"The dashed line is the requested period, {asked_ms:.1f} ms."
    if starved := [at for at, none in zip(course.at_s, course.starved, strict=True) if none]:
        data.append(charts.crosses("no action", starved, charts.colour(3)))
        caption += " Crosses are ticks without an action."
    return Plot("Course of the run", caption, data, layout)


def _calls(course: Series) -> Trace:
    trace = charts.bars("inference call", course.call_at_s, course.call_ms, charts.colour(5), upright=True)
    trace["marker"]["opacity"] = 0.7
    return trace | {"width": [max(ms / 1e3, 0.005) for ms in course.call_ms], "offset": 0}
