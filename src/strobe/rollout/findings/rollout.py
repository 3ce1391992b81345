"""Rules on a rollout: why the robot gets its actions late, and the value of the flag that fixes it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.trust import describe_growth
from strobe.core.results import units
from strobe.core.results.finding import Finding, warning
from strobe.loops.results.rollout import FEW_SEAMS, POLICY_CALL, Inference, Pace, Rollout, RolloutResult
from strobe.rollout.findings.robot import FPS_FLAGS, bus_trouble, waits_for_cpu, waits_for_interpreter

# Parts of the loop's tick that belong to asking the policy.
_ASKING = {"get action", "select action", "predict chunk", "prepare inputs", "preprocessing", "postprocessing"}
MAX_DELAY_EXCESS = 2  # actions assumed beyond what calls need: more holds too much of each chunk to the last one
MAX_STAMP_ERROR = 0.05  # share by which recorded frames may be stamped with another duration than theirs
FEW_CALLS = 3  # fewest late calls after the first that show slow calls, rather than a single delay


def damaged_recording(lost: str | None) -> Iterator[Finding]:
    if lost:
        yield warning(
            rule="recording-damaged",
            title="The recording is damaged",
            found=f"{units.capital(lost)}.",
            why="Late ticks, and ticks without an action, may be in the lost part. No figure counts them.",
            do="Copy the file from the robot again, or record the run again.",
        )


def lost_events(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Damage to the recording."""
    return damaged_recording(result.rollout.lost)


# Rule → the title of a finding on a slow loop.
_SLOW = {
    "slow-pace": "The control loop is slow between its ticks, not in them",
    "slow-inference": "The policy's calls hold up the control loop",
    "slow-camera": "The {part} holds up the control loop",
    "slow-sending": "Sending observations holds up the control loop",
    "slow-leader": "The leader holds up the control loop",
    "slow-bus": "The motor bus holds up the control loop",
    "slow-recording": "Recording holds up the control loop",
    "slow-loop": "The control loop is slower than requested",
}


