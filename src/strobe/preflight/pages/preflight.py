"""Preflight → document: the verdict, then every feature side by side."""

from __future__ import annotations

from strobe.core.report import frame
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.preflight.pages import open_loop, reach
from strobe.preflight.results.lag import JointLag, Lag
from strobe.preflight.results.preflight import PreflightResult
from strobe.preflight.results.wiring import Feature, Place, Wiring

PLACES: dict[Place, str] = {
    "policy": "Policy",
    "preprocessor": "Preprocessor",
    "postprocessor": "Postprocessor",
    "dataset": "Data set",
    "robot": "Robot",
}


def outline(result: PreflightResult, _depth: int | None = None) -> Document:
    """Return the document of a preflight."""
    sections = [Section("features", "Every feature, side by side", _features(result.wiring), _judged(result.wiring))]
    if orders := _orders(result.wiring):
        sections.append(Section("joints", "Joints in their order", orders))
    sections += reach.sections(result)
    if result.wiring.lag is not None:
        sections.append(Section("lag", "Lags in the recording", *_lag(result.wiring.lag)))
    sections += open_loop.sections(result)
    facts = [(PLACES[place], source) for place, source in result.wiring.sources.items()]
    facts += [("Device", _device(result.wiring)), ("Call", _call(result.wiring))]
    return frame.document(result, _answers(result), sections, facts=[*facts, ("Strobe", result.strobe_version)])


def plots(result: PreflightResult, _depth: int | None = None) -> Plots:
    """Return the plots of a preflight, by section."""
    return reach.figures(result) | open_loop.figures(result)


def _answers(result: PreflightResult) -> list[str]:
    serious = [finding.title for finding in result.findings if finding.level == "warning"]
    read = ", ".join(PLACES[place].lower() for place in result.wiring.sources)
    if serious:
        first = f"{result.wiring.policy} is not wired as in its training: {units.count(len(serious), 'fault')}. "
        sentences = [f"{first}{serious[0]}."]
        if result.refused:
            sentences.append(f"{result.refused} did not start: no robot was connected. --anyway starts it.")
    else:
        sentences = [f"Nothing is wrong in the wiring of {result.wiring.policy}, as far as it was read: {read}."]
    sentences += open_loop.sentences(result)
    if result.mended:
        sentences.append(f"A mended copy was written. {' '.join(result.mended)}")
    return sentences


def _judged(wiring: Wiring) -> list[str]:
    notes = ["Not judged without --dataset.root: the data set."] if "dataset" not in wiring.sources else []
    if "robot" not in wiring.sources:
        notes.append("Not judged without lerobot-rollout's arguments after --: the robot.")
    if wiring.weights is not None and wiring.weights.missing is None:
        notes.append("Not judged, since the policy was not loaded: weights that the policy has and the file lacks.")
    if wiring.timing.call is None:
        notes.append(
            "Not judged, since no call was timed (--rollout=RUN has timed calls): whether a call ends before its "
            "chunk does."
        )
    here, prompt = wiring.device_here, wiring.prompt
    if here is not None and here.there is None:
        notes.append(f"Not judged: whether this machine has a {wiring.device}; {here.why}.")
    if prompt is not None and prompt.uncounted:
        notes.append(f"Not judged: whether the tokenizer cuts the prompt; {prompt.uncounted}.")
    if not wiring.normalises:
        notes.append("Its processors do not normalise in LeRobot's way: their statistics were not judged.")
    return notes


def _device(wiring: Wiring) -> str:
    here = wiring.device_here
    if here is None:
        return ""
    words = {True: "is here", False: "is not on this machine", None: "not known whether it is here"}
    return f"{wiring.device} ({here.asked_by}): {words[here.there]}"


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
    columns = [Column("Feature", numeric=False), *(Column(PLACES[place], numeric=False) for place in places)]
    rows = []
    for wire in wiring.wires:
        if any(place in wire.ends for place in places):
            ends = [wire.ends.get(place) for place in places]
            rows.append(Row([wire.name, *(None if end is None else _end(end, wire.name) for end in ends)]))
    return Table(columns, rows)


def _end(feature: Feature, name: str) -> str:
    words = ["×".join(map(str, feature.shape)) or "scalar", feature.dtype, feature.unit]
    norm = feature.normalisation
    if norm is not None and norm.mode:
        lacking = [statistic for statistic in norm.needed if not norm.statistics.get(statistic)]
        words.append(f"{norm.mode}{', statistics missing' if lacking else ''}")
    if feature.name != name:
        words.append(f"as {feature.name}")
    return ", ".join(word for word in words if word)


def _orders(wiring: Wiring) -> Table | None:
    """Return the names of the action's and the state's dimensions, a row for each place in the vector."""
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
    return Table([Column("Number", numeric=False), *(Column(title, numeric=False) for title, _ in columns)], rows)


def _lag(lag: Lag) -> tuple[Table, list[str]]:
    """Return the table of joints with their lags in control ticks, and the notes below it."""
    columns = [
        Column("Joint follows its action by", numeric=False),
        Column("Recording (ticks)"),
        Column("95 % interval"),
    ]
    columns += [Column("Episodes"), *([Column("Run (ticks)")] if lag.run else [])]
    rows = [Row(_lag_cells(joint, bool(lag.run))) for joint in lag.joints]
    notes = []
    if lag.run and lag.run_fps and lag.run_fps != lag.fps:
        notes.append(f"A tick is {1000 / lag.fps:.0f} ms of the recording and {1000 / lag.run_fps:.0f} ms of the run.")
    if lag.observations_run is not None:
        notes.append(f"Actions of the run rest on observations {lag.observations_run:.1f} ticks old (median).")
    notes += [f"Frames of {name} were {ticks:.1f} ticks old in the run." for name, ticks in lag.frames_run.items()]
    if not lag.run:
        notes.append("--rollout=RUN also shows the lags of a run of strobe rollout or strobe rehearse.")
    notes += [f"Not judged. {reason}" for reason in lag.unjudged]
    return Table(columns, rows), notes


def _lag_cells(joint: JointLag, run: bool) -> list[str | None]:
    interval = joint.interval
    return [
        joint.joint,
        None if joint.recorded is None else f"{joint.recorded:.1f}",
        None if interval is None else f"{interval.low:.1f} to {interval.high:.1f}",
        str(joint.episodes) if joint.episodes else None,
        *([None if joint.run is None else f"{joint.run:.1f}"] if run else []),
    ]
