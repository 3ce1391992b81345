"""A recorded rollout under other settings, and whether its loop starved or its policy erred.

The run is played in virtual time (`strobe.rollout.loops.virtual_time`): as it was set up, as requested, and in an ideal
loop whose calls take no time and whose ticks are never late. The first of these against the recording is the check of
the replay itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from strobe.core.errors import UserError, legible
from strobe.core.measure.longest import FEWEST, chance_of_longer
from strobe.replay.answer import jumping, notes, verdict
from strobe.replay.columns import (
    MOST_TICKS,
    Column,
    ColumnOptions,
    Progress,
    checks,
    drawn_play,
    draws_for,
    play_column,
    recorded_column,
)
from strobe.replay.policy import FedPolicy, fed_policy, names_policy
from strobe.replay.results import PolicyCalls, Replayed, ReplayResult, Tried
from strobe.replay.settings import Changes
from strobe.replay.virtual_setting import changes_beside_setting, requested_latencies, requested_setting
from strobe.rollout.loops.observations import Observations
from strobe.rollout.loops.recorded_run import RecordedRun, load
from strobe.rollout.loops.virtual_rollout import Setting
from strobe.rollout.measure.rollout import ticks_of
from strobe.rollout.results.rollout import SEAM_JUMP
from strobe.version import __version__

SEARCHES, FEWEST_SEARCHES = 20, 5  # draws of each threshold that is tried; of long runs fewer
MOST_STARVED = 0.05  # share of runs, and of fresh runs, that may starve


@dataclasses.dataclass
class Options:
    """How a replay is made.

    Args:
        draws: of latencies, at most.
        seed: of draws and of the policy's noise.
        calls: of the policy in each column, at most; 0: it is not called.
        recipe: opens what puts the requested recipe on the policy.
        seam_jump: a joint jumps where its jumps are so many times its steps.
        stage, tell: progress: what is done, and how many of how many.
    """

    draws: int = 100
    seed: int = 0
    calls: int = 200
    recipe: Callable[[], contextlib.AbstractContextManager[object]] | None = None
    seam_jump: float = SEAM_JUMP
    stage: Callable[[str], None] = lambda _: None
    tell: Progress = lambda done, of: None


@dataclasses.dataclass
class Policies:
    """The run's policy, the requested one, which may be the same, and what both get; None if none is called."""

    own: FedPolicy | None = None
    requested: FedPolicy | None = None
    observations: Observations | None = None


def replay(run: Path, changes: Changes, options: Options) -> ReplayResult:
    """Replay ``run``, a rollout's folder or its file of events. If interrupted, return what there is by then.

    Raises:
        UserError: there is no such run, it keeps too little, or it cannot be changed so.
        KeyboardInterrupt: before the run's own settings were played.
    """
    return replayed(load(run), legible(str(run)), changes, options)


def replayed(run: RecordedRun, name: str, changes: Changes, options: Options) -> ReplayResult:
    """Return the answer on the run that is called ``name``; see `replay`."""
    setting, latencies = requested_setting(run, changes), requested_latencies(run, changes.latency)
    policies = load_policies(run, changes, options)
    if policies.requested is not None and changes.of_policy:
        setting = _with_chunks_of(setting, policies.requested)
    seconds = run.span_ns / 1e9
    result = ReplayResult(
        strobe_version=__version__,
        title=f"{run.header.subject.name} on {run.header.robot}: {seconds:,.1f} s of a rollout, played again",
        run=name,
        joints=run.header.joints,
        columns=[recorded_column(run)],
        verdict="",
        draws=draws_for(run, options.draws),
        seconds=seconds,
        lost=run.record.lost,
    )
    own, requested = (None if fed is None else fed.inputs for fed in (policies.own, policies.requested))
    columns = [Column("as it was", run.setting, run.latencies, own)]
    if changes.any:
        columns.append(Column("as asked", setting, latencies, requested))
    columns.append(Column("ideal loop", run.setting, run.latencies, own, ideal=True))
    column_options = ColumnOptions(
        draws=result.draws, seed=options.seed, most_calls=options.calls, progress=options.tell
    )
    calls = 0
    try:
        for column in columns:
            options.stage(f"playing the run: {column.name}")
            played = play_column(run, column, column_options)
            calls += played.answered
            if column.name == "as asked":
                played.column.settings |= changes_beside_setting(changes)
            result.columns.append(played.column)
            if played.interrupted:
                raise KeyboardInterrupt
        searched = setting if changes.any else run.setting
        if searched.engine == "rtc" and not run.record.lost:
            options.stage("looking for the smallest queue threshold")
            least, result.tried = least_threshold(run, searched, latencies, options)
            if least is not None:
                least, result.starves_chance = threshold_for(searched, latencies, seconds, least)
            result.least_threshold = least
    except KeyboardInterrupt:
        if len(result.columns) < 2:
            raise
        result.status = "interrupted"
    result.delay = ticks_of(float(np.percentile(latencies[1:] or latencies, 95)) / 1e6, setting.fps)
    result.checks = checks(result.columns[0], result.columns[1], run.setting.period_ns / 1e6)
    result.policy = _calls_of(policies, run, result, calls, options)
    result.jumping = jumping(result, options.seam_jump)
    result.verdict = run.record.of_what_is_left(verdict(result))
    result.notes = notes(result, run, changes)
    return result


