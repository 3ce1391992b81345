"""Preflight: does this checkpoint match this data and this robot?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.core.results.finding import Finding
from strobe.lerobot.datasets.copy import NewRows, write_copy
from strobe.lerobot.datasets.fault import DatasetError, format_episodes
from strobe.lerobot.datasets.images import decode
from strobe.lerobot.datasets.numbers import ACTION, STATE
from strobe.lerobot.datasets.results import DataTruth
from strobe.lerobot.datasets.truth import Reading, RelativeActions, read_truth
from strobe.motion.checks import look_at_motion
from strobe.motion.results import Motion
from strobe.motion.rows import find_units
from strobe.motion.series import Series, make_series, read_columns
from strobe.preflight.findings.wiring import wiring_findings
from strobe.preflight.lag import PolicyRun, add_first_action, lags, measured_call_time
from strobe.preflight.results.wiring import CallTime, PreflightResult, Timing, Weights, WiredFeature, Wiring
from strobe.preflight.wiring.checkpoint import Checkpoint, read_checkpoint, read_training
from strobe.preflight.wiring.dataset import read_dataset
from strobe.preflight.wiring.fix import write_fixed_copy
from strobe.preflight.wiring.reach import relative_actions, relative_mask
from strobe.preflight.wiring.read import read_wiring, written_by_lerobot
from strobe.preflight.wiring.robot import Connected
from strobe.version import __version__

if TYPE_CHECKING:
    from strobe.core.measure.sampling import Progress
    from strobe.lerobot.datasets.numbers import Numbers
    from strobe.lerobot.datasets.recording import Recording
    from strobe.lerobot.policies.checkpoints import ReadNames
    from strobe.open_loop.run import Frames

FIXED = frozenset({"spikes", "wraps", "units"})  # checks whose faults a copy can be without
NO_WORSE = 0.02  # R²: two predictions that differ by no more are equally good


@dataclass(frozen=True)
class Preflight:
    """The checkpoint to look at, and what to compare it with.

    Args:
        policy: the checkpoint's folder.
        dataset: the folder of a LeRobotDataset.
        robot: what a rollout would connect.
        rename: names in the inputs → names that the policy knows.
        rollout: a run of this policy, whose lags are compared with the data set's, and whose calls are timed.
        settings: fields of the policy's config that the command line sets.
        fix, fix_data: the folders into which fixed copies of the checkpoint and the data set are written.
        episodes: of the data set, that are used; all by default.
        decode: whether a few images of the data set are decoded.
        log: what lerobot-train printed when it made the checkpoint.
    """

    policy: Path
    dataset: Path | None = None
    robot: Connected | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    fix: Path | None = None
    rollout: PolicyRun | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    fix_data: Path | None = None
    episodes: Sequence[int] | None = None
    decode: bool = False
    progress: Callable[[Progress], None] = lambda _: None
    log: Path | None = None

    @property
    def reading(self) -> Reading:
        """What is read of the data set."""
        return Reading(episodes=self.episodes, decode=self.decode, progress=self.progress)


def preflight(look: Preflight) -> PreflightResult:
    """Read the wiring, and fix it in a copy if that is asked for. Raises UserError for files that cannot be read."""
    wiring, checkpoint = _wiring(look, look.policy), read_checkpoint(look.policy)
    result = make_answer(wiring)
    if look.dataset is not None:
        add_truth(wiring, look.dataset, checkpoint, look.reading)
        wiring.lag = lags(wiring, look.rollout)
    with written_by_lerobot(look.policy.parent):
        wiring.training = read_training(checkpoint, wiring.truth and wiring.truth.frames, look.log)
    if look.rollout is not None:
        wiring.timing.call = measured_call_time(look.rollout)
    if look.fix is not None:
        recorded = read_dataset(look.dataset) if look.dataset is not None else None
        result.fixed = write_fixed_copy(checkpoint, wiring, look.fix, recorded)
        fixed = _wiring(look, look.fix)
        if wiring.truth is not None:
            add_frames(fixed, wiring.truth)
        compare_findings(result, fixed, look.fix)
    if look.fix_data is not None and look.dataset is not None and wiring.truth is not None:
        result.fixed += write_copy(look.dataset, look.fix_data, wiring.truth)
    return result


def _wiring(look: Preflight, policy: Path) -> Wiring:
    return read_wiring(policy, look.dataset, look.robot, rename=look.rename, settings=look.settings)


def preflight_of_data(
    dataset: Path,
    fix_data: Path | None = None,
    episodes: Sequence[int] | None = None,
    *,
    decode: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> PreflightResult:
    """Read a data set by itself; see `Preflight`. Raises UserError for files that cannot be read."""
    with written_by_lerobot(dataset):
        recorded = read_dataset(dataset)
    wires = [
        WiredFeature(name=name, kind=feature.kind, ends={"dataset": feature})
        for name, feature in recorded.features.items()
    ]
    wiring = Wiring(policy="", sources={"dataset": str(dataset)}, wires=wires, timing=Timing(data_fps=recorded.fps))
    reading = Reading(episodes=episodes, decode=decode, progress=progress)
    seen: list[Series] = []

    def look(read: Recording, numbers: Numbers, chosen: list[int]) -> None:
        _add_motion(wiring, reading, read, numbers, chosen)
        if fix_data is not None and episodes is None:
            seen.append(make_series(read, numbers, chosen))

    wiring.truth = read_truth(dataset, replace(reading, look=look))
    result = make_answer(wiring)
    result.title = f"{dataset.name}: is this recording good?"
    wiring.lag = lags(wiring, None)
    if fix_data is not None:
        odd = {each.check for each in wiring.motion.found} if wiring.motion is not None else set()
        try:
            rows = fix_rows(seen[0]) if seen and odd & FIXED else {}
        except UserError as error:
            result.unfixed = str(error)
            return result
        result.fixed = write_copy(dataset, fix_data, wiring.truth, rows)
        if rows and wiring.motion is not None:
            copied = preflight_of_data(fix_data, progress=progress).wiring.motion
            if (why := describe_fault(wiring.motion, copied)) is not None:
                _delete_copy(result, fix_data, why)
    return result


def make_answer(wiring: Wiring, refused: str | None = None) -> PreflightResult:
    """Return the answer on a wiring that was read. ``refused``: the command that does not start because of it."""
    return PreflightResult(
        strobe_version=__version__,
        title=f"{wiring.policy}: do policy, data and robot match?",
        wiring=wiring,
        refused=refused,
        notes=wiring.unread,
    )


def look_at_frames(
    result: PreflightResult,
    policy: Path,
    frames: Frames,
    progress: Callable[[Progress], None],
    run: PolicyRun | None = None,
    fixed: Path | None = None,
) -> None:
    """Run the policy on recorded frames, and add errors, hypotheses, first actions and call time. Imports torch.

    Args:
        policy: the checkpoint's folder.
        run: a run of this policy, whose first action is compared with those on the frames.
        fixed: the folder of a fixed copy, which is deleted if it predicts the frames worse.
    """
    from strobe.open_loop.run import open_loop

    wiring = result.wiring
    try:
        loop, result.hypotheses, read, differences = open_loop(policy, frames, progress)
    except KeyboardInterrupt:  # while the policy was loaded: what the files and a simulator showed stays
        result.status = "interrupted"
        if fixed is not None:
            _delete_copy(result, fixed, "Ctrl-C came before it was compared with the recorded frames")
        return
    wiring.differences = differences or wiring.differences
    result.open_loop = loop
    if loop.first_jump is not None and run is not None:
        add_first_action(loop.first_jump, run)
    if read is not None and wiring.weights is not None:
        _add_names(wiring.weights, read)
    if wiring.timing.call is None and loop.call_ms is not None:  # that of a run counts more: it was timed in a loop
        wiring.timing.call = CallTime(ms=loop.call_ms)
    if loop.stopped:
        result.status = "interrupted"
    if fixed is not None:
        compare_on_frames(result, fixed, frames, progress)


def _add_names(weights: Weights, read: ReadNames) -> None:
    weights.missing, weights.reshaped = list(read.missing), list(read.reshaped)
    weights.unexpected = [name for name in read.unexpected if name not in weights.statistics]


def add_truth(wiring: Wiring, dataset: Path, checkpoint: Checkpoint, reading: Reading) -> None:
    """Read the frames of ``dataset`` into ``wiring.truth``, their statistics into its wires, and their motion."""
    asked = replace(reading, relative=_relative(wiring, checkpoint), look=partial(_add_motion, wiring, reading))
    add_frames(wiring, read_truth(dataset, asked))


def _add_motion(wiring: Wiring, reading: Reading, read: Recording, numbers: Numbers, chosen: list[int]) -> None:
    series, images, unread = make_series(read, numbers, chosen), None, []
    if reading.decode and series.bounds:
        try:
            images = decode(read, series.rows, reading.progress)
        except (DatasetError, ValueError) as error:
            unread.append(f"the images: {error_line(error, 120)}")
    wiring.motion = look_at_motion(series, reading.progress, images)
    wiring.motion.unjudged += unread


def add_frames(wiring: Wiring, truth: DataTruth) -> None:
    """Put what the frames say into ``wiring``, and their statistics into its wires."""
    wiring.truth = truth
    for wire in wiring.wires:
        end = wire.ends.get("dataset")
        found = truth.vector(end.name) if end is not None else None
        if wire.relative:
            found = truth.relative
        if found is not None:
            wire.frames = found.measured


def _relative(wiring: Wiring, checkpoint: Checkpoint) -> RelativeActions | None:
    step, wire = relative_actions(checkpoint), wiring.wire("action")
    end = wire.ends.get("dataset") if wire is not None else None
    if step is None or end is None or len(end.shape) != 1 or not wiring.timing.chunk:
        return None
    return RelativeActions(wiring.timing.chunk, relative_mask(step, end.shape[0]))


# A fixed copy is compared with the checkpoint: by the same rules, and on recorded frames.


def compare_findings(result: PreflightResult, fixed: Wiring, target: Path) -> None:
    """Delete the copy in ``target`` if it has a serious fault that the checkpoint does not have."""
    before = {(each.rule, each.evidence.get("feature")) for each in _serious(result.wiring)}
    new = [each for each in _serious(fixed) if (each.rule, each.evidence.get("feature")) not in before]
    if new:
        _delete_copy(result, target, f"it would have another fault: {new[0].title}")


def compare_on_frames(
    result: PreflightResult, target: Path, frames: Frames, progress: Callable[[Progress], None]
) -> None:
    """Delete the copy in ``target`` if it predicts the recorded actions worse than the checkpoint does.

    A checkpoint that cannot run, often the reason for the fix, gives nothing to compare with: the copy must run.
    Ctrl-C deletes the copy too, because an unproven copy must not stay.
    """
    from strobe.open_loop.run import explained_share

    loop = result.open_loop
    if not target.is_dir() or not result.fixed or loop is None:
        return
    try:
        if loop.stopped:
            raise KeyboardInterrupt
        after = explained_share(target, frames, progress)
    except KeyboardInterrupt:
        result.status = "interrupted"
        _delete_copy(result, target, "Ctrl-C came before it was compared with the recorded frames")
        return
    except UserError as error:
        if loop.whole is not None:
            _delete_copy(result, target, f"it cannot be run on the recorded frames: {error}")
        return
    if loop.whole is None:
        result.fixed.append(f"It predicts the recorded actions with R² = {_share(after)}.")
        return
    before = loop.whole.explained
    words = f"predicts the recorded actions with R² = {_share(after)}, the checkpoint with R² = {_share(before)}"
    if max(after, 0.0) < max(before, 0.0) - NO_WORSE:
        _delete_copy(result, target, f"it {words}")
    else:
        result.fixed.append(f"It {words}.")


def _serious(wiring: Wiring) -> list[Finding]:
    return [each for each in wiring_findings(wiring) if each.level == "warning"]


def _delete_copy(result: PreflightResult, target: Path, why: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    result.fixed, result.unfixed = [], why


def _share(share: float) -> str:
    return f"{max(share, 0.0):.2f}"


# A copy of a data set is in one unit, without spikes and wraps.


def fix_rows(series: Series) -> dict[str, NewRows]:
    """Return the vectors that have two units, spikes or wraps without them.

    A spike becomes a line between the rows around it. A joint that wraps goes on over whole turns: in each episode
    around the turn where it mostly is, its action in the turn of its state. The unit is that of most episodes.

    Raises:
        UserError: the factor between two units is not known exactly: by the encoders' smallest steps.
    """
    columns, done = {name: read_columns(series, name) for name in series.vectors}, dict[str, str]()
    for name, some in columns.items():
        if (two := find_units(series, name, some)) is None:
            continue
        if two.exact is None or sum(series.rows.values()) < len(series.task):  # episodes that are not finite show none
            raise UserError(f"{name} is in two units, and the factor between them is not known exactly")
        values, odd = series.vectors[name].astype(float), series.episodes[two.few].tolist()
        for start, end in (series.bounds[at] for at in np.flatnonzero(two.few)):
            values[start:end, two.changed] /= two.exact
        series = replace(series, vectors=series.vectors | {name: values.astype(series.vectors[name].dtype)})
        columns[name] = read_columns(series, name)
        done[name] = f"in one unit ({format_episodes(odd)} times {1 / two.exact:.6g}, exact but for rounding)"
    for name, some in columns.items():
        if any(len(each.spikes) or len(each.wraps) for each in some):
            done[name] = " and ".join([*([done[name]] if name in done else []), "without spikes and whole turns"])
    found = {name: np.stack([each.clean for each in columns[name]], axis=1).astype(series.vectors[name].dtype)
             for name in done}  # fmt: skip
    turns = {name: each.turn for vector, some in columns.items()
             for name, each in zip(series.names[vector], some, strict=True) if len(each.wraps)}  # fmt: skip
    for joint, turn in turns.items():
        sides = [found[name][:, series.names[name].index(joint)] for name in (STATE, ACTION)
                 if name in found and joint in series.names[name]]  # fmt: skip
        if sides:
            _bring_to_one_turn(sides, turn, series.bounds)
    return {name: (values, done[name]) for name, values in found.items()}


def _bring_to_one_turn(sides: list[np.ndarray], turn: float, bounds: list[tuple[int, int]]) -> None:
    first, others = sides[0], sides[1:]
    middle = float(np.angle(np.exp(2j * np.pi * first / turn).mean())) * turn / (2 * np.pi)
    for start, end in bounds:
        first[start:end] -= turn * np.round((np.median(first[start:end]) - middle) / turn)
        for other in others:
            other[start:end] -= turn * np.round(np.median(other[start:end] - first[start:end]) / turn)


def describe_fault(before: Motion, after: Motion | None) -> str | None:
    """Return why a copy is not sound, in words: a fault is there still, or a new one; None if it is."""
    named = {str(each.check) for each in after.found} if after is not None else set[str]()
    if left := sorted(named & FIXED):
        return f"its rows still have {' and '.join(left)}"
    new = sorted(named - {str(each.check) for each in before.found})
    return f"its rows would have another fault: {', '.join(new)}" if new else None
