"""Rollout → document: whether the robot got its actions in time, and what was in the way."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts, measured
from strobe.core.report.charts import Plot, Trace
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.report.tables import QUANTILES, quantile_cells, quantile_table
from strobe.core.results import units
from strobe.core.results.data import Quantiles
from strobe.rollout.pages import rollout_calls
from strobe.rollout.results.rollout import (
    Bus,
    Camera,
    Inference,
    JointSeam,
    JointTracking,
    Pace,
    Queue,
    Rehearsal,
    Rollout,
    RolloutResult,
    Series,
    Turns,
)

GAP = 0.05  # gap between two rows of the course's plot, as a share of its height


def outline(result: RolloutResult, depth: int | None = None) -> Document:
    """Return the document of a rollout; ``depth`` limits the levels of its trees."""
    rollout = result.rollout
    shown = sections(rollout) + measured.each(result, depth)
    command = "" if rollout.rehearsal is None else "rehearse"
    return measured.document(
        result, answers(rollout), shown, command=command, notes=notes(rollout), failure=rollout.error
    )


def answers(rollout: Rollout) -> list[str]:
    """Return the verdict, then inference, then the age of what the robot acts on."""
    sentences = [rollout.sentence]
    if rollout.engine == "remote" and rollout.remote is not None:
        sentences += rollout_calls.remote_answers(rollout.remote)
    elif (inference := rollout.inference) is not None:
        later = inference.latency
        text = f"{units.count(inference.calls, 'call')} of the policy: the first took {inference.first_ms:,.0f} ms"
        if later is not None:
            text += (
                f", the others {later.median:,.1f} ms (median; 95 % within {later.p95:,.1f}, longest {later.max:,.1f})"
            )
        sentences.append(f"{text}.")
    sentences += rollout_calls.bench_answers(rollout.bench)
    if rollout.age is not None:
        sentences.append(
            f"Actions rested on observations {rollout.age.median:,.0f} ms old (median; 95 % within "
            f"{rollout.age.p95:,.0f}, oldest {rollout.age.max:,.0f})."
        )
    if aged := [(camera.age, camera.name) for camera in rollout.cameras if camera.age is not None]:
        age, name = max(aged, key=lambda pair: pair[0].p95)
        of = "" if len(aged) == 1 else f" (camera {name}, the slowest)"
        sentences.append(f"Frames were {age.median:,.0f} ms old when they were read, 95 % within {age.p95:,.0f}{of}.")
    if (rehearsal := rollout.rehearsal) is not None and rehearsal.arms:
        holding = rehearsal.holding
        state = f"torque was still on in {', '.join(holding)}" if holding else "no servo had torque"
        sentences.append(f"A rehearsal on emulated servos: at its end {state}.")
    return sentences


def sections(rollout: Rollout) -> list[Section]:
    """Return pace and course, inference, delays, the queue, seams, cameras, recording."""
    shown = []
    if rollout.pace is not None:
        about = _about_pace(rollout.pace) + ([_turns(rollout.turns)] if rollout.turns is not None else [])
        shown.append(Section("pace", "Control loop", _pace(rollout.pace), about))
    if rollout.inference is not None:
        shown.append(Section("inference", "Inference", _inference(rollout.inference)))
        if rollout.inference.delays is not None:
            shown.append(Section("delays", "Delay", _delays(rollout.inference), [_about_delays(rollout)]))
    shown += rollout_calls.bench_sections(rollout.bench)
    if rollout.remote is not None:
        shown += rollout_calls.remote_sections(rollout.remote)
    if rollout.engine not in ("none", "server"):
        shown.append(Section("queue", "Actions", _queue(rollout.queue, rollout.age)))
    if rollout.first_action is not None and rollout.queue.first_action_ms is not None:
        shown.append(Section("first-action", "First action", *_first_action(rollout)))
    if rollout.seams:
        about = "A seam is the step from a chunk's last executed action to the next chunk's first, in the robot's unit."
        shown.append(Section("seams", "Seams between chunks", _seams(rollout.seams), [about]))
    if rollout.tracking:
        shown.append(Section("tracking", "Following", _tracking(rollout.tracking), [_about_tracking(rollout)]))
    if rollout.cameras:
        shown.append(Section("cameras", "Cameras", _cameras(rollout.cameras)))
    if rollout.bus is not None:
        shown.append(Section("bus", "Motor bus", _bus(rollout), _about_bus(rollout)))
    if rollout.rehearsal is not None:
        rehearsal = rollout.rehearsal
        shown.append(Section("rehearsal", "Rehearsal", _servos(rehearsal), about_rehearsal(rehearsal)))
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
    return quantile_table(
        "Ticks",
        [
            ("from tick to tick", pace.period),
            ("off the requested period", pace.jitter),
            ("work, without sleep", pace.work),
        ],
    )


def _about_pace(pace: Pace) -> list[str]:
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


def _delays(inference: Inference) -> Table:
    delays = inference.delays
    assert delays is not None
    rows = [
        ("assumed by the policy", delays.assumed),
        ("needed by the call", delays.needed),
        ("executed in that time", delays.executed),
    ]
    return quantile_table("In actions", rows, decimals=0, unit="")


def _about_delays(rollout: Rollout) -> str:
    assert rollout.inference is not None
    delays = rollout.inference.delays
    assert delays is not None
    text = f"Without the first call, which needed {units.count(delays.first_needed, 'action')}"
    if delays.first_dropped:
        text += (
            f"; {units.count(delays.first_dropped, 'action')} of its chunk were dropped though the robot had "
            "executed none"
        )
    return f"{text}."


def _queue(queue: Queue, age: Quantiles | None) -> Table:
    none = "never" if queue.first_action_ms is None else f"{queue.first_action_ms:,.0f} ms"
    rows = [
        Row(["first action after", none]),
        Row(["ticks without an action, after it", f"{queue.starved:,}"]),
        Row(["time without an action", f"{queue.starved_ms:,.0f} ms, at most {queue.longest_ms:,.0f} ms in one go"]),
    ]
    if queue.depth is not None and queue.least is not None:
        rows.append(Row(["actions in the queue", f"{queue.depth.median:,.0f} (median), {queue.least:,} at least"]))
    if age is not None:
        rows.append(Row(["age of the observation", f"{age.median:,.0f} ms (median), {age.max:,.0f} ms at most"]))
    return Table([Column("Actions", numeric=False), Column("", numeric=True)], rows)


def _first_action(rollout: Rollout) -> tuple[Table | None, list[str]]:
    """Return where each joint stood, what it was sent first, and its usual steps after that."""
    if not rollout.first_action:
        return None, ["Not judged: the robot does not report the positions of all its joints."]
    steps = {seam.joint: seam.step for seam in rollout.seams}
    columns = [Column("Joint", numeric=False), Column("Stood at"), Column("Was sent"), Column("Jump")]
    columns += [Column("Step (95 %)")] if steps else []
    rows = []
    for action in rollout.first_action:
        cells = [action.joint, *(units.number(size, 4) for size in (action.at, action.sent, action.jump))]
        step = steps.get(action.joint)
        rows.append(Row([*cells, None if step is None else units.number(step.p95, 3)] if steps else cells))
    about = ["From the arm's position to the first action that it was sent, in the robot's unit."]
    if rollout.rehearsal is not None:
        about.append("An emulated arm starts in the middle of its range. A real arm starts elsewhere.")
    return Table(columns, rows), about


def _seams(seams: Sequence[JointSeam]) -> Table:
    columns = [Column("Joint", numeric=False), Column("Step (median)"), Column("Step (95 %)"), Column("Jump (median)")]
    columns += [Column("Largest jump"), Column("Seams"), Column("Jump over step")]
    rows = []
    for seam in seams:
        sizes = (seam.step.median, seam.step.p95, seam.jump.median, seam.jump.max)
        ratio = None if seam.ratio is None else f"{seam.ratio:.1f} ×"
        rows.append(Row([seam.joint, *(units.number(size, 3) for size in sizes), str(seam.jump.n), ratio]))
    return Table(columns, rows)


def _tracking(joints: Sequence[JointTracking]) -> Table:
    columns = [Column("Joint", numeric=False), Column("Off (median)"), Column("Off (95 %)"), Column("Off (most)")]
    columns += [Column("Trails by (ticks)"), Column("Then off (median)")]
    rows = []
    for joint in joints:
        sizes = [units.number(size, 3) for size in (joint.error.median, joint.error.p95, joint.error.max)]
        rest = None if joint.left is None else units.number(joint.left.median, 3)
        rows.append(Row([joint.joint, *sizes, None if joint.lag_ticks is None else str(joint.lag_ticks), rest]))
    return Table(columns, rows)


def _about_tracking(rollout: Rollout) -> str:
    lags = [joint.lag_ticks for joint in rollout.tracking if joint.lag_ticks is not None]
    text = "How far each joint is from its command when the next tick looks, in the robot's unit."
    if not lags:
        return f"{text} No joint was sent a motion."
    hz = rollout.fps * rollout.multiplier
    return (
        f"{text} Joints trail their commands by {_ticks(lags)} of {1e3 / hz:.3g} ms. The last column is the "
        "distance that remains after that."
    )


def _ticks(lags: Sequence[int]) -> str:
    least, most = min(lags), max(lags)
    return f"{least} to {most} ticks" if least < most else units.count(most, "tick")


def _cameras(cameras: Sequence[Camera]) -> Table:
    columns = [Column("Camera", numeric=False), *(Column(f"{name} (ms)") for name in QUANTILES)]
    columns += [Column("Frames/s"), Column("Same frame at most (ms)")]
    aged = any(camera.age is not None for camera in cameras)
    columns += [Column("Age (ms)"), Column("Age, 95 % (ms)")] if aged else []
    rows = []
    for camera in cameras:
        cells = [camera.name, *quantile_cells(camera.ms), f"{camera.fresh_hz:.1f}", f"{camera.longest_ms:,.0f}"]
        ages = (camera.age.median, camera.age.p95) if camera.age is not None else (None, None)
        rows.append(Row([*cells, *(None if age is None else f"{age:,.0f}" for age in ages)] if aged else cells))
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


def _about_bus(rollout: Rollout) -> list[str]:
    """Return tries that failed, old answers, and the reading thread's share of a CPU."""
    about = []
    for bus in _buses(rollout):
        about.append(
            f"{f'{bus.arm}: t' if bus.arm else 'T'}ries without an answer: {bus.lost:,}; with a damaged one: "
            f"{bus.damaged:,}; reads that found old answers: {bus.stale:,}. The reading thread had a CPU for "
            f"{bus.on_cpu:.0%} of a read that went well (median)."
        )
    return about