def _calls_of(
    policies: Policies, run: RecordedRun, result: ReplayResult, calls: int, options: Options
) -> PolicyCalls | None:
    if policies.observations is None:
        return None
    feds = [fed for fed in (policies.own, policies.requested) if fed is not None]
    seen = len(policies.observations.times)
    return PolicyCalls(
        observations=seen,
        missing=max(0, len(run.beats) - seen),
        oldest_ms=max(fed.behind_ns for fed in feds) / 1e6,
        calls=calls,
        cut=any(_calls_were_cut(column, options.calls) for column in result.columns[1:]),
    )


def least_threshold(
    run: RecordedRun, setting: Setting, latencies: Sequence[int], options: Options
) -> tuple[int | None, list[Tried]]:
    """Return the smallest queue threshold with which 95 % of the draws do not starve, by halving, and those tried.

    None if even the largest one starves.
    """
    tried: dict[int, Tried] = {}
    draws = min(SEARCHES, max(FEWEST_SEARCHES, MOST_TICKS // len(run.beats)))

    def holds(threshold: int) -> bool:
        changed = dataclasses.replace(setting, threshold=threshold)
        starved = 0
        for number in range(draws):
            played = drawn_play(run, changed, latencies, options.seed + number)
            first = next((index for index, tick in enumerate(played.ticks) if tick.sent), len(played.ticks))
            starved += any(not tick.sent for tick in played.ticks[first:]) or first == len(played.ticks)
        tried[threshold] = Tried(threshold=threshold, starved=starved, draws=draws)
        return starved <= MOST_STARVED * draws

    low, high = 0, max(0, setting.chunk - 1)
    if not holds(high):
        return None, list(tried.values())
    while low < high:
        middle = (low + high) // 2
        options.tell(len(tried), 7)
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high, [tried[threshold] for threshold in sorted(tried)]


def threshold_for(setting: Setting, latencies: Sequence[int], seconds: float, least: int) -> tuple[int, float | None]:
    """Return the smallest threshold, from ``least`` on, with which `MOST_STARVED` of fresh runs starve, and the chance.

    A run starves where one of its calls takes longer than the actions of the threshold last, less one. Where no
    threshold is enough it is the largest; of too few calls it is ``least``, and no chance is known.

    Args:
        latencies: nanoseconds of each call.
        seconds: that a run takes.
    """
    later = np.array(latencies[max(1, setting.warmups) :], float) / 1e6
    chance: float | None = None
    if len(later) < FEWEST:
        return least, None
    for threshold in range(least, setting.chunk):
        # A call begins once the last one has ended and its chunk is down to the threshold.
        between = max(float(np.median(later)) / 1e3, (setting.chunk - threshold) / setting.fps)
        chance = chance_of_longer(later, (threshold - 1) * 1e3 / setting.fps, math.ceil(seconds / between))
        if chance is None or chance <= MOST_STARVED:
            return threshold, chance
    return max(least, setting.chunk - 1), chance


def load_policies(run: RecordedRun, changes: Changes, options: Options) -> Policies:
    """Load the run's policy and the requested one, where they are to be called.

    Raises:
        UserError: a change needs the policy, and it cannot be called.
    """
    if run.observations is None or not options.calls:
        if flags := changes.of_policy:
            missing = "--calls=0 asks none" if run.observations is not None else "record it with --observations"
            raise UserError(f"{flags[0]} needs the policy, asked on kept observations: {missing}")
        return Policies()
    if names_policy(run.header, changes.arguments) and not changes.of_policy:
        return Policies()
    observations = Observations(run.observations)
    options.stage("loading the policy")
    of_policy = {name: value for name, value in changes.lerobot.items() if f"--{name}" in changes.of_policy}
    engine = changes.lerobot.get("inference.type", run.setting.engine)
    named = [argument for argument in changes.arguments if argument.startswith("--policy.path=")]
    own = fed_policy(run.header, [] if run.header.is_own else named, observations, run.origin)
    if not changes.of_policy and "policy.n_action_steps" not in changes.lerobot and engine == run.setting.engine:
        return Policies(own, own, observations)
    around = options.recipe or contextlib.nullcontext
    steps = {name: value for name, value in changes.lerobot.items() if name == "policy.n_action_steps"}
    flags = [f"--{name}={value}" for name, value in (of_policy | steps | {"inference.type": engine}).items()]
    return Policies(own, fed_policy(run.header, flags, observations, run.origin, around), observations)


def _with_chunks_of(setting: Setting, fed: FedPolicy) -> Setting:
    """Return ``setting`` with the chunks of the policy that was loaded."""
    name = "chunk_size" if setting.engine == "rtc" else "n_action_steps"
    length = getattr(fed.inputs.policy.config, name, None)
    return setting if not length else dataclasses.replace(setting, chunk=length)


def _calls_were_cut(column: Replayed, most: int) -> bool:
    return (column.figures["calls"].value or 0) > most
