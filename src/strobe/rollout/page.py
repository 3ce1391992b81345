"""Rollout → document: whether the robot got its actions in time, and what delayed them."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts, frame, measured
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
from strobe.loops.results.arm import Bus, Rehearsal
from strobe.loops.results.motion import FirstAction
from strobe.loops.results.rollout import (
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
    spread_in_words,
)
from strobe.rollout import page_calls

THREE = units.figures(3)
SOURCE = "random weights"
GAP = 0.05  # between two rows of the course's plot, of its height


def outline(result: RolloutResult, depth: int | None = None) -> Document:
    """Return the document of a rollout; ``depth`` limits the levels of its trees."""
    rollout = result.rollout
    shown = sections(rollout) + frame.added_sections(result) + measured.each(result, depth)
    command = "" if rollout.rehearsal is None else "rehearse"
    return measured.document(
        result,
        answers(result),
        shown,
        command=command,
        notes=notes(rollout),
        failure=rollout.error,
    )


def answers(result: RolloutResult) -> list[str]:
    """Return the verdict, the times of calls and observations, the ticks that went wrong, and a rehearsal's limits."""
    rollout, times = result.rollout, []
    if rollout.engine != "remote" and (inference := rollout.inference) is not None:
        later, first = inference.latency, f"{inference.first_ms:,.0f} ms"
        if later is None:
            times.append(f"Policy call: {first} (the only call).")
        else:
            times.append(
                f"Policy call: {spread_in_words(later)} ({units.count(later.n, 'call')} after the first, {first})."
            )
    if rollout.age is not None:
        times.append(f"Observation age: {spread_in_words(rollout.age)}.")
    trips = page_calls.remote_answers(rollout.remote) if rollout.remote and rollout.engine == "remote" else []
    ticks = [] if rollout.sentence.startswith("The control loop ran at") else _describe_late_ticks(rollout)
    sentences = [rollout.sentence, *trips, *([" ".join(times)] if times else []), *ticks]
    sentences += page_calls.bench_answers(rollout.bench)
    if aged := [(camera.age, camera.name) for camera in rollout.cameras if camera.age is not None]:
        age, name = max(aged, key=lambda pair: pair[0].quantile(units.TAIL))
        of = f" of the slowest camera, {name}" if len(aged) > 1 else ""
        sentences.append(f"Frame age{of} when the loop reads it: {spread_in_words(age)}.")
    if (rehearsal := rollout.rehearsal) is not None and rehearsal.arms:
        holding = rehearsal.holding
        state = f"still on in {', '.join(holding)}" if holding else "off"
        weights = f", {SOURCE}" if result.subject.source.endswith(SOURCE) else ""
        sentences.append(f"Emulated servos{weights}: this times the loop only. At the end, torque was {state}.")
    elif rollout.torque is not None:
        sentences.append(f"At the end, torque was {rollout.torque}.")
    return sentences


def _describe_late_ticks(rollout: Rollout) -> list[str]:
    pace, queue = rollout.pace, rollout.queue
    if pace is None or rollout.engine == "server" or not (pace.late or queue.starved or rollout.stalls):
        return []
    text = f"{pace.late:,} of {pace.ticks:,} control ticks took longer than {1e3 / pace.asked_hz:.3g} ms"
    if queue.starved and rollout.engine != "none":
        text += f", and {queue.starved:,} had no action; the loop ran at {pace.held_hz:.1f} of {pace.asked_hz:g} Hz"
    return [f"{text}."]


