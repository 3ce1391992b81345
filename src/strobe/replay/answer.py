"""From the columns of a replay to what its answer says: who erred, which joints jump, and what to keep in mind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strobe.replay.policy import names_policy
from strobe.replay.results import Jumping, ReplayResult
from strobe.replay.settings import Changes
from strobe.rollout.loops.recorded_run import RecordedRun
from strobe.rollout.results.rollout import FEW_SEAMS


def verdict(result: ReplayResult) -> str:
    """Return in a sentence or two whether the loop starved or the policy erred, as `ReplayResult.jumping` has it."""
    queue, pace = result.columns[0].queue, result.columns[0].pace
    if queue.first_action_ms is None:
        text = ["The loop failed: the robot was never sent an action."]
    elif queue.starved:
        text = [
            f"The loop starved: {queue.starved:,} ticks had no action ({queue.starved_ms:,.0f} ms). An ideal loop "
            "has no such tick."
        ]
    else:
        text = ["The loop did not starve."]
    if pace is not None and pace.late:
        part = f", which spent their time in: {pace.late_part}" if pace.late_part else ""
        text.append(f"The loop was late in {pace.late:,} of {pace.ticks:,} ticks{part}.")
    if result.jumping is not None:
        text += _on_jumping(result, result.jumping)
    return " ".join(text)


def _on_jumping(result: ReplayResult, jumping: Jumping) -> list[str]:
    """Whether joints jump because of the policy, or of the loop."""
    ideal, own = result.column("ideal loop"), result.column("as it was")
    if ideal is None or not ideal.jumps:
        recorded = {seam.joint: seam.ratio or 0.0 for seam in result.columns[0].seams}
        named = _worst(jumping.recorded, recorded)
        return [f"A run with --observations would show whether the loop or the policy makes {named} jump."] * bool(
            named
        )
    before = {jump.joint: jump.ratio for jump in own.jumps} if own is not None else {}
    after = {jump.joint: jump.ratio for jump in ideal.jumps}
    gone = [joint for joint in jumping.as_it_was if joint not in jumping.ideal]
    text = []
    if jumping.ideal:
        text.append(f"The policy errs: in an ideal loop too, {_worst(jumping.ideal, after)}.")
    if gone:
        ratios = ", ".join(f"{after[joint]:.1f} ×" for joint in gone[:3] if joint in after)
        text.append(f"The loop errs: {_worst(gone, before)}, and not in an ideal loop ({ratios}).")
    if max(jump.seams for jump in ideal.jumps) < FEW_SEAMS:
        text.append("Too few chunks meet to say whether its joints jump.")
    elif not text:
        text.append(
            f"No joint jumps from chunk to chunk by {jumping.limit:g} times its ordinary steps, in neither replay."
        )
    return text


def _worst(joints: Sequence[str], ratios: Mapping[str, float]) -> str:
    """The joint that jumps most, and how many more do; '' for none."""
    if not joints:
        return ""
    worst = max(joints, key=lambda joint: ratios[joint])
    more = f" and {len(joints) - 1} more joints" if len(joints) > 1 else ""
    return f"{worst}{more} ({ratios[worst]:.1f} × the ordinary steps)"


def jumping(result: ReplayResult, limit: float) -> Jumping:
    """Return the joints whose jumps are at least ``limit`` times their steps: recorded, as it was, in an ideal loop."""

    def in_column(name: str) -> list[str]:
        column = result.column(name)
        jumps = [] if column is None else column.jumps
        return [jump.joint for jump in jumps if jump.seams >= FEW_SEAMS and jump.ratio >= limit]

    seams = result.columns[0].seams
    recorded = [seam.joint for seam in seams if seam.jump.n >= FEW_SEAMS and (seam.ratio or 0.0) >= limit]
    return Jumping(limit=limit, recorded=recorded, as_it_was=in_column("as it was"), ideal=in_column("ideal loop"))


def notes(result: ReplayResult, run: RecordedRun, changes: Changes) -> list[str]:
    """Return what a reader of the figures must know, a clause each."""
    known = ["The arm stays where it was in the recording, whatever a replay tells it; and threads slow each other "
             "down no more than the recorded ticks and calls show.", *run.record.notes]  # fmt: skip
    if result.policy is None and run.observations is not None and (why := names_policy(run.header, changes.arguments)):
        known.append(f"jumps at seams were not looked at: {why}")
    elif result.policy is None:
        known.append("jumps at seams under other settings need observations: `strobe rollout --observations -- …`")
    elif result.policy.cut:
        known.append("the policy was asked for its first calls only, and jumps are of these: --calls=N for more")
    if changes.of_policy and changes.latency == "recorded":
        known.append(
            f"calls took as long as recorded, though {changes.of_policy[0]} changes the policy: --latency says how long"
        )
    if run.setting.engine == "sync" and changes.lerobot.get("inference.type") == "rtc":
        known.append("latencies are those of sync calls; guidance and a second thread make calls of RTC longer")
    few = f"only {len(run.latencies)} calls were recorded: " if len(run.latencies) < 30 else ""
    known.append(f"{few}latencies come from the recording; a longer one than its maximum is never simulated")
    if run.record.lost and run.setting.engine == "rtc":
        known.append("no queue threshold was looked for: of a damaged recording it would be too small")
    if run.header.compiled:
        known.append("the policy was compiled on the robot, and is not here")
    return known
