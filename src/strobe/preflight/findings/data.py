"""Rules on a data set: are its statistics those of its frames, and can a policy learn from its frames?"""

from __future__ import annotations

import json
from collections.abc import Iterator

from strobe.core.results import units
from strobe.core.results.finding import Finding, warning
from strobe.lerobot.datasets.results import RANGES, VectorTruth
from strobe.preflight.results.wiring import Place, Wiring

SHOWN = 4  # dimensions that are named
STANDS = 0.1  # share of all frames: standing starts teach a policy to stand still
STANDS_AT_END = 0.25
QUANTILES = {name for ends in RANGES for name in ends}
READERS: tuple[Place, ...] = ("preprocessor", "postprocessor")
OFTEN = 1.2  # ticks from one new value to the next: more is a loop that was slower
LONGEST = 110  # characters of a title


def faults(wiring: Wiring) -> Iterator[Finding]:
    """Faults that the checker of data sets has found."""
    truth = wiring.truth
    seen = {odd.check for odd in wiring.motion.found} if wiring.motion is not None else set()
    for fault in truth.faults if truth is not None else ():
        if fault.kind == "behind" and "images behind" in seen:
            continue  # they were looked at
        total = truth.episodes if truth is not None else 0
        title = fault.brief or units.capital(fault.what)
        title = title if len(title) <= LONGEST else f"{title[:LONGEST]}…"
        if fault.brief and fault.episodes > 1:
            title += f", also {fault.episodes - 1} more episodes"
        share = f" That is {fault.episodes} of {total} episodes." if fault.episodes and total else ""
        do = f"{units.capital(fault.do)}." if fault.do else ""
        if fault.kind == "index":
            copy = _copy(wiring.sources.get("dataset", ""))
            do = f"{do} Or {copy}" if do else copy
        yield warning(
            rule=f"data-{fault.kind}",
            title=title,
            found=f"{fault.what}.{share}",
            why=fault.why
            or ("LeRobot stops when it reads that." if fault.stops else "LeRobot reads it without an error."),
            do=do,
        )


def motion(wiring: Wiring) -> Iterator[Finding]:
    """Findings of the checks of the recording's motion and images."""
    dark = [fault.what for fault in wiring.truth.faults if fault.kind == "dark"] if wiring.truth is not None else []
    for odd in wiring.motion.found if wiring.motion is not None else ():
        if odd.check == "empty" and any(f" of {odd.feature} " in what for what in dark):
            continue  # by the statistics of the episodes
        wire = next((each for each in wiring.wires if _name(each.ends.get("dataset")) == odd.feature), None)
        unread = bool(wiring.policy) and wire is not None and wire.kind == "image" and "policy" not in wire.ends
        yield Finding(
            rule=f"data-motion-{str(odd.check).replace(' ', '-')}",
            level="info" if unread else odd.level,
            title=odd.title,
            found=odd.found,
            why=f"{odd.why}{' This policy does not read it.' if unread else ''}",
            do=odd.do,
            evidence={"feature": odd.feature, "episodes": len(odd.episodes), "share": odd.share},
        )


def wrong_statistics(wiring: Wiring) -> Iterator[Finding]:
    """Statistics in meta/stats.json that do not match the frames (lerobot #4156, #3804, #2189)."""
    for vector in wiring.truth.vectors if wiring.truth is not None else ():
        off = vector.differing()
        wire = next((each for each in wiring.wires if _name(each.ends.get("dataset")) == vector.name), None)
        relative = wiring.truth.relative if wiring.truth is not None else None
        if wire is not None and wire.relative and relative is not None and not relative.differing():
            continue  # stats.json has those of relative actions, as this policy needs them
        ends = [wire.ends[place] for place in READERS if place in wire.ends] if wire is not None else []
        read = {name for end in ends if end.normalisation is not None for name in end.normalisation.required_statistics}
        if wire is not None and wire.relative:
            read = set()  # of absolute actions: this policy takes the others
        if off and not set(off) & read and set(off) <= QUANTILES and ends:
            continue  # every data set of LeRobot 0.6.1 has them, and this policy reads others
        if off:
            yield from _wrong_vector_statistics(
                vector, off, read, wiring.sources.get("dataset", ""), alone=not wiring.policy
            )


