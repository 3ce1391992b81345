"""A recorded rollout under other settings, and whether its loop starved or its policy is at fault.

The run is replayed in simulated time (`strobe.loops.virtual_time`): with its own settings, with the requested
ones, and in an ideal loop whose calls take no time and whose ticks are never late. The first of these, compared with
the recording, checks the replay itself. How long may the longest call of another run be? The longest that was recorded
is not the longest there is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from strobe.core.errors import UserError, legible
from strobe.core.measure.statistics import Array, validate_times
from strobe.loops.measure.rollout import due_ticks
from strobe.loops.observations import Observations
from strobe.loops.recorded_run import RecordedRun, load
from strobe.loops.results.rollout import FEW_SEAMS
from strobe.loops.virtual_rollout import Setting
from strobe.replay.columns import (
    MOST_TICKS,
    Column,
    Options,
    checks,
    draw_count,
    drawn_play,
    play_column,
    recorded_column,
)
from strobe.replay.policy import FedPolicy, fed_policy, names_policy
from strobe.replay.results import Changes, ColumnName, Jumping, PolicyCalls, ReplayResult, Tried
from strobe.replay.virtual_setting import non_setting_changes, requested_latencies, requested_setting
from strobe.seams.look import split_seams
from strobe.seams.split import find_seams
from strobe.version import __version__

FEWEST = 20  # calls that are judged
TAIL = 4  # the longest calls: few, since further down times fall off otherwise
_POINTS = (np.arange(200) + 0.5) / 200


def chance_of_longer(times: Sequence[float] | Array, limit_ms: float, calls: int) -> float | None:
    """Return the chance that one of ``calls`` further calls takes longer than ``limit_ms``; None of too few ``times``.

    Beyond the `TAIL` longest of ``times``, times are held to fall off as a power law, whose exponent these tell (Hill,
    "A simple general approach to inference about the tail of a distribution", Annals of Statistics 3, 1975). Neither
    it nor the share of calls out there is known: the chance is the mean over both. Times that fall off faster are
    longer more rarely than this. Of no use are ``times`` against what is rarer than one call in so many.

    Args:
        times: milliseconds of calls of the same law.

    Raises:
        ValueError: as `statistics.checked`.
    """
    from scipy import stats

    ordered = np.sort(validate_times(times))
    count = len(ordered)
    if count < FEWEST:
        return None
    start = float(ordered[-TAIL - 1])
    if limit_ms < start:
        return 1.0
    if start == ordered[-1]:
        return 0.0
    if start <= 0:
        return None
    rate = float(np.log(ordered[-TAIL:] / start).mean())
    beyond = np.exp(-math.log(limit_ms / start) / rate * stats.gamma.ppf(_POINTS, TAIL) / TAIL)
    share = stats.beta.ppf(_POINTS, TAIL + 1, count - TAIL)
    return float(1 - ((1 - np.outer(beyond, share)) ** calls).mean())


STAGES: dict[ColumnName, str] = {
    "as it was": "with its own settings",
    "as asked": "with your settings",
    "ideal loop": "in an ideal loop",
}
SEARCHES, FEWEST_SEARCHES = 20, 5  # draws of each threshold that is tried; of long runs fewer
MOST_STARVED = 0.05  # share of runs, and of fresh runs, that may starve


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
    return replay_run(load(run), legible(str(run)), changes, options)


def replay_run(run: RecordedRun, name: str, changes: Changes, options: Options) -> ReplayResult:
    """Return the answer on the run that is called ``name``; see `replay`."""
    setting, latencies = requested_setting(run, changes), requested_latencies(run, changes.latency)
    policies = load_policies(run, changes, options)
    if policies.requested is not None and changes.policy_flags:
        setting = _adopt_policy_chunks(setting, policies.requested)
    seconds = run.span_ns / 1e9
    result = ReplayResult(
        strobe_version=__version__,
        title=f"{run.header.subject.name} on {run.header.robot}: {seconds:,.1f} s of a rollout, replayed",
        run=name,
        joints=run.header.joints,
        columns=[recorded_column(run)],
        verdict="",
        draws=draw_count(run, options.draws),
        seconds=seconds,
        lost=run.record.lost,
    )
    own, requested = (None if fed is None else fed.inputs for fed in (policies.own, policies.requested))
    columns = [Column("as it was", run.setting, run.latencies, own)]
    if changes.any:
        columns.append(Column("as asked", setting, latencies, requested))
    columns.append(Column("ideal loop", run.setting, run.latencies, own, ideal=True))
    calls = 0
    try:
        for column in columns:
            options.stage(f"replaying the run {STAGES[column.name]}")
            played = play_column(run, column, options, result.draws)
            calls += played.answered
            if column.name == "as asked":
                played.column.settings |= non_setting_changes(changes)
            result.columns.append(played.column)
            if played.interrupted:
                raise KeyboardInterrupt
        searched = setting if changes.any else run.setting
        if searched.engine == "rtc" and not run.record.lost:
            options.stage("searching for the smallest queue threshold")
            least, result.tried = least_threshold(run, searched, latencies, options)
            if least is not None:
                least, result.starves_chance = smallest_threshold(searched, latencies, seconds, least)
            result.least_threshold = least
        if (
            policies.own is not None
            and policies.observations is not None
            and jumping(result, options.seam_jump).recorded
        ):
            options.stage("splitting the jumps between chunks by cause")
            seams, joints, observed = find_seams(run.record), result.columns[0].seams, policies.observations.times
            result.causes = split_seams(run, seams, policies.own.inputs, observed, joints, options.tell)
    except KeyboardInterrupt:
        if len(result.columns) < 2:
            raise
        result.status = "interrupted"
    result.delay = due_ticks(float(np.percentile(latencies[1:] or latencies, 95)) / 1e6, setting.fps)
    result.checks = checks(result.columns[0], result.columns[1], run.setting.period_ns / 1e6)
    result.policy = _summarize_policy_calls(policies, run, result, calls, options)
    result.jumping = jumping(result, options.seam_jump)
    result.verdict = run.record.qualify_if_damaged(verdict(result))
    result.notes = notes(result, run, changes)
    return result


def _summarize_policy_calls(
    policies: Policies, run: RecordedRun, result: ReplayResult, calls: int, options: Options
) -> PolicyCalls | None:
    if policies.observations is None:
        return None
    feds = [fed for fed in (policies.own, policies.requested) if fed is not None]
    saved = len(policies.observations.times)
    return PolicyCalls(
        observations=saved,
        missing=max(0, len(run.beats) - saved),
        oldest_ms=max(fed.behind_ns for fed in feds) / 1e6,
        calls=calls,
        cut=any((column.figures["calls"].value or 0) > options.calls for column in result.columns[1:]),
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


def smallest_threshold(
    setting: Setting, latencies: Sequence[int], seconds: float, least: int
) -> tuple[int, float | None]:
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
        if flags := changes.policy_flags:
            missing = "remove --calls=0" if run.observations is not None else "record the run with --observations"
            raise UserError(f"{flags[0]} needs calls of the policy on saved observations: {missing}")
        return Policies()
    if names_policy(run.header, changes.arguments) and not changes.policy_flags:
        return Policies()
    observations = Observations(run.observations)
    options.stage("loading the policy")
    of_policy = {name: value for name, value in changes.lerobot.items() if f"--{name}" in changes.policy_flags}
    engine = changes.lerobot.get("inference.type", run.setting.engine)
    named = [argument for argument in changes.arguments if argument.startswith("--policy.path=")]
    own = fed_policy(run.header, [] if run.header.is_own else named, observations, run.origin)
    if not changes.policy_flags and "policy.n_action_steps" not in changes.lerobot and engine == run.setting.engine:
        return Policies(own, own, observations)
    around = options.recipe or contextlib.nullcontext
    steps = {name: value for name, value in changes.lerobot.items() if name == "policy.n_action_steps"}
    flags = [f"--{name}={value}" for name, value in (of_policy | steps | {"inference.type": engine}).items()]
    return Policies(own, fed_policy(run.header, flags, observations, run.origin, around), observations)


def _adopt_policy_chunks(setting: Setting, fed: FedPolicy) -> Setting:
    name = "chunk_size" if setting.engine == "rtc" else "n_action_steps"
    length = getattr(fed.inputs.policy.config, name, None)
    return setting if not length else dataclasses.replace(setting, chunk=length)


def verdict(result: ReplayResult) -> str:
    """Return in a sentence or two whether the loop starved or the policy erred, as `ReplayResult.jumping` has it."""
    queue, pace = result.columns[0].queue, result.columns[0].pace
    if queue.first_action_ms is None:
        text = ["The loop never sent the robot an action."]
    elif queue.starved:
        text = [
            "The robot starved: the loop had no action for it in time.",
            f"{queue.starved:,} control ticks had no action, for {queue.starved_ms:,.0f} ms.",
        ]
    else:
        text = ["The loop did not starve the robot."]
    if pace is not None and pace.late:
        part = f": most of their time went to {pace.late_part}" if pace.late_part else ""
        text.append(f"{pace.late:,} of {pace.ticks:,} control ticks were late{part}.")
    if result.jumping is not None:
        text += _explain_jumps(result, result.jumping)
    return " ".join(text)


def _explain_jumps(result: ReplayResult, jumping: Jumping) -> list[str]:
    ideal, own = result.column("ideal loop"), result.column("as it was")
    if ideal is None or not ideal.jumps:
        recorded = {seam.joint: seam.ratio or 0.0 for seam in result.columns[0].seams}
        named = _worst(jumping.recorded, recorded)
        return [
            f"The cause of the jumps of {named} is not judged: record a run with `strobe rollout --observations`."
        ] * bool(named)
    before = {jump.joint: jump.ratio for jump in own.jumps} if own is not None else {}
    after = {jump.joint: jump.ratio for jump in ideal.jumps}
    gone = [joint for joint in jumping.as_it_was if joint not in jumping.ideal]
    text = []
    if jumping.ideal:
        text.append(f"The policy is at fault: in an ideal loop it still moves {_worst(jumping.ideal, after)} in jumps.")
    if gone:
        ratios = ", ".join(f"{after[joint]:.1f} ×" for joint in gone[:3] if joint in after)
        text.append(
            f"The loop is at fault: it moves {_worst(gone, before)} in jumps, and an ideal loop does not ({ratios})."
        )
    if max(jump.seams for jump in ideal.jumps) < FEW_SEAMS:
        text.append(f"Whether joints jump is inconclusive: it needs {FEW_SEAMS} seams between chunks.")
    elif not text:
        text.append(f"No joint jumps between chunks by {jumping.limit:g} times its ordinary steps, in either replay.")
    return text


def _worst(joints: Sequence[str], ratios: Mapping[str, float]) -> str | None:
    """Return the joint that jumps most, and how many more jump."""
    if not joints:
        return None
    worst = max(joints, key=lambda joint: ratios[joint])
    more = f" and {len(joints) - 1} more joints" if len(joints) > 1 else ""
    return f"{worst}{more} ({ratios[worst]:.1f} × the ordinary steps)"


def jumping(result: ReplayResult, limit: float) -> Jumping:
    """Return the joints whose jumps are at least ``limit`` times their steps: recorded, as it was, in an ideal loop."""

    def jumping_joints(name: str) -> list[str]:
        column = result.column(name)
        jumps = [] if column is None else column.jumps
        return [jump.joint for jump in jumps if jump.seams >= FEW_SEAMS and jump.ratio >= limit]

    seams = result.columns[0].seams
    recorded = [seam.joint for seam in seams if seam.jump.n >= FEW_SEAMS and (seam.ratio or 0.0) >= limit]
    return Jumping(
        limit=limit, recorded=recorded, as_it_was=jumping_joints("as it was"), ideal=jumping_joints("ideal loop")
    )


def notes(result: ReplayResult, run: RecordedRun, changes: Changes) -> list[str]:
    """Return notes on the figures, a clause each."""
    known = ["In a replay the arm follows its recorded path, whatever the replay sends; threads slow each other down "
             "only as much as in the recorded ticks and calls"]  # fmt: skip
    if result.policy is None and run.observations is not None and (why := names_policy(run.header, changes.arguments)):
        known.append(f"jumps at seams are not judged: {why}")
    elif result.policy is None:
        known.append(
            "jumps at seams with other settings are not judged: record the run with `strobe rollout --observations -- "
            "…`"
        )
    elif result.policy.cut:
        known.append("jumps are those of the policy's first calls: --calls=N replays more")
    if changes.policy_flags and changes.latency == "recorded":
        known.append(
            f"calls took as long as recorded, though {changes.policy_flags[0]} changes the policy: "
            "--latency sets their "
            "time"
        )
    if run.setting.engine == "sync" and changes.lerobot.get("inference.type") == "rtc":
        known.append("latencies are those of sync calls; RTC's guidance and second thread make calls longer")
    few = f"only {len(run.latencies)} calls were recorded: " if len(run.latencies) < 30 else ""
    known.append(f"{few}the replay uses recorded latencies, and no call is longer than the longest recorded one")
    if run.record.lost and run.setting.engine == "rtc":
        known.append("no queue threshold was searched for: from a damaged recording it would be too small")
    if run.header.compiled:
        known.append("the policy was compiled on the robot, and is not compiled in the replay")
    return known