def slow_loop(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A loop slower than requested, by the part that late ticks spend their time on."""
    rollout, pace = result.rollout, result.rollout.pace
    if pace is None:
        return
    repeated = rollout.bus.failed_reads if rollout.bus is not None else 0  # late for a reason that has its own finding
    first_ms = _first_lost_ms(rollout, pace)
    stalls = [stall for stall in rollout.stalls if rollout.engine == "sync" or stall.part != POLICY_CALL]
    late = max(0, pace.late - repeated - (first_ms > 0) - sum(stall.count for stall in stalls))
    lost_ms = first_ms + sum(stall.total_ms for stall in stalls)
    tick_s = 1 / pace.held_hz - lost_ms / 1e3 / pace.period.n
    held_hz = 1 / tick_s if tick_s > 0 else pace.asked_hz
    if late < thresholds.ticks_late * pace.ticks and held_hz >= thresholds.rate_held * pace.asked_hz:
        return
    if _asks_the_policy(rollout, pace) and late < FEW_CALLS:
        return
    on_the_bus = "motors" in (pace.late_part or "") and bool(bus_trouble(result, thresholds))
    if on_the_bus or waits_for_interpreter(rollout, thresholds) or _is_cpu_starved(rollout, pace, thresholds):
        return  # another finding says why
    rule, why, do = _cause(rollout, pace)
    spent = ""
    if pace.late_part and pace.late_part_ms is not None:
        spent = f"; late ticks spent {pace.late_part_ms:,.1f} ms in {pace.late_part}"
    yield warning(
        rule=rule,
        title=_SLOW[rule].format(part=pace.late_part),
        found=f"The loop ran at {pace.held_hz:.1f} of {pace.asked_hz:g} Hz. {pace.late:,} of {pace.ticks:,} control "
        f"ticks worked longer than {1e3 / pace.asked_hz:.1f} ms, the longest {pace.work.max:,.1f} ms{spent}.",
        why=why,
        do=do,
        evidence={"gain_share": max(0.0, 1 - pace.held_hz / pace.asked_hz)},
    )


def _first_lost_ms(rollout: Rollout, pace: Pace) -> float:
    """Milliseconds by which the first call made its tick late; 0 where it is not the loop that waits for it.

    It warms the policy up, once, and has a figure of its own: in a short run it would pass for the rate.
    """
    if rollout.engine != "sync" or rollout.inference is None:
        return 0.0
    return max(0.0, min(rollout.inference.first_ms, pace.period.max) - 1e3 / pace.asked_hz)


def _asks_the_policy(rollout: Rollout, pace: Pace) -> bool:
    return rollout.engine == "sync" and pace.late_part in _ASKING


def _is_cpu_starved(rollout: Rollout, pace: Pace, thresholds: Thresholds) -> bool:
    """Whether ticks are late because the thread waits for a CPU, and not by their own work as well."""
    if rollout.turns is None or not waits_for_cpu(rollout, thresholds):
        return False
    waited_ms = 1e3 * rollout.turns.waited_share / pace.held_hz
    return waited_ms >= 0.5 * (pace.work.median - 1e3 / pace.asked_hz)


def _cause(rollout: Rollout, pace: Pace) -> tuple[str, str, str]:
    """Return the rule, why it matters and what to do for a slow loop."""
    part = pace.late_part
    usual_ms = pace.work.p95 if rollout.stalls else pace.work.p99
    lower = _lower(1e3 / usual_ms / rollout.multiplier, rollout)
    if not part:
        why = "Ticks did their work in time. The loop loses time between ticks."
        do = "Check the other programs on this machine. A busy thread of the same process delays every wake-up."
        return "slow-pace", why, do
    if _asks_the_policy(rollout, pace):
        why = "The loop stands still while the policy predicts. The arm holds its last action until then."
        do = "--inference.type=rtc predicts on a thread of its own."
        if not rollout.can_rtc:
            do = "Make the policy faster: `strobe optimize --policy.path=…`. The arm pauses least often with "
            do += "--policy.n_action_steps as long as the chunk. Real-Time Chunking avoids the pause, with a policy "
            do += "that it can guide."
        return "slow-inference", why, do
    if part.startswith("camera "):
        why = "The loop waits for the camera's frame before it can act."
        return "slow-camera", why, f"Give the camera fewer pixels or a free USB port; or {lower}."
    if part in ("send observation", "pickle observation"):
        why = "The control thread sends each observation itself, and waits until the server has received it."
        return "slow-sending", why, f"Send fewer pixels (--robot.cameras), or use a faster link; or {lower}."
    if "leader" in part:
        why = "Each tick waits for the leader before it can send an action to the follower."
        return "slow-leader", why, f"Check the leader's cable, and give this process less other work; or {lower}."
    if "motors" in part:
        why = "Each tick waits for the motors' answers on the bus. One lost answer costs a timeout, 50 ms with Feetech."
        do = f"Check the cables and the adapter's latency timer, and give this process less other work; or {lower}."
        return "slow-bus", why, do
    if part in ("record frame", "save episode"):
        do = "--dataset.streaming_encoding=true, and --dataset.encoder_threads=2 or a hardware encoder."
        return "slow-recording", "Frames are recorded inside the tick.", do
    why = "Actions come late, and motions are slower than the policy learnt them."
    if rollout.engine == "none":
        why = "The follower gets its actions late, and less often than the flags demand."
    return "slow-loop", why, f"{lower[:1].upper()}{lower[1:]}."


def _lower(possible: float, rollout: Rollout) -> str:
    hz = math.floor(min(possible, rollout.fps - 1))
    flag = FPS_FLAGS.get(rollout.command, "--fps")
    return f"{flag}={hz}, which it could keep" if hz >= 1 else f"a lower {flag}"


def never_moves(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    rollout, inference = result.rollout, result.rollout.inference
    if _is_robot_idle(rollout) and inference is not None and rollout.unfinished is None:
        chunk, do, lasts = inference.chunk, _longer_chunks(rollout, inference), ""
        if chunk is not None:
            lasts = f", a chunk of {chunk:,} actions lasts {1e3 * chunk / rollout.fps:,.0f} ms"
        call_ms = _call_ms(inference)
        yield warning(
            rule="never-moves",
            title="The arm never moves: every chunk is over before it arrives",
            found=f"{inference.useless:,} of {inference.calls:,} chunks added no action to the queue. A call takes "
            f"{call_ms:,.0f} ms{lasts} at {rollout.fps:g} Hz.",
            why="LeRobot drops the actions that were due during the call, though the robot executed none of them. It "
            "gives no warning.",
            do=do,
        )


def unfinished_call(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    call = result.rollout.unfinished
    if call is None:
        return
    which, before, compiles, eager = "first call", "", "", ""
    if call.calls:
        which = f"call {call.calls + 1}"
        before = " LeRobot threw away the chunks before: they warm the policy up."
    if call.compiled:
        compiles = "torch.compile compiles during the first calls, which may take minutes. "
        eager = "; --use_torch_compile=false does without compiling"
    yield warning(
        rule="first-call-unfinished",
        title="The run ended before the policy returned its first actions",
        found=f"The run ended after {call.run_s:.1f} s. Its {which} had begun {call.ms / 1e3:.1f} s before and had "
        f"not returned. The robot was sent no action.{before}",
        why=f"{compiles}LeRobot ends a run at its --duration, even if its inference thread still waits for the policy.",
        do=f"Give a longer --duration. `strobe breakdown --policy.path=…` measures the time of the call{eager}.",
    )


def _is_robot_idle(rollout: Rollout) -> bool:
    inference = rollout.inference
    return rollout.engine == "rtc" and inference is not None and 0 < inference.calls == inference.useless


def _call_ms(inference: Inference) -> float:
    """The longest call after the first, in milliseconds."""
    return inference.first_ms if inference.latency is None else inference.latency.max


def _longer_chunks(rollout: Rollout, inference: Inference) -> str:
    faster = "make the policy faster: `strobe optimize --policy.path=…`"
    if inference.chunk is None:
        return f"Give a lower --fps, or {faster}."
    hz = 1e3 * inference.chunk / (2 * _call_ms(inference))
    shown = f"{math.floor(hz):d}" if hz >= 1 else f"{hz:.2g}"
    return f"Give --fps={shown}, at which half a chunk lasts as long as a call, or {faster}."


def starvation(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    rollout, inference, queue = result.rollout, result.rollout.inference, result.rollout.queue
    pace = rollout.pace
    if pace is None or inference is None or rollout.engine != "rtc" or _is_robot_idle(rollout):
        return
    share, call_ms = queue.starved / pace.ticks, _call_ms(inference)
    if share < thresholds.ticks_starved:
        return
    needed, do = math.ceil(call_ms * rollout.fps / 1e3) + 1, _longer_chunks(rollout, inference)
    if any(stall.part == POLICY_CALL for stall in rollout.stalls):
        do = "Find out what held the longest call up: the finding on it names its time."
    elif inference.chunk is None or inference.chunk > 2 * needed:
        do = "Look at the longest calls in the course of the run: something holds the inference thread up."
        if queue.threshold is not None and queue.threshold < needed:
            do = f"Give --inference.queue_threshold={needed}, which covers the longest recorded call. Another run may "
            do += "have a longer call: `strobe replay RUN` finds a threshold with which at most one run of 20 starves."
    yield warning(
        rule="starvation",
        title=f"The robot had no action for {queue.starved_ms:,.0f} ms",
        found=f"{queue.starved:,} of {pace.ticks:,} control ticks sent no action, for up to {queue.longest_ms:,.0f} "
        f"ms at a time. The longest call took {call_ms:,.0f} ms; a call begins when the queue holds {queue.threshold} "
        "actions or fewer.",
        why="The queue ran empty before the next chunk arrived. The arm then holds its last goal, and LeRobot logs "
        "nothing.",
        do=do,
        evidence={"gain_share": share},
    )


def poisoned_delay(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """One slow call, mostly the first, which sets the delay of every later call."""
    rollout, inference = result.rollout, result.rollout.inference
    delays = inference.delays if inference is not None else None
    if delays is None or inference is None or _is_robot_idle(rollout):
        return
    first = delays.first_needed + 1 >= delays.assumed.median
    if first:
        excess, assumed = delays.assumed.median - delays.needed.p95, delays.assumed.median
    else:  # a later call: its delay may have reached few calls after it
        excess, assumed = (delays.assumed.max - delays.needed.median) / 2, delays.assumed.max
    if excess < MAX_DELAY_EXCESS or max(delays.first_needed, delays.needed.max) + 1 < assumed:
        return
    dropped, title = "", "A slow first call inflates the delay that Real-Time Chunking assumes"
    seen = f"The first call took {inference.first_ms:,.0f} ms = {delays.first_needed} actions. Later calls"
    do = "With --use_torch_compile=true LeRobot does not count the first --compile_warmup_inferences calls. A LeRobot "
    do += "with its pull request 4454 does not count them either, without compiling."
    if not first:
        title = "One slow call inflates the delay that Real-Time Chunking assumes"
        seen = f"The longest call took {_call_ms(inference):,.0f} ms = {delays.needed.max:.0f} actions. Most calls"
        do = "Find out what held that call up: the trace shows its parts. Or start the run again, because the estimate "
        do += "lasts as long as the run."
    elif delays.first_dropped:
        dropped = (
            f" {delays.first_dropped} actions of the first chunk were dropped, though the robot had executed none. "
        )
        dropped += "The arm at rest began that far ahead."
    yield warning(
        rule="poisoned-delay",
        title=title,
        found=f"{seen} needed {delays.needed.median:.0f} actions, and RTC assumed {assumed:.0f}.{dropped}",
        why="For the rest of the run LeRobot assumes the longest latency since the start. It binds that many actions "
        "of each chunk to the chunk before, and the robot reacts that much later.",
        do=do,
    )


def seam_jumps(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    rollout = result.rollout
    ratios = [
        (seam.ratio, seam)
        for seam in rollout.seams
        if seam.jump.n >= FEW_SEAMS and seam.ratio is not None and seam.ratio >= thresholds.seam_jump
    ]
    if not ratios:
        return
    worst = max(ratios, key=lambda pair: pair[0])[1]
    if rollout.engine == "remote":
        do = "Give --aggregate_fn_name=conservative: it uses more of the earlier chunk if two chunks overlap."
    elif rollout.engine == "rtc":
        longer = f"--inference.rtc.execution_horizon={2 * rollout.horizon}" if rollout.horizon else "a longer horizon"
        do = f"Give {longer}: the last chunk then guides more of the next one. Check that the assumed delay is right."
    elif rollout.can_rtc:
        do = "Give --inference.type=rtc: its chunks continue the chunks before."
    elif result.subject.kind == "act":
        do = (
            "Give --policy.temporal_ensemble_coeff=0.01 --policy.n_action_steps=1: it averages chunks, and calls in "
            "each tick."
        )
    else:
        do = "Try a lower --policy.n_action_steps: chunks then agree better at their seams, and there are more calls."
    yield warning(
        rule="seam-jumps",
        title=f"The arm jumps from chunk to chunk, most of all {worst.joint}",
        found=f"{worst.joint} jumps by {worst.jump.median:.3g} from one chunk to the next (median of "
        f"{worst.jump.n:,}, max {worst.jump.max:.3g}). 95 % of its steps inside chunks are at most "
        f"{worst.step.p95:.3g}. {len(ratios)} of {len(rollout.seams)} joints jump.",
        why="The next chunk was predicted from a newer observation and does not begin where the last one stopped.",
        do=do,
    )


def stamps(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Recorded frames whose time stamps are wrong."""
    rollout, frames = result.rollout, result.rollout.recording
    if frames is None or frames.real_s <= 0:
        return
    off = frames.stamped_s / frames.real_s - 1
    if rollout.multiplier > 1 and abs(off) > MAX_STAMP_ERROR:
        rule, title = "interpolated-recording", "Interpolated ticks are recorded as if they were the policy's"
        why = "The strategy records every tick as one of the dataset's rate, interpolated ticks too."
        do = f"--interpolation_multiplier=1 while recording, or --dataset.fps={rollout.fps * rollout.multiplier:g}."
    elif frames.dataset_fps != rollout.fps:
        rule, title = "dataset-fps", "--dataset.fps differs from --fps"
        why = "LeRobot does not compare the two. A frame's time is its number divided by --dataset.fps."
        do = f"--dataset.fps={rollout.fps:g}."
    elif abs(off) > MAX_STAMP_ERROR:
        rule, title = "frames-stamped", "Recorded frames have a wrong time stamp"
        why = "A frame's time is its number divided by the dataset's rate, even if the loop was slower."
        do = "Record at a rate that the loop holds: see the other findings."
    else:
        return
    yield warning(
        rule=rule,
        title=title,
        found=f"{frames.frames:,} frames took {frames.real_s:.1f} s, and their time stamps span "
        f"{frames.stamped_s:.1f} s.",
        why=f"{why} A policy trained on them learns another speed.",
        do=do,
    )


def growing_calls(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    inference = result.rollout.inference
    if inference is not None and inference.growth is not None:
        yield describe_growth("the policy", inference.growth)


RULES = (
    lost_events, growing_calls, slow_loop, never_moves, unfinished_call, starvation, poisoned_delay, seam_jumps, stamps,
)  # fmt: skip