def _turns(turns: Turns) -> str:
    """Return who had the CPUs, in a sentence."""
    return (
        f"The control thread waited for a CPU for {turns.waited_share:.1%} of the run. This process kept "
        f"{turns.own_cpus:.1f} CPUs busy, others {turns.other_cpus:.1f}."
    )


def _servos(rehearsal: Rehearsal) -> Table | None:
    """Return each servo as it was left; None if the arm could not tell."""
    if not rehearsal.arms:
        return None
    several = len(rehearsal.arms) > 1
    columns = [Column("Servo", numeric=False), Column("Torque", numeric=False), Column("Lock", numeric=False)]
    columns += [Column("Goal (counts)"), Column("Position (counts)"), Column("Temperature (°C)")]
    rows = []
    for arm, servos in rehearsal.arms.items():
        for servo in servos:
            name = f"{servo.id} {servo.joint}" if not several else f"{arm}: {servo.id} {servo.joint}"
            state = ["on" if servo.torque else "off", "on" if servo.lock else "off"]
            rows.append(Row([name, *state, str(servo.goal), str(servo.present), str(servo.celsius)]))
    return Table(columns, rows)


def about_rehearsal(rehearsal: Rehearsal) -> list[str]:
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
    drawn |= rollout_calls.bench_plots(result.rollout.bench)
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
    layout["shapes"] = [charts.line_at(asked_ms, "y")]
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