def sections(rollout: Rollout) -> list[Section]:
    """Return pace and course, inference, delays, the queue, seams, cameras, recording."""
    shown = []
    if rollout.pace is not None:
        about = _describe_pace(rollout.pace) + ([_turns(rollout.turns)] if rollout.turns is not None else [])
        rows = [("period, from tick to tick", rollout.pace.period), ("jitter", rollout.pace.jitter)]
        ticks = quantile_table("Control ticks", [*rows, ("work, without sleep", rollout.pace.work)])
        shown.append(Section("pace", "Control loop", ticks, about))
    if (inference := rollout.inference) is not None:
        shown.append(Section("inference", "Inference", _inference(inference)))
        if (delays := inference.delays) is not None:
            rows = [("assumed by RTC", delays.assumed), ("needed by the call", delays.needed)]
            rows.append(("executed during the call", delays.executed))
            actions = quantile_table("Actions", rows, decimals=0, unit="")
            shown.append(Section("delays", "Delay", actions, [_describe_delays(delays)]))
    shown += page_calls.bench_sections(rollout.bench)
    if rollout.remote is not None:
        shown += page_calls.remote_sections(rollout.remote)
    if rollout.engine not in ("none", "server"):
        shown.append(Section("queue", "Actions", _queue(rollout.queue, rollout.age)))
    if rollout.first_action is not None and rollout.queue.first_action_ms is not None:
        shown.append(Section("first-action", "First action", *_first_action(rollout)))
    if rollout.seams:
        about = "A jump is the step from a chunk's last executed action to the next chunk's first, in the robot's unit."
        shown.append(Section("seams", "Seams between chunks", table(rollout.seams, _SEAMS), [about]))
    if rollout.tracking:
        shown.append(
            Section("tracking", "Joint tracking", table(rollout.tracking, _TRACKING), [_describe_tracking(rollout)])
        )
    if rollout.cameras:
        shown.append(Section("cameras", "Cameras", _cameras(rollout.cameras)))
    if rollout.bus is not None:
        shown.append(Section("bus", "Motor bus", _bus(rollout), _describe_bus(rollout)))
    if rollout.rehearsal is not None:
        rehearsal = rollout.rehearsal
        shown.append(Section("rehearsal", "Rehearsal", _servos(rehearsal), describe_rehearsal(rehearsal)))
    if (frames := rollout.recording) is not None:
        text = (
            f"{units.count(frames.frames, 'frame')} in {frames.real_s:.1f} s; their time stamps span "
            f"{frames.stamped_s:.1f} s "
        )
        text += f"at the data set's {frames.dataset_fps:g} Hz"
        rate = f"{(frames.stamped_s * frames.dataset_fps) / frames.real_s:.2f}" if frames.real_s > 0 else "?"
        shown.append(Section("recording", "Recording", None, [f"{text}. The actual rate was {rate} Hz."]))
    if rollout.cadence:
        lines = [line.strip() for line in rollout.cadence.splitlines()]
        shown.append(Section("cadence", "LeRobot's own timer", None, lines))
    return shown


def notes(rollout: Rollout) -> list[str]:
    """Return the cost of recording, and which numbers were not judged."""
    of = "call" if rollout.engine == "server" else "control tick"
    cost = (
        f"recording took {rollout.overhead_ms:.3f} ms per {of}, computed from the cost of one section on this machine"
    )
    if rollout.engine == "server":
        return [cost]
    if rollout.not_finite is None:
        return [cost, "not judged: NaN in positions and actions, which the robot's driver does not report"]
    if rollout.wild is None:
        return [cost, "not judged: how far commands reach; neither ranges nor positions of the joints are known"]
    return [cost]


def _describe_pace(pace: Pace) -> list[str]:
    about = [
        f"{pace.held_hz:.2f} of {pace.asked_hz:g} Hz over {units.count(pace.ticks, 'control tick')} in "
        f"{pace.seconds:.1f} s; {units.count(pace.late, 'tick')} worked longer than {1e3 / pace.asked_hz:.1f} ms. "
        "Jitter: a period's distance from the requested one."
    ]
    if pace.late_part and pace.late_part_ms is not None:
        about.append(f"Late ticks spent {pace.late_part_ms:.1f} ms in {pace.late_part}.")
    return about


def _inference(inference: Inference) -> Table:
    table = quantile_table("Policy calls", [("after the first", inference.latency)])
    first = Row(["the first", None, None, None, units.ms(inference.first_ms)])
    return Table(table.columns, [first, *table.rows])


