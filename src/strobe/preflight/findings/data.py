"""Rules on a data set: are its statistics those of its frames, and can a policy learn from its frames?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from strobe.core.findings.texts import Found, finding
from strobe.core.results.finding import Finding
from strobe.lerobot.datasets.fault import format_episodes
from strobe.lerobot.datasets.results import RANGES, DataTruth, VectorTruth
from strobe.preflight.results.wiring import Place, Wiring

SHOWN = 4  # dimensions that are named
STANDS = 0.1  # share of all frames: standing starts teach a policy to stand still
STANDS_AT_END = 0.25
AT_ONCE = 0.25  # ticks from an action to its state below which the arm cannot have followed it
QUANTILES = {name for ends in RANGES for name in ends}
READERS: tuple[Place, ...] = ("preprocessor", "postprocessor")
OFTEN = 1.2  # ticks from one new value to the next: more is a loop that was slower
LONGEST = 110  # characters of a title


@finding("data-{kind}", "warning")
def faults(wiring: Wiring) -> Found:
    """Faults that the checker of data sets has found.

    Title: {title}
    Found: {fault.what}.{share}
    Why: {why}
    Do: {do}
    """
    truth = wiring.truth
    for fault in truth.faults if truth is not None else ():
        total = truth.episodes if truth is not None else 0
        kind, title = fault.kind, _cut(fault.brief or _capital(fault.what))
        if fault.brief and fault.episodes > 1:
            title += f", also {fault.episodes - 1} more episodes"
        share = f" That is {fault.episodes} of {total} episodes." if fault.episodes and total else ""
        why = fault.why or (
            "LeRobot stops when it reads that." if fault.stops else "LeRobot reads it without an error."
        )
        do = f"{_capital(fault.do)}." if fault.do else ""
        if fault.kind == "index":
            copy = _copy(wiring.sources.get("dataset", ""))
            do = f"{do} Or {copy}" if do else copy
        yield {"episodes": fault.episodes, "of": total}, locals()


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
        elif vector.counted is not None and wiring.truth is not None and vector.counted != wiring.truth.frames:
            yield from _wrong_statistics_count(vector, wiring.truth.frames, wiring.sources.get("dataset", ""))


@finding("data-statistics-wrong", "{level}")
def _wrong_vector_statistics(
    vector: VectorTruth, off: dict[str, list[int]], read: set[str], root: str, *, alone: bool
) -> Found:
    """The statistics of {feature} do not match its frames: {first}.

    Found: meta/stats.json against all frames: {listed}{more}.
    Why: {why}
    Do: {copy} Train on that copy.
    """
    plain = {name: at for name, at in off.items() if name not in QUANTILES}
    shown = {name: at for name, at in off.items() if name in read} or plain or off
    dimensions = sorted({at for places in shown.values() for at in places}, key=lambda at: -_size(vector, shown, at))
    listed = "; ".join(f"{vector.dimensions[at]}: {_both(vector, shown, at)}" for at in dimensions[:SHOWN])
    more = f"; and {len(dimensions) - SHOWN} more" if len(dimensions) > SHOWN else ""
    first, copy, joint = _first(vector, shown, dimensions[0]), _copy(root), vector.dimensions[dimensions[0]]
    why, level = "This policy does not read these statistics. Others do.", "info"
    if alone or read & set(off):
        why = "Training and rollout normalise with the wrong range."
        if set(shown) <= QUANTILES:
            why = f"LeRobot averages the quantiles of the episodes, and that is not the quantile of all frames. {why}"
    if read & set(off) or (alone and plain):
        level = "warning"
    yield {"feature": vector.name, "dimensions": len(dimensions), "joint": joint}, locals()


def _first(vector: VectorTruth, off: dict[str, list[int]], at: int) -> str:
    name = max(
        (name for name, places in off.items() if at in places),
        key=lambda each: _size(vector, {each: off[each]}, at),
    )
    return (
        f"{vector.dimensions[at]}'s {name} is {_number(vector.stated, name, at)} in stats.json, and "
        f"{_number(vector.measured, name, at)} in the frames"
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


@finding("data-statistics-count", "info")
def _wrong_statistics_count(vector: VectorTruth, frames: int, root: str) -> Found:
    """The statistics of {vector.name} count another number of frames than the data has.

    Found: meta/stats.json counts {counted:,} frames, and the data has {frames:,}.
    Why: Statistics of merged data sets are weighted by that number.
    Do: {copy}
    """
    yield {"counted": vector.counted, "frames": frames}, {"copy": _copy(root)}


@finding("statistics-absolute", "warning")
def absolute(wiring: Wiring) -> Found:
    """Relative actions are normalised with statistics of absolute actions: {first}.

    Found: The policy takes action[t + k] − state[t], k < {chunk}. Its {place} has the statistics of the recorded,
        absolute actions: {listed}.
    Why: The normalised actions fill a small, off-centre part of their range. The policy learns coarse actions.
    Do: {do}
    """
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
        first, listed, do = shown[0], "; ".join(shown), _relative_statistics(wiring)
        yield {"feature": wire.name, "chunk": truth.chunk}, locals()


def _relative_statistics(wiring: Wiring) -> str:
    root, truth = wiring.sources.get("dataset", "DATA"), wiring.truth
    return (
        f"strobe preflight --policy.path={wiring.sources['policy']} --dataset.root={root} --fix_data=FOLDER writes "
        f"a copy with the statistics of relative actions (chunks of {truth.chunk if truth is not None else 0}). Train "
        "on "
        "that copy."
    )


@finding("data-action-is-state", "warning")
def state_copying_actions(wiring: Wiring) -> Found:
    """The data teaches the arm to stay: the action of {first.joint} is its present position.

    Found: {found}{more}.
    Why: The policy learns to send the position that the arm already has.
    Do: Shift the actions by {by} control tick{by:plural}: action[t] becomes the recorded action[t + {by}]. Or record
        the leader's positions as actions.
    """
    # The state shows the actions at once, or before: such data teaches the arm to stay (GR00T #137).
    joints = [joint for joint in wiring.truth.shifts if joint.late is not None] if wiring.truth is not None else []
    at_once = [joint for joint in joints if joint.late is not None and joint.late <= AT_ONCE]
    if not at_once or 2 * len(at_once) < len(joints):
        return
    first = max(at_once, key=lambda joint: joint.share)
    ticks = round(first.late or 0.0)
    if first.equal is not None:
        found = f"In {100 * first.share:.0f} % of the frames in which {first.joint} moves, its action is "
        found += "the state of the same control tick" if ticks == 0 else f"the state {-ticks} control ticks before"
    else:
        found = f"{first.joint} follows its action after {first.late:.1f} control ticks"
    others, by = [joint.joint for joint in at_once if joint is not first], 1 - ticks
    more = f"; the same holds for {_join_names(others)}" if others else ""
    yield {"joints": len(at_once), "of": len(joints), "ticks": first.late}, locals()


# Frames at the starts or ends of episodes in which nothing moves: GR00T #137.


@finding("data-stands-at-starts", "warning")
def standing_starts(wiring: Wiring) -> Found:
    """The arm stands still at the start of the episodes, in {share:whole percent} of all frames.

    Found: An episode has {ticks:.0f} control ticks before its first motion (median).
    Why: The policy learns to stand still from a standing arm, and may never start.
    Do: Start to move before you start to record. LeRobot 0.6.1 has no command that cuts frames.
    """
    found = wiring.truth.standing if wiring.truth is not None else None
    if found is not None and found.start_share > STANDS:
        yield {"share": found.start_share, "ticks": found.start_ticks}


@finding("data-stands-at-ends", "info")
def standing_ends(wiring: Wiring) -> Found:
    """The arm stands still at the end of the episodes, in {share:whole percent} of all frames.

    Found: An episode has {ticks:.0f} control ticks after its last motion (median).
    Why: The policy learns to stand still at the end of the task. That may be intended.
    Do: End a recording when the motion ends. LeRobot 0.6.1 has no command that cuts frames.
    """
    found = wiring.truth.standing if wiring.truth is not None else None
    if found is not None and found.end_share > STANDS_AT_END:
        yield {"share": found.end_share, "ticks": found.end_ticks}


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


@finding("data-repeats", "warning")
def repeats(wiring: Wiring) -> Found:
    """Vectors that change less often than once per control tick: the loop that recorded them was slower.

    Title: {feature} changes at {held:.3g} Hz, and the data set says {fps:g} Hz
    Found: During motion a new value comes every {found.ticks:.2g} control ticks, so {share:whole percent} of the ticks
        have one. The others repeat the last value.
    Why: The policy learns a motion that stops and starts, at the speeds of another rate.
    Do: Record again with a loop that keeps its rate, or with --dataset.fps={rate}, which this loop kept.
    """
    fps = wiring.timing.data_fps
    for found in wiring.truth.repeats if wiring.truth is not None else ():
        if found.ticks > OFTEN and fps:
            share, held = 1 / found.ticks, fps / found.ticks
            rate = round(held) or 1
            yield {"feature": found.name, "ticks": found.ticks, "joints": found.joints}, locals()


@finding("data-camera-{kind}", "{level}", ids=("data-camera-frozen", "data-camera-empty"))
def cameras(wiring: Wiring) -> Found:
    """Cameras whose decoded images stand still while the arm moves, or have one colour.

    Title: {name} {words} in {share:whole percent} of the episodes
    Found: Strobe decoded eight images of each of {looked_at} episodes. It found {which}.
    Why: {why}
    Do: {do}
    """
    truth = wiring.truth
    for camera in (truth.cameras or ()) if truth is not None else ():
        name = camera.name
        wire = next((each for each in wiring.wires if _name(each.ends.get("dataset")) == name), None)
        read = not wiring.policy or (wire is not None and "policy" in wire.ends)
        level, unread = ("warning", "") if read else ("info", " This policy does not read it.")
        looked_at = camera.episodes
        for kind, episodes, words, teaches in (  # noqa: B007
            ("frozen", camera.frozen, "stands still while the arm moves",
             "The policy learns from images that do not show the arm's position."),
            ("empty", [] if _is_dark(truth, name) else camera.empty, "shows one colour",
             "The policy learns to ignore this camera, and on the robot it shows a scene."),
        ):  # fmt: skip
            if episodes:
                share, which, why = len(episodes) / camera.episodes, format_episodes(episodes), f"{teaches}{unread}"
                do = _episode_exclusion_advice(wiring, episodes, all_of_them=len(episodes) == camera.episodes)
                yield {"camera": name, "episodes": len(episodes), "of": camera.episodes}, locals()


def _is_dark(truth: DataTruth | None, camera: str) -> bool:
    return truth is not None and any(each.kind == "dark" and f" of {camera} " in each.what for each in truth.faults)


def _episode_exclusion_advice(wiring: Wiring, episodes: Sequence[int], *, all_of_them: bool) -> str:
    if all_of_them or wiring.truth is None:
        return "Record again. Check the camera's cable and lens cap, and close other programs that use it."
    whole = [each for each in range(wiring.truth.episodes) if each not in set(episodes)]
    flag = f"--dataset.episodes=[{','.join(map(str, whole))}]" if len(whole) <= SHOWN * 3 else "--dataset.episodes"
    return f"Train without {format_episodes(episodes)} ({flag})."


@finding("data-task-{kind}", "{level}", ids=("data-task-empty", "data-task-one-word"))
def tasks(wiring: Wiring) -> Found:
    """Tasks without words, for a policy that reads the task.

    Title: {share:whole percent} of the frames have {words}: {texts}
    Found: That is {frames:,} of {truth.frames:,} frames.
    Why: A policy that reads the task learns nothing from such a text. It then does not follow the task on the robot.
    Do: lerobot-edit-dataset --repo_id=local/{folder} --root={root} --operation.type=modify_tasks
        --operation.task_replacements='{new}' changes the data set in place.
    """
    truth, prompt = wiring.truth, wiring.prompt
    if truth is None or (wiring.policy and (prompt is None or not prompt.reads_words)):
        return
    empty = [task for task in truth.tasks if not any(letter.isalnum() for letter in task.text)]
    single = [task for task in truth.tasks if task not in empty and len(task.text.split()) == 1]
    root = wiring.sources.get("dataset", "DATA")
    folder = root.rpartition("/")[2]
    for kind, found, words in (("empty", empty, "no task"), ("one-word", single, "a one-word task")):  # noqa: B007
        if found:
            level, texts = (
                "warning" if wiring.policy and kind == "empty" else "info",
                _join_names([repr(t.text) for t in found]),
            )
            frames = sum(task.frames for task in found)
            share = frames / max(truth.frames, 1)
            new = json.dumps({task.text: "WHAT THE ARM DOES, IN A SENTENCE" for task in found[:SHOWN]})
            yield {"tasks": len(found), "share": share}, locals()


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _copy(root: str) -> str:
    return f"strobe preflight --dataset.root={root} --fix_data=FOLDER writes a fixed copy."


def _name(end: object) -> str:
    return str(getattr(end, "name", ""))


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


CHECKS = (
    faults,
    wrong_statistics,
    absolute,
    state_copying_actions,
    standing_starts,
    standing_ends,
    repeats,
    cameras,
    tasks,
)
