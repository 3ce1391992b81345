"""Preflight → document: the verdict, then every feature in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.report import charts, frame
from strobe.core.report.document import Column, Columns, Document, Row, Section, Table, figure, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.finding import Finding
from strobe.lerobot.datasets.results import DataTruth, JointLag, Statistics, VectorTruth
from strobe.motion.checks import CHECKS
from strobe.motion.results import CameraLag, Motion, RestPoints, Trace
from strobe.preflight.findings import data as data_rules
from strobe.preflight.findings import preflight as preflight_rules
from strobe.preflight.findings import wiring as wiring_rules
from strobe.preflight.pages import open_loop, reach
from strobe.preflight.results.wiring import Feature, Lag, Place, PreflightResult, Wiring

PLACES: dict[Place, str] = {
    "policy": "Policy",
    "preprocessor": "Preprocessor",
    "postprocessor": "Postprocessor",
    "dataset": "Data set",
    "robot": "Robot",
}


PROCESSORS: tuple[Place, ...] = ("preprocessor", "postprocessor")
UNCLEAR = "open-loop-explains-nothing"  # the weakest evidence of a fault
MOST_TITLES = 3  # in the line that counts the faults
BY_ITSELF = (
    "A data set by itself cannot show whether each episode does its task, whether its joints and cameras are "
    "calibrated and placed like those of your robot, or what is wrong in all episodes, action and state alike."
)
NAMES = ("LeRobot", "RTC", "Real-Time", "Strobe")


def outline(result: PreflightResult, _depth: int | None = None) -> Document:
    """Return the document of a preflight."""
    of_motion = _motion_sections(result.wiring.motion)
    notes = [f"Not judged: {what}. {units.capital(why)}." for what, why in _left_out(result) if why is not None]
    sections = [Section("features", "Features", _features(result.wiring), notes)]
    sections = [*of_motion, *sections] if not result.wiring.policy else [*sections, *of_motion]
    if orders := _orders(result.wiring):
        sections.append(Section("joints", "Order of the joints", orders))
    sections += reach.sections(result)
    if result.wiring.truth is not None:
        sections.append(Section("data", "Statistics of the frames", *_truth(result.wiring.truth)))
    if result.wiring.lag is not None:
        sections.append(Section("lag", "Lags in the recording", *_lag(result.wiring.lag)))
    sections += [*open_loop.training_sections(result.wiring.training), *frame.added_sections(result)]
    sections += open_loop.sections(result)
    facts = [(PLACES[place], source) for place, source in result.wiring.sources.items()]
    facts += [("Call", _call(result.wiring))]
    return frame.document(result, answers(result), sections, facts=[*facts, ("Strobe", result.strobe_version)])


def plots(result: PreflightResult, _depth: int | None = None) -> Plots:
    """Return the plots of a preflight, by section."""
    return _motion_plots(result.wiring.motion) | reach.figures(result) | open_loop.figures(result)


def answers(result: PreflightResult) -> list[str]:
    """Return the verdict, the faults and the next step."""
    serious = [finding for finding in result.findings if finding.level == "warning"]
    serious.sort(key=lambda finding: (finding.rule.startswith("data-"), finding.rule == UNCLEAR))
    sentences = [_verdict(result, serious)]
    if len(serious) > 1:
        titles = "; ".join(finding.title for finding in serious[:MOST_TITLES])
        more = f"; and {len(serious) - MOST_TITLES} more" if len(serious) > MOST_TITLES else ""
        sentences.append(f"{len(serious)} faults: {titles}{more}.")
    elif serious and serious[0].rule.startswith("data-"):
        sentences.append(f"{serious[0].title}.")
    if result.refused:
        sentences.append("No robot was connected. --anyway starts the run nevertheless.")
    if serious and serious[0].do:
        sentences.append(f"Next: {serious[0].first_step}")
    elif not serious:
        sentences += _next_look(result.wiring)
    if left := [what for what, _ in _left_out(result)]:
        sentences.append(f"Not looked at: {', '.join(left)}.")
    sentences += open_loop.sentences(result)
    if result.unfixed:
        sentences.append(f"No fixed copy was written: {result.unfixed}.")
    if result.fixed:
        sentences.append(f"A fixed copy was written. {' '.join(result.fixed)}")
    return sentences


def _verdict(result: PreflightResult, serious: Sequence[Finding]) -> str:
    if not serious:
        what = "mismatch" if result.wiring.policy else "fault"
        return f"No {what} found by {_checks(result)} checks of {_looked_at(result.wiring)}."
    first = serious[0]
    if first.rule == UNCLEAR:
        return f"Unclear: {_lower(first.title)}."
    if first.rule.startswith("data-"):
        return f"Fix the data set first: it has {units.count(len(serious), 'fault')}."
    return f"{'Not started' if result.refused else 'Not ready'}: {_lower(first.title)}."


def _looked_at(wiring: Wiring) -> str:
    names = {"policy": "the policy", "dataset": "the data set", "robot": "the robot"}
    looked = [name for place, name in names.items() if place in wiring.sources]
    return f"{looked[0]} alone" if len(looked) == 1 else units.join_names(looked)


def _next_look(wiring: Wiring) -> list[str]:
    """Return what to give so that more is looked at; of a data set by itself, what no look at it can show."""
    if not wiring.policy:
        return [BY_ITSELF]
    if "dataset" not in wiring.sources:
        return ["Next: add --dataset.root=FOLDER, the data that the policy was trained on."]
    if "robot" not in wiring.sources:
        return ["Next: add `--` and lerobot-rollout's arguments, to check the robot too."]
    return []


def _checks(result: PreflightResult) -> int:
    checks = len(wiring_rules.CHECKS) if result.wiring.policy else len(data_rules.CHECKS)
    if result.wiring.motion is not None:
        checks += len(result.wiring.motion.checks) - 1  # `motion` among the rules tells what these have found
    return checks + (len(preflight_rules.RULES) if result.open_loop is not None else 0)


def _lower(title: str) -> str:
    first = title.partition(" ")[0]
    return title if first.rstrip("s").rstrip("'") in NAMES or not first[1:].islower() else title[:1].lower() + title[1:]


def _left_out(result: PreflightResult) -> list[tuple[str, str | None]]:
    """Return what was not looked at, and why; None where a note at its section says it."""
    wiring, loop = result.wiring, result.open_loop
    truth, weights, prompt = wiring.truth, wiring.weights, wiring.prompt
    recorded, lacking = "dataset" in wiring.sources, _lacking(wiring)
    shown = any(wire.kind == "image" for wire in wiring.wires if "dataset" in wire.ends)
    looked_at = wiring.motion is not None and "frozen" in wiring.motion.checks
    naive = loop.whole.naive if loop is not None and loop.whole is not None else []
    mean = next((each.paired for each in naive if each.name == preflight_rules.NAIVEST), None)
    unsure = mean is not None and mean.smaller is None and not preflight_rules.is_no_better(mean, than_mean=True)
    of_policy: list[tuple[bool, str, str | None]] = [
        (not recorded, "the data set", "give --dataset.root=DATA"),
        ("robot" not in wiring.sources, "the robot", "give lerobot-rollout's arguments after --"),
        (weights is None or weights.missing is None, "missing weights of the policy", "the policy was not loaded"),
        (wiring.timing.call is None, "the time of a call", "none was timed; --rollout=RUN has timed calls"),
        (recorded and (loop is None or loop.whole is None), "its actions on recorded frames", None),
        (unsure, "whether it beats the mean action", "more episodes decide it"),
        (bool(prompt and prompt.uncounted), "whether the tokenizer cuts the prompt", prompt and prompt.uncounted),
        (not wiring.normalises, "statistics of its processors", "they do not normalise in LeRobot's way"),
        (bool(lacking), "statistics that the data set lacks", "; ".join(lacking)),
        (bool(wiring.unread), "the robot's joints", None),
    ]
    of_data: list[tuple[bool, str, str | None]] = [
        (recorded and truth is None, "the data set's frames", None),
        (truth is not None and shown and not looked_at, "the images", None),
        (bool(truth and truth.unjudged), "a part of the data set", None),
    ]
    return [(what, why) for left, what, why in (of_policy if wiring.policy else []) + of_data if left]


def _lacking(wiring: Wiring) -> list[str]:
    """Return the statistics that the data set lacks for its wires, in words."""
    found = [(wire, next((each for place in PROCESSORS if (each := wire.missing_statistics(place))), None))
             for wire in wiring.wires if "dataset" in wiring.sources]  # fmt: skip
    return [f"{lacking} of {'relative ' * wire.relative}{wire.name}" for wire, lacking in found if lacking]


def _call(wiring: Wiring) -> str:
    call = wiring.timing.call
    if call is None:
        return ""
    where = f"in {call.run}" if call.run else "on recorded frames on this machine"
    rate = wiring.timing.loop_fps or call.fps or wiring.timing.data_fps
    ticks = f", {call.ms * rate / 1e3:.3g} ticks at {rate:g} Hz" if rate else ""
    return f"{units.ms(call.ms)} ms (median){ticks}, {where}"


def _features(wiring: Wiring) -> Table:
    places: list[Place] = [place for place in PLACES if place in wiring.sources]
    rows = []
    for wire in wiring.wires:
        if any(place in wire.ends for place in places):
            ends = [wire.ends.get(place) for place in places]
            rows.append(Row([wire.name, *(None if end is None else _end(end, wire.name) for end in ends)]))
    return Table([Column("Feature", numeric=False), *(Column(PLACES[place], numeric=False) for place in places)], rows)


def _end(feature: Feature, name: str) -> str:
    words = ["×".join(map(str, feature.shape)) or "scalar", feature.dtype, feature.unit]
    norm = feature.normalisation
    if norm is not None and norm.mode:
        lacking = [statistic for statistic in norm.required_statistics if not norm.statistics.get(statistic)]
        words.append(f"{norm.mode}{', statistics missing' if lacking else ''}")
    if feature.name != name:
        words.append(f"as {feature.name}")
    return ", ".join(word for word in words if word)


def _orders(wiring: Wiring) -> Table | None:
    columns: list[tuple[str, list[str]]] = []
    if wiring.order:
        columns.append(("Action, policy", wiring.order))
    for wire, word in ((wiring.wire("action"), "Action"), (wiring.wire("observation.state"), "State")):
        ends = wire.ends.items() if wire is not None else ()
        columns += [(f"{word}, {PLACES[place].lower()}", end.dimensions) for place, end in ends if end.dimensions]
    if not columns:
        return None
    longest = max(len(names) for _, names in columns)
    rows = [
        Row([str(index), *(names[index] if index < len(names) else None for _, names in columns)])
        for index in range(longest)
    ]
    return Table([Column("Index", numeric=False), *(Column(title, numeric=False) for title, _ in columns)], rows)


def _truth(truth: DataTruth) -> tuple[Table | None, list[str]]:
    """Return the table of stated and measured statistics, and the notes below it."""
    columns = [Column("Dimension", numeric=False), Column("stats.json"), Column("All frames")]
    columns += [Column("stats.json, q01 to q99"), Column("All frames, q01 to q99"), Column("Beyond ±1 (%)")]
    rows = [
        Row([f"{vector.name}: {name}", *_stated_and_measured(vector, at)])
        for vector in (*truth.vectors, *([truth.relative] if truth.relative is not None else []))
        for at, name in enumerate(vector.dimensions)
    ]
    notes = [f"Read without decoding: {truth.frames:,} frames of {truth.episodes:,} episodes."]
    if truth.relative is not None:
        notes.append(f"The last rows are relative actions: action[t + k] − state[t], k < {truth.chunk}.")
    if truth.standing is not None:
        found = truth.standing
        notes.append(
            f"The arm stands still in {100 * found.start_share:.1f} % of the frames at the start of episodes, and in "
            f"{100 * found.end_share:.1f} % at their end."
        )
    for found in truth.repeats:
        notes.append(f"{found.name} has a new value every {found.ticks:.2f} control ticks during motion.")
    notes += [f"Not judged: {reason}." for reason in truth.unjudged]
    return (Table(columns, rows) if rows else None), notes


def _stated_and_measured(vector: VectorTruth, at: int) -> list[str | None]:
    pairs = [
        _pair(each, ends, at) for ends in (("mean", "std"), ("q01", "q99")) for each in (vector.stated, vector.measured)
    ]
    return [*pairs, f"{100 * vector.outside[at]:.1f}" if at < len(vector.outside) else None]


def _pair(statistics: Statistics, ends: tuple[str, str], at: int) -> str | None:
    one, two = (statistics.get(name) or [] for name in ends)
    if at >= len(one) or at >= len(two) or one[at] is None or two[at] is None:
        return None
    return f"{one[at]:.4g} ± {two[at]:.2g}" if ends[0] == "mean" else f"{one[at]:.4g} to {two[at]:.4g}"


def _lag(lag: Lag) -> tuple[Table, list[str]]:
    columns: Columns[JointLag] = [
        words("Lag of", lambda joint: joint.joint),
        figure("Recording (ticks)", lambda joint: joint.recorded, "{:.1f}".format),
        figure("95 % CI", lambda joint: joint.interval, lambda ends: f"{ends.low:.1f} to {ends.high:.1f}"),
        figure("Episodes", lambda joint: joint.episodes or None, str),
        *([figure("Run (ticks)", lambda joint: joint.run, "{:.1f}".format)] if lag.run else []),
    ]
    notes = []
    if lag.run and lag.run_fps and lag.run_fps != lag.fps:
        notes.append(f"A tick is {1000 / lag.fps:.0f} ms of the recording and {1000 / lag.run_fps:.0f} ms of the run.")
    if lag.observations_run is not None:
        notes.append(f"Observation age of the run: median {lag.observations_run:.1f} control ticks.")
    notes += [
        f"Frames of {name} were {ticks:.1f} control ticks old in the run." for name, ticks in lag.frames_run.items()
    ]
    if not lag.run:
        notes.append("--rollout=RUN also shows the lags of a run of strobe rollout or strobe rehearse.")
    return table(lag.joints, columns), [
        *notes,
        *(f"Not judged. {reason}" for reason in lag.unjudged),
    ]


MOST_ROWS, MOST_TRACES = 60, 6


def _motion_sections(motion: Motion | None) -> list[Section]:
    """Return the table of odd episodes, with what was looked at below it; nothing without a look at the motion."""
    if motion is None:
        return []
    whole = [each for each in motion.found if len(each.episodes) == len(motion.rows)]
    odd = {number: [each for each in motion.found if number in each.episodes] for number in motion.rows}
    shown = [number for number, found in odd.items() if len(found) > len(whole)]
    columns: Columns[int] = [
        words("Episode", str),
        figure("Rows", motion.rows.__getitem__),
        words("What is odd in it", lambda number: "; ".join(each.title for each in odd[number] if each not in whole)),
    ]
    read = [check.reads for check in CHECKS if check.name in motion.checks]
    notes = [f"In each episode: {each.title}." for each in whole]
    notes.append(f"{len(shown):,} of {len(motion.rows):,} episodes have something odd of their own.")
    notes += [f"The first {MOST_ROWS} are shown."] if len(shown) > MOST_ROWS else []
    notes.append(f"Looked at: {'; '.join(read)}.")
    notes += [_note_camera(camera) for camera in motion.cameras]
    notes += [f"Not judged: {reason}." for reason in motion.unjudged]
    return [Section("motion", "Episodes and their motion", table(shown[:MOST_ROWS], columns) if shown else None, notes)]


def _note_camera(camera: CameraLag) -> str:
    shown = f"{len(camera.episodes)} of" if camera.episodes else "none of"
    lag = f"its lag behind {camera.against or 'the rows'} is shown by {shown} {camera.looked_at} episodes"
    return f"{camera.camera}: {lag}."


def _motion_plots(motion: Motion | None) -> Plots:
    if motion is None:
        return {}
    made = [_rest_plot(motion.rests)] if motion.rests else []
    made += [_trace_plot(each) for each in motion.traces[:MOST_TRACES]]
    made += [_lag_plot(motion.cameras)] if motion.cameras else []
    return {"motion": made} if made else {}


def _rest_plot(rests: list[RestPoints]) -> charts.Plot:
    data = []
    for number, (name, wanted) in enumerate((("as the others", False), ("named above", True))):
        points = list(_points(rests, wanted))
        if points:
            x, y = zip(*points, strict=True)
            data.append(charts.points(name, x, y, charts.colour(number), symbol="line-ns-open", size=13))
    names = charts.names_axis([each.joint for each in rests], **charts.DOWN)
    axis = charts.axis("state less action at rest, in the joint's unit", zeroline=True)
    layout = charts.layout(140 + 34 * len(rests), axis, names, legend=charts.LEGEND_ABOVE)
    caption = "A mark for each episode. A servo that is calibrated like its leader rests near 0."
    return charts.Plot("Where the joints rest, against their commands", caption, data, layout)


def _points(rests: list[RestPoints], wanted: bool) -> Iterator[tuple[float, int]]:
    for place, each in enumerate(rests):
        for action, state, odd in zip(each.action, each.state, each.odd, strict=True):
            if odd == wanted:
                yield state - action, place


def _trace_plot(trace: Trace) -> charts.Plot:
    x = list(range(trace.first, trace.first + len(trace.values)))
    data = [charts.line(trace.name, x, trace.values, charts.colour(1), points=4)]
    layout = charts.layout(280, charts.axis(f"frame of episode {trace.episode}"), charts.axis("value"))
    return charts.Plot(f"{trace.name} in episode {trace.episode}", "The values as they are recorded.", data, layout)


def _lag_plot(cameras: list[CameraLag]) -> charts.Plot:
    data = []
    for number, lag in enumerate(cameras):
        name = lag.camera if lag.against is None else f"{lag.camera} behind {lag.against}"
        data.append(charts.line(name, lag.lags_s, lag.correlation, charts.colour(number)))
    x, y = charts.axis("seconds by which the images are behind"), charts.axis("correlation")
    layout = charts.layout(300, x, y, shapes=[charts.dashed_line(0.0)], legend=charts.LEGEND_ABOVE)
    caption = "The change of the images against the speed of the joints, or another camera's. A peak at 0: no lag."
    return charts.Plot("Images against rows in time", caption, data, layout)