def _describe_delays(delays: Delays) -> str:
    text = f"Without the first call, which needed {units.count(delays.first_needed, 'action')}"
    if delays.first_dropped:
        dropped = units.count(delays.first_dropped, "action")
        text += f"; LeRobot dropped {dropped} of its chunk, and the robot had executed none"
    return f"{text}."


def _queue(queue: Queue, age: Quantiles | None) -> Table:
    cells = {
        "first action after": "never" if queue.first_action_ms is None else f"{queue.first_action_ms:,.0f} ms",
        "control ticks without an action, after that": f"{queue.starved:,}",
        "time without an action": f"{queue.starved_ms:,.0f} ms, up to {queue.longest_ms:,.0f} ms at a time",
    }
    if queue.depth is not None and queue.least is not None:
        cells["actions in the queue"] = f"median {queue.depth.median:,.0f}, min {queue.least:,}"
    if age is not None:
        cells["observation age"] = spread_in_words(age)
    return Table(heads("<Actions | "), [Row([name, cell]) for name, cell in cells.items()])


def _first_action(rollout: Rollout) -> tuple[Table | None, list[str]]:
    if not rollout.first_action:
        return None, ["Not judged: the robot does not report the positions of all its joints."]
    steps = {seam.joint: seam.step.quantile(units.TAIL) for seam in rollout.seams}
    columns: Columns[FirstAction] = [
        words("Joint", lambda action: action.joint),
        *figures(units.number, ("Position", lambda action: action.at), ("First action", lambda action: action.sent)),
        figure("Jump", lambda action: action.jump, units.number),
        *([figure(f"Step ({units.TAIL_PERCENT})", lambda action: steps.get(action.joint), THREE)] if steps else []),
    ]
    about = ["From the arm's position to its first action, in the robot's unit."]
    if rollout.rehearsal is not None:
        about.append("An emulated arm starts in the middle of its range. A real arm starts elsewhere.")
    return table(rollout.first_action, columns), about


_SEAMS: Columns[JointSeam] = [
    words("Joint", lambda seam: seam.joint),
    figure("Step (median)", lambda seam: seam.step.median, THREE),
    figure(f"Step ({units.TAIL_PERCENT})", lambda seam: seam.step.quantile(units.TAIL), THREE),
    *figures(THREE, ("Jump (median)", lambda seam: seam.jump.median), ("Largest jump", lambda seam: seam.jump.max)),
    figure("Seams", lambda seam: seam.jump.n, str),
    figure("Jump ÷ step", lambda seam: seam.ratio, "{:.1f} ×".format),
]
_TRACKING: Columns[JointTracking] = [
    words("Joint", lambda joint: joint.joint),
    figure("Error (median)", lambda joint: joint.error.median, THREE),
    figure("Error (p95)", lambda joint: joint.error.quantile(units.TAIL), THREE),
    figure("Max error", lambda joint: joint.error.max, THREE),
    figure("Lag (ticks)", lambda joint: joint.lag_ticks, str),
    figure("Error after lag (median)", lambda joint: joint.left and joint.left.median, THREE),
]


def _describe_tracking(rollout: Rollout) -> str:
    lags = [joint.lag_ticks for joint in rollout.tracking if joint.lag_ticks is not None]
    text = "Error: the distance of a joint from its last command at the next control tick, in the robot's unit."
    if not lags:
        return f"{text} No joint was commanded to move."
    least, most = min(lags), max(lags)
    ticks = f"{least} to {most} ticks" if least < most else units.count(most, "tick")
    tick = f"{1e3 / (rollout.fps * rollout.multiplier):.3g} ms"
    text += f" Joints lag their commands by {ticks} of {tick}."
    return f"{text} The last column is the error after that lag."