def _wrong_vector_statistics(
    vector: VectorTruth, off: dict[str, list[int]], read: set[str], root: str, *, alone: bool
) -> Iterator[Finding]:
    plain = {name: at for name, at in off.items() if name not in QUANTILES}
    shown = {name: at for name, at in off.items() if name in read} or plain or off
    dimensions = sorted({at for places in shown.values() for at in places}, key=lambda at: -_size(vector, shown, at))
    listed = "; ".join(f"{vector.dimensions[at]}: {_both(vector, shown, at)}" for at in dimensions[:SHOWN])
    more = f"; and {len(dimensions) - SHOWN} more" if len(dimensions) > SHOWN else ""
    why, level = "This policy does not read these statistics. Others do.", "info"
    if alone or read & set(off):
        why = "Training and rollout normalise with the wrong range."
        if set(shown) <= QUANTILES:
            why = f"LeRobot averages the quantiles of the episodes, and that is not the quantile of all frames. {why}"
    if read & set(off) or (alone and plain):
        level = "warning"
    yield Finding(
        rule="data-statistics-wrong",
        level=level,
        title=f"The statistics of {vector.name} do not match its frames: {vector.dimensions[dimensions[0]]}",
        found=f"meta/stats.json against all frames: {listed}{more}.",
        why=why,
        do=f"{_copy(root)} Train on that copy.",
        evidence={"feature": vector.name, "dimensions": len(dimensions), "joint": vector.dimensions[dimensions[0]]},
    )


def _both(vector: VectorTruth, off: dict[str, list[int]], at: int) -> str:
    said = [
        f"{name} {_number(vector.stated, name, at)} (frames: {_number(vector.measured, name, at)})"
        for name, places in off.items()
        if at in places
    ]
    beyond = ""
    if at < len(vector.outside) and {"q01", "q99"} & set(off) and vector.outside[at]:
        beyond = f"; {100 * vector.outside[at]:.0f} % of the frames are outside ±1, up to {vector.farthest[at]:.2g}"
    return ", ".join(said) + beyond


def _number(statistics: dict[str, list[float | None]], name: str, at: int) -> str:
    values = statistics.get(name) or []
    value = values[at] if at < len(values) else None
    return "nothing" if value is None else f"{value:.4g}"


def _size(vector: VectorTruth, off: dict[str, list[int]], at: int) -> float:
    spread = vector.measured["std"][at] or 1e-9
    apart = [
        abs((vector.stated[name][at] or 0.0) - (vector.measured[name][at] or 0.0))
        for name, places in off.items()
        if at in places
    ]
    return max(apart, default=0.0) / spread


def absolute(wiring: Wiring) -> Iterator[Finding]:
    # lerobot #4700
    truth = wiring.truth
    for wire in wiring.wires:
        place: Place | None = next((each for each in READERS if wiring.absolute_where_relative(wire, each)), None)
        if place is None or truth is None or truth.relative is None:
            continue
        own = wire.ends[place].normalisation
        assert own is not None
        names, measured = truth.relative.dimensions, truth.relative.measured
        low, high = own.required_statistics
        shown = [
            f"{names[at]}: {low} {_number(own.statistics, low, at)}, {high} {_number(own.statistics, high, at)} "
            f"(relative: {_number(measured, low, at)}, {_number(measured, high, at)})"
            for at in sorted(set(truth.relative.differing(own.statistics).get(high, [])))[:SHOWN]
        ]
        yield warning(
            rule="statistics-absolute",
            title=f"Relative actions are normalised with statistics of absolute actions: {shown[0]}",
            found=f"The policy takes action[t + k] − state[t], k < {truth.chunk}. Its {place} has the statistics of "
            f"the recorded, absolute actions: {'; '.join(shown)}.",
            why="The normalised actions fill a small, off-centre part of their range. The policy learns coarse "
            "actions.",
            do=f"strobe preflight --policy.path={wiring.sources['policy']} --dataset.root="
            f"{wiring.sources.get('dataset', 'DATA')} --fix_data=FOLDER writes a copy with the statistics of relative "
            f"actions (chunks of {truth.chunk}). Train on that copy.",
            evidence={"feature": wire.name, "chunk": truth.chunk},
        )


