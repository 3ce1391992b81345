"""A kept rollout under other settings, and whether its loop starved or its policy erred.

The run is played in virtual time (`virtual_time`): as it was set up, as asked, and in an ideal loop whose calls take no
time and whose ticks are never late. The first of these beside what was recorded is the check of the replay itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import strobe
from strobe.errors import UserError
from strobe.findings.rollout import FEW_SEAMS
from strobe.findings.thresholds import DEFAULTS, Thresholds
from strobe.loops.observations import Observations
from strobe.measure.rollout import ticks_of
from strobe.results.replay import Jump, PolicyCalls, Replayed, ReplayResult, Tried
from strobe.studies.replay.asked import Changes
from strobe.studies.replay.changes import asked_latencies, asked_setting, shown
from strobe.studies.replay.columns import MOST_TICKS, Tell, checks, column, drawn_play, draws_for, recorded_column
from strobe.studies.replay.policy import Fed, fed_policy
from strobe.studies.replay.recorded import Recorded, load
from strobe.studies.replay.settings import Setting

SEARCHES, FEWEST_SEARCHES = 20, 5  # draws of each threshold that is tried; of long runs fewer
MOST_STARVED = 0.05  # of them may starve


@dataclasses.dataclass
class Options:
    """How a replay is made.

    Args:
        draws: of latencies, at most.
        seed: of draws and of the policy's noise.
        calls: of the policy in each column, at most; 0: it is not asked.
        recipe: opens what puts a recipe on the policy that is asked for.
        stage, tell: progress: what is done, and how many of how many.
    """

    draws: int = 100
    seed: int = 0
    calls: int = 200
    recipe: Callable[[], contextlib.AbstractContextManager[Any]] | None = None
    thresholds: Thresholds = DEFAULTS
    stage: Callable[[str], None] = lambda _: None
    tell: Tell = lambda done, of: None


def replay(run: Path, changes: Changes, options: Options) -> ReplayResult:
    """Replay ``run``, a rollout's folder or its file of events. Interrupted, it says what it has by then.

    Raises:
        UserError: there is no such run, it keeps too little, or it cannot be changed so.
        KeyboardInterrupt: before the run's own settings were played.
    """
    found = load(run)
    return replayed(found, str(run), changes, options)


def replayed(found: Recorded, run: str, changes: Changes, options: Options) -> ReplayResult:
    """The answer on ``found``; see `replay`."""
    setting, latencies = asked_setting(found, changes), asked_latencies(found, changes.latency)
    own, asked, seen = _brains(found, changes, options)
    if asked is not None and changes.of_policy:
        setting = _of_policy(setting, asked)
    info, seconds = found.header["subject"], found.span_ns / 1e9
    result = ReplayResult(
        strobe_version=strobe.__version__,
        title=f"{info['name']} on {found.header['robot']}: {seconds:,.1f} s of a rollout, played again",
        run=run,
        joints=found.header["joints"],
        columns=[recorded_column(found)],
        verdict="",
        draws=draws_for(found, options.draws),
        seconds=seconds,
    )
    calls = 0
    columns: list[tuple[str, Setting, Sequence[int], Fed | None, bool]] = [
        ("as it was", found.setting, found.latencies, own, False)
    ]
    if changes.any:
        columns.append(("as asked", setting, latencies, asked, False))
    columns.append(("ideal loop", found.setting, found.latencies, own, True))
    searched = setting if changes.any else found.setting
    try:
        for name, one, times, fed, perfect in columns:
            options.stage(f"playing the run: {name}")
            made = column(
                name, found, one, times, draws=result.draws, seed=options.seed, ideal=perfect,
                brain=fed.brain if fed is not None else None, most_calls=options.calls, tell=options.tell,
            )  # fmt: skip
            calls += made.answered
            if name == "as asked":
                made.column.settings |= shown(changes)
            result.columns.append(made.column)
            if made.stopped:
                raise KeyboardInterrupt
        if searched.engine == "rtc":
            options.stage("looking for the smallest queue threshold")
            result.least_threshold, result.tried = least_threshold(found, searched, latencies, options)
    except KeyboardInterrupt:
        if len(result.columns) < 2:
            raise
        result.status = "interrupted"
    result.delay = ticks_of(float(np.percentile(latencies[1:] or latencies, 95)) / 1e6, searched.fps)
    result.checks = checks(result.columns[0], result.columns[1], found.setting.period_ns / 1e6)
    if seen is not None:
        feds = [fed for fed in (own, asked) if fed is not None]
        result.policy = PolicyCalls(
            observations=len(seen.times),
            missing=max(0, len(found.beats) - len(seen.times)),
            oldest_ms=max(fed.behind_ns for fed in feds) / 1e6,
            calls=calls,
            cut=any(_cut(one, options.calls) for one in result.columns[1:]),
        )
    result.verdict = verdict(result, options.thresholds.seam_jump)
    result.notes = _notes(result, found, changes)
    return result


def least_threshold(
    found: Recorded, setting: Setting, latencies: Sequence[int], options: Options
) -> tuple[int | None, list[Tried]]:
    """The smallest queue threshold with which 95 % of the draws do not starve, by halving, and those tried for it.

    None where even the largest one starves.
    """
    tried: dict[int, Tried] = {}
    draws = min(SEARCHES, max(FEWEST_SEARCHES, MOST_TICKS // len(found.beats)))

    def fine(threshold: int) -> bool:
        one = dataclasses.replace(setting, threshold=threshold)
        starved = 0
        for number in range(draws):
            played = drawn_play(found, one, latencies, options.seed + number)
            first = next((index for index, tick in enumerate(played.ticks) if tick.sent), len(played.ticks))
            starved += any(not tick.sent for tick in played.ticks[first:]) or first == len(played.ticks)
        tried[threshold] = Tried(threshold=threshold, starved=starved, draws=draws)
        return starved <= MOST_STARVED * draws

    low, high = 0, max(0, setting.chunk - 1)
    if not fine(high):
        return None, list(tried.values())
    while low < high:
        middle = (low + high) // 2
        options.tell(len(tried), 7)
        if fine(middle):
            high = middle
        else:
            low = middle + 1
    return high, [tried[threshold] for threshold in sorted(tried)]


def _brains(found: Recorded, changes: Changes, options: Options) -> tuple[Fed | None, Fed | None, Observations | None]:
    """The policy of the run, and the one asked for, which may be the same; None where none is to be asked."""
    if found.observations is None or not options.calls:
        if named := changes.of_policy:
            missing = "--calls=0 asks none" if found.observations is not None else "record it with --observations"
            raise UserError(f"{named[0]} needs the policy, asked on kept observations: {missing}")
        return None, None, None
    seen = Observations(found.observations)
    options.stage("loading the policy")
    of_policy = {name: value for name, value in changes.lerobot.items() if f"--{name}" in changes.of_policy}
    engine = changes.lerobot.get("inference.type", found.setting.engine)
    own = fed_policy(found.header, [], seen, found.origin)
    if not changes.of_policy and "policy.n_action_steps" not in changes.lerobot and engine == found.setting.engine:
        return own, own, seen
    around = options.recipe or contextlib.nullcontext
    steps = {name: value for name, value in changes.lerobot.items() if name == "policy.n_action_steps"}
    given = [f"--{name}={value}" for name, value in (of_policy | steps | {"inference.type": engine}).items()]
    return own, fed_policy(found.header, given, seen, found.origin, around), seen


def _of_policy(setting: Setting, fed: Fed) -> Setting:
    """``setting`` with the chunks of the policy that was loaded."""
    name = "chunk_size" if setting.engine == "rtc" else "n_action_steps"
    length = getattr(fed.brain.policy.config, name, None)
    return setting if not length else dataclasses.replace(setting, chunk=length)


def _cut(one: Replayed, most: int) -> bool:
    return (one.figures["calls"].value or 0) > most


def verdict(result: ReplayResult, limit: float) -> str:
    """Whether the loop starved or the policy erred, in a sentence or two.

    Args:
        limit: a joint jumps where its jumps are so many times its steps.
    """
    recorded, ideal = result.columns[0], result.column("ideal loop")
    queue, pace = recorded.queue, recorded.pace
    if queue.first_action_ms is None:
        said = ["The loop failed: the robot was never sent an action."]
    elif queue.starved:
        said = [
            f"The loop starved: {queue.starved:,} ticks had no action ({queue.starved_ms:,.0f} ms), "
            "and an ideal loop has none of them."
        ]
    else:
        said = ["The loop did not starve."]
    if pace is not None and pace.late:
        part = f", which spent their time in: {pace.late_part}" if pace.late_part else ""
        said.append(f"The loop was late in {pace.late:,} of {pace.ticks:,} ticks{part}.")
    was = {seam.joint: seam for seam in recorded.seams}
    jerky = [
        name
        for name, seam in was.items()
        if seam.jump.n >= FEW_SEAMS and seam.ratio is not None and seam.ratio >= limit
    ]
    if ideal is None or not ideal.jumps:
        if jerky:
            named = _joints(jerky, lambda name: was[name].ratio or 0.0)
            said.append(f"Whether the loop or the policy lets {named} jump, needs a run with --observations.")
        return " ".join(said)
    own = result.column("as it was")
    before, after = ({jump.joint: jump for jump in one.jumps} if one is not None else {} for one in (own, ideal))
    stay = [jump.joint for jump in ideal.jumps if _jumps(jump, limit)]
    gone = [name for name, jump in before.items() if _jumps(jump, limit) and name not in stay]
    if stay:
        said.append(f"The policy errs: in an ideal loop too, {_joints(stay, lambda name: after[name].ratio)}.")
    if gone:
        said.append(
            f"The loop errs: {_joints(gone, lambda name: before[name].ratio)}, and not in an ideal loop "
            f"({', '.join(f'{after[name].ratio:.1f} ×' for name in gone[:3] if name in after)})."
        )
    if max(jump.seams for jump in ideal.jumps) < FEW_SEAMS:
        said.append("There are too few seams to say whether its joints jump.")
    elif not stay and not gone:
        said.append(f"No joint jumps from chunk to chunk by {limit:g} times its ordinary steps, here or there.")
    return " ".join(said)


def _jumps(jump: Jump, limit: float) -> bool:
    return jump.seams >= FEW_SEAMS and jump.ratio >= limit


def _joints(names: Sequence[str], ratio: Callable[[str], float]) -> str:
    worst = sorted(names, key=ratio, reverse=True)
    more = f" and {len(worst) - 1} more joints" if len(worst) > 1 else ""
    return f"{worst[0]}{more} ({ratio(worst[0]):.1f} × the ordinary steps)"


def _notes(result: ReplayResult, found: Recorded, changes: Changes) -> list[str]:
    notes = ["The arm stays where it was in the recording, whatever a replay tells it; and threads slow each other "
             "down no more than the recorded ticks and calls show."]  # fmt: skip
    if result.policy is None:
        notes.append("jumps at seams under other settings need observations: `strobe rollout --observations -- …`")
    elif result.policy.cut:
        notes.append("the policy was asked for its first calls only, and jumps are of these: --calls=N for more")
    if changes.of_policy and changes.latency == "recorded":
        notes.append(
            f"calls took as long as recorded, though {changes.of_policy[0]} changes the policy: --latency says how long"
        )
    if found.setting.engine == "sync" and changes.lerobot.get("inference.type") == "rtc":
        notes.append("latencies are those of sync calls; guidance and a second thread make calls of RTC longer")
    few = f"only {len(found.latencies)} calls were recorded: " if len(found.latencies) < 30 else ""
    notes.append(f"{few}a replay knows no call longer than the longest recorded, and another run may have one")
    if found.header["compiled"]:
        notes.append("the policy was compiled on the robot, and is not here")
    return notes