def _cameras(cameras: Sequence[Camera]) -> Table:
    aged = any(camera.age is not None for camera in cameras)
    columns = [*heads("<Camera"), *(Column(f"{name} (ms)") for name in QUANTILES)]
    columns += heads("Frames/s | Longest without a new frame (ms)")
    columns += heads("Age, median (ms) | Age, p95 (ms)") if aged else []
    rows = []
    for camera in cameras:
        cells = [camera.name, *quantile_cells(camera.ms), f"{camera.fresh_hz:.1f}", f"{camera.longest_ms:,.0f}"]
        if aged:
            cells += [camera.age and f"{camera.age.quantile(share):,.0f}" for share in (0.5, units.TAIL)]
        rows.append(Row(cells))
    return Table(columns, rows)


def _bus(rollout: Rollout) -> Table:
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
        f"{f'{bus.arm}: r' if bus.arm else 'R'}equests without an answer: {bus.lost:,}, with a damaged answer: "
        f"{bus.damaged:,}; reads that got an old answer: {bus.stale:,}. The reading thread had a CPU for "
        f"{bus.on_cpu:.0%} of a read without errors (median)."
        for bus in _buses(rollout)
    ]


def _turns(turns: Turns) -> str:
    return (
        f"The control thread waited for a CPU for {turns.waited_share:.1%} of the run. This process kept "
        f"{turns.own_cpus:.1f} CPUs busy, other processes {turns.other_cpus:.1f}."
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
    """Return lines on the emulated parts of the robot, and on the planted faults."""
    led = any(name.startswith("teleop") for name in rehearsal.arms)
    whose = "the arm and its leader, whose joints an emulated hand swung" if led else "the arm"
    about = [
        f"Emulated servos replaced {whose}. They answer after {rehearsal.latency_ms:g} ms plus the transfer time of "
        f"the bytes. Calibration: {rehearsal.calibration}. Cameras: {rehearsal.frames}.",
        f"They received {units.count(rehearsal.goals, 'goal')}. The table shows their state at the end.",
    ]
    if rehearsal.planted:
        struck = ", ".join(f"{name} {units.count(count, 'request')}" for name, count in rehearsal.struck.items())
        about.append(f"Planted faults: {'; '.join(rehearsal.planted)}. Requests struck on the bus: {struck or 'none'}.")
    if rehearsal.ended:
        about.append(f"{rehearsal.ended[:1].upper()}{rehearsal.ended[1:]}: the servos' state at the end is unknown.")
    return about


def plots(result: RolloutResult, depth: int | None = None) -> Plots:
    """Return the course of the run, then the parts of a tick and of a call, by the key of their section."""
    drawn = {key: of_section for key, of_section in measured.plots(result, depth).items() if key != "samples"}
    course = result.rollout.series
    if course.at_s and result.rollout.pace is not None:
        drawn["pace"] = [_course(course, 1e3 / result.rollout.pace.asked_hz)]
    return drawn


def _course(course: Series, asked_ms: float) -> Plot:
    """Draw ticks, the queue, inference calls and the age of observations, one below the other on one time axis."""
    thin, at = {"width": 1.2}, course.at_s
    ticks = [
        charts.line("period", at, course.period_ms, charts.colour(0), style=thin),
        charts.line("work", at, course.work_ms, charts.colour(1), style=thin),
    ]
    rows: list[tuple[str, list[Trace]]] = [("tick (ms)", ticks)]
    if any(depth is not None for depth in course.depth):
        stepped = thin | {"shape": "hv"}
        rows.append(
            ("actions queued", [charts.line("actions queued", at, course.depth, charts.colour(2), style=stepped)])
        )
    if course.call_at_s:
        calls = charts.bars("inference call", course.call_at_s, course.call_ms, charts.colour(5), upright=True)
        calls["marker"]["opacity"] = 0.7
        calls |= {"width": [max(ms / 1e3, 0.005) for ms in course.call_ms], "offset": 0}
        rows.append(("policy call (ms)", [calls]))
    if any(age is not None for age in course.age_ms):
        ages = charts.line("observation age", at, course.age_ms, charts.colour(4), style=thin)
        rows.append(("observation age (ms)", [ages]))
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
        caption += " Crosses are control ticks without an action."
    return Plot("Course of the run", caption, data, layout)