# Frames at the starts or ends of episodes in which nothing moves: GR00T #137.


def standing(wiring: Wiring) -> Iterator[Finding]:
    found = wiring.truth.standing if wiring.truth is not None else None
    if found is None:
        return
    for place, share, ticks, most, when, why, do in (
        ("start", found.start_share, found.start_ticks, STANDS, "before its first motion",
         "The policy learns to stand still from a standing arm, and may never start.",
         "Start to move before you start to record."),
        ("end", found.end_share, found.end_ticks, STANDS_AT_END, "after its last motion",
         "The policy learns to stand still at the end of the task. That may be intended.",
         "End a recording when the motion ends."),
    ):  # fmt: skip
        if share > most:
            yield Finding(
                rule=f"data-stands-at-{place}s",
                level="warning" if place == "start" else "info",
                title=f"The arm stands still at the {place} of the episodes, in {100 * share:.0f} % of all frames",
                found=f"An episode has {ticks:.0f} control ticks {when} (median).",
                why=why,
                do=f"{do} LeRobot 0.6.1 has no command that cuts frames.",
            )


def repeats(wiring: Wiring) -> Iterator[Finding]:
    """Vectors that change less often than once per control tick: the loop that recorded them was slower."""
    fps = wiring.timing.data_fps
    for found in wiring.truth.repeats if wiring.truth is not None else ():
        if found.ticks > OFTEN and fps:
            held = fps / found.ticks
            yield warning(
                rule="data-repeats",
                title=f"{found.name} changes at {held:.3g} Hz, and the data set says {fps:g} Hz",
                found=f"During motion a new value comes every {found.ticks:.2g} control ticks, so "
                f"{100 / found.ticks:.0f} % of the ticks have one. The others repeat the last value.",
                why="The policy learns a motion that stops and starts, at the speeds of another rate.",
                do=f"Record again with a loop that keeps its rate, or with --dataset.fps={round(held) or 1}, which "
                "this loop, or the source of these values, kept.",
                evidence={"feature": found.name, "ticks": found.ticks, "joints": found.joints},
            )


def tasks(wiring: Wiring) -> Iterator[Finding]:
    """Tasks without words, for a policy that reads the task."""
    truth, prompt = wiring.truth, wiring.prompt
    if truth is None or (wiring.policy and (prompt is None or not prompt.reads_words)):
        return
    empty = [task for task in truth.tasks if not any(letter.isalnum() for letter in task.text)]
    single = [task for task in truth.tasks if task not in empty and len(task.text.split()) == 1]
    root = wiring.sources.get("dataset", "DATA")
    for kind, found, words in (("empty", empty, "no task"), ("one-word", single, "a one-word task")):
        if found:
            texts = units.join_names([repr(task.text) for task in found], SHOWN)
            frames = sum(task.frames for task in found)
            share = frames / max(truth.frames, 1)
            new = json.dumps({task.text: "WHAT THE ARM DOES, IN A SENTENCE" for task in found[:SHOWN]})
            yield Finding(
                rule=f"data-task-{kind}",
                level="warning" if wiring.policy and kind == "empty" else "info",
                title=f"{100 * share:.0f} % of the frames have {words}: {texts}",
                found=f"That is {frames:,} of {truth.frames:,} frames.",
                why="A policy that reads the task learns nothing from such a text. It then does not follow the task "
                "on the robot.",
                do=f"lerobot-edit-dataset --repo_id=local/{root.rpartition('/')[2]} --root={root} "
                f"--operation.type=modify_tasks --operation.task_replacements='{new}' changes the data set in place.",
            )


def _copy(root: str) -> str:
    return f"strobe preflight --dataset.root={root} --fix_data=FOLDER writes a fixed copy."


def _name(end: object) -> str:
    return str(getattr(end, "name", ""))


CHECKS = (faults, motion, wrong_statistics, absolute, standing, repeats, tasks)
