"""Rules on a rollout: what keeps the robot from its actions, and the value of the flag that mends it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.replay.results import ReplayResult
from strobe.rollout.findings.robot import FPS_FLAGS, explains, waits_for_cpu, waits_for_interpreter
from strobe.rollout.results.rollout import FEW_SEAMS, Inference, Pace, Rollout, RolloutResult

# Parts of the loop's tick that belong to asking the policy.
_ASKING = {"get action", "select action", "predict chunk", "prepare inputs", "preprocessing", "postprocessing"}
MAX_DELAY_EXCESS = 2  # actions assumed beyond what calls need: more holds too much of each chunk to the last one
MAX_STAMP_ERROR = 0.05  # share by which recorded frames may be stamped with another duration than theirs
FEW_CALLS = 3  # fewest late calls after the first that show slow calls, rather than a single delay


def damaged(result: RolloutResult | ReplayResult, _: Thresholds) -> Iterator[Finding]:
    """A recording that is not whole: it tells of a shorter run, which may look better than the run was."""
    if lost := result.lost if isinstance(result, ReplayResult) else result.rollout.lost:
        yield Finding(
            rule="recording-damaged",
            level="warning",
            title="The recording is damaged",
            seen=f"{lost[:1].upper()}{lost[1:]}.",
            why="Late ticks, and ticks without an action, may be in the part that is lost. No figure counts them.",
            do="Copy the file from the robot again, or record the run again.",
        )


def slow_loop(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A loop slower than requested, by the part that late ticks spend their time on."""
    rollout, pace = result.rollout, result.rollout.pace
    if pace is None:
        return
    repeated = rollout.bus.failed_reads if rollout.bus is not None else 0  # late for a reason that has its own finding
    first_ms = _first_lost_ms(rollout, pace)
    late = max(0, pace.late - repeated - (first_ms > 0))
    held_hz = 1 / (1 / pace.held_hz - first_ms / 1e3 / pace.period.n)
    if late < thresholds.ticks_late * pace.ticks and held_hz >= thresholds.rate_held * pace.asked_hz:
        return
    if _asks_the_policy(rollout, pace) and late < FEW_CALLS:
        return
    on_the_bus = "motors" in pace.late_part and explains(rollout, thresholds)
    if on_the_bus or waits_for_interpreter(rollout, thresholds) or _for_want_of_cpu(rollout, pace, thresholds):
        return  # another finding says why
    rule, title, why, do = _cause(rollout, pace)
    seen = f"{pace.held_hz:.1f} of {pace.asked_hz:g} Hz; {pace.late:,} of {pace.ticks:,} ticks worked longer than "
    seen += f"{1e3 / pace.asked_hz:.1f} ms, the longest {pace.work.max:,.1f} ms"
    if pace.late_part and pace.late_part_ms is not None:
        seen += f"; late ticks spent {pace.late_part_ms:,.1f} ms in: {pace.late_part}"
    yield Finding(
        rule=rule,
        level="warning",
        title=title,
        seen=f"{seen}.",
        why=why,
        do=do,
        evidence={
            "held_hz": pace.held_hz,
            "late": pace.late / pace.ticks,
            "part": pace.late_part,
            "gain_share": max(0.0, 1 - pace.held_hz / pace.asked_hz),
        },
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


def _for_want_of_cpu(rollout: Rollout, pace: Pace, thresholds: Thresholds) -> bool:
    """Whether ticks are late since the thread waits for a CPU, and not by their own work as well."""
    if rollout.turns is None or not waits_for_cpu(rollout, thresholds):
        return False
    waited_ms = 1e3 * rollout.turns.waited_share / pace.held_hz
    return waited_ms >= 0.5 * (pace.work.median - 1e3 / pace.asked_hz)


def _cause(rollout: Rollout, pace: Pace) -> tuple[str, str, str, str]:
    """Rule, title, why and what to do for a slow loop."""
    part = pace.late_part
    lower = _lower(1e3 / pace.work.p99 / rollout.multiplier, rollout)
    if not part:
        why = "Ticks did their work in time. The loop loses time between ticks."
        do = "Check what else runs on this machine. A busy thread of the same process delays every wake-up."
        return "slow-pace", "The loop is slower than requested, though its work is in time", why, do
    if _asks_the_policy(rollout, pace):
        why = "The loop stands still while the policy predicts. The arm holds its last action, and moves on late."
        if rollout.can_rtc:
            do = "--inference.type=rtc predicts on a thread of its own."
        else:
            do = (
                "A faster policy helps: `strobe optimize --policy.path=…` looks for one. --policy.n_action_steps as "
                "long "
            )
            do += (
                "as the chunk pauses the arm least often. A policy that Real-Time Chunking can guide need not pause it."
            )
        return "slow-inference", "The policy's calls hold up the control loop", why, do
    if part.startswith("camera "):
        why = "The loop waits for the camera's frame before it can act."
        return (
            "slow-camera",
            f"The {part} holds up the control loop",
            why,
            f"Fewer pixels or a free USB port; or {lower}.",
        )
    if part in ("send observation", "pickle observation"):
        why = "The control thread sends each observation itself, and waits until the server has received it."
        do = f"Fewer pixels in --robot.cameras, or a faster link; or {lower}."
        return "slow-sending", "Sending observations holds up the control loop", why, do
    if "leader" in part:
        why = "Each tick waits for the leader before it can send an action to the follower."
        do = f"Check the leader's cable, and give this process less other work; or {lower}."
        return "slow-leader", "The leader holds up the control loop", why, do
    if "motors" in part:
        why = "Each tick waits for the motors' answers on the bus. One lost answer costs a timeout, 50 ms with Feetech."
        do = f"Check the cables and the adapter's latency timer, and give this process less other work; or {lower}."
        return "slow-bus", "The motor bus holds up the control loop", why, do
    if part in ("record frame", "save episode"):
        why = "Frames are recorded inside the tick."
        do = "--dataset.streaming_encoding=true, and --dataset.encoder_threads=2 or a hardware encoder."
        return "slow-recording", "Recording holds up the control loop", why, do
    why = "Actions come late, and motions are slower than the policy learnt them."
    if rollout.engine == "none":
        why = "The follower gets its actions late, and less often than the flags demand."
    return "slow-loop", "The control loop is slower than requested", why, f"{lower[:1].upper()}{lower[1:]}."


def _lower(possible: float, rollout: Rollout) -> str:
    hz = math.floor(min(possible, rollout.fps - 1))
    flag = _fps_flag(rollout)
    return f"{flag}={hz}, which it could hold" if hz >= 1 else f"a lower {flag}"


def _fps_flag(rollout: Rollout) -> str:
    return FPS_FLAGS.get(rollout.command, "--fps")


def never_moves(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Calls longer than a chunk: every chunk is over before it arrives."""
    rollout, inference = result.rollout, result.rollout.inference
    if not _stands_still(rollout) or inference is None or rollout.unfinished is not None:
        return
    longest, chunk = _call_ms(inference), inference.chunk
    lasts = "" if chunk is None else f", a chunk of {chunk:,} actions lasts {1e3 * chunk / rollout.fps:,.0f} ms"
    yield Finding(
        rule="never-moves",
        level="warning",
        title="The arm never moves: every chunk is over before it arrives",
        seen=f"{inference.useless:,} of {inference.calls:,} chunks added no action to the queue. A call takes "
        f"{longest:,.0f} ms{lasts} at {rollout.fps:g} Hz.",
        why="LeRobot drops the actions that were due during the call, though the robot executed none of them. It "
        "gives no warning.",
        do=_longer_chunks(rollout, inference),
        evidence={"useless": inference.useless / inference.calls, "call_ms": longest},
    )


def unfinished_call(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """A run that was over before the policy gave its first chunk."""
    call = result.rollout.unfinished
    if call is None:
        return
    which = "first call" if not call.calls else f"call {call.calls + 1}"
    seen = f"The run ended after {call.run_s:.1f} s. Its {which} began {call.ms / 1e3:.1f} s before and had not "
    seen += "returned. No action was sent."
    if call.calls:
        seen += f" The chunks of the {call.calls} before were thrown away: LeRobot warms the policy up with them."
    why = "LeRobot ends a run at its --duration, also where its inference thread still waits for the policy."
    do = "A longer --duration: the call needs more time than that. `strobe breakdown --policy.path=…` measures it"
    if call.compiled:
        why = "torch.compile compiles during the first calls, which may take minutes. " + why
        do += "; --use_torch_compile=false does without compiling"
    yield Finding(
        rule="first-call-unfinished",
        level="warning",
        title="The run ended before the policy returned its first actions",
        seen=seen,
        why=why,
        do=f"{do}.",
        evidence={"run_s": call.run_s, "call_s": call.ms / 1e3},
    )


def _stands_still(rollout: Rollout) -> bool:
    inference = rollout.inference
    return rollout.engine == "rtc" and inference is not None and 0 < inference.calls == inference.useless


def _call_ms(inference: Inference) -> float:
    """The time to reckon with for a call, in milliseconds: the longest after the first."""
    return inference.first_ms if inference.latency is None else inference.latency.max


def _longer_chunks(rollout: Rollout, inference: Inference) -> str:
    faster = "a faster policy: `strobe optimize --policy.path=…`"
    if inference.chunk is None:
        return f"A lower --fps, or {faster}."
    hz = 1e3 * inference.chunk / (2 * _call_ms(inference))
    shown = f"{math.floor(hz):d}" if hz >= 1 else f"{hz:.2g}"
    return f"--fps={shown}, at which half a chunk covers a call, or {faster}."


def starvation(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Ticks without an action, once the arm was moving."""
    rollout, inference, queue = result.rollout, result.rollout.inference, result.rollout.queue
    pace = rollout.pace
    if pace is None or inference is None or rollout.engine != "rtc" or _stands_still(rollout):
        return
    share = queue.starved / pace.ticks
    if share < thresholds.ticks_starved:
        return
    needed = math.ceil(_call_ms(inference) * rollout.fps / 1e3) + 1
    enough = inference.chunk is None or inference.chunk > 2 * needed
    if enough and queue.threshold is not None and queue.threshold < needed:
        do = f"--inference.queue_threshold={needed}, for the longest call recorded. A run as long may have a longer "
        do += "one: `strobe replay RUN` finds a threshold with which at most one run of 20 starves."
    elif enough:
        do = "Look at the longest calls in the course of the run. Something holds the inference thread up."
    else:
        do = _longer_chunks(rollout, inference)
    yield Finding(
        rule="starvation",
        level="warning",
        title=f"The robot had no action for {queue.starved_ms:,.0f} ms",
        seen=f"{queue.starved:,} of {pace.ticks:,} ticks sent nothing, {queue.longest_ms:,.0f} ms in one go. The "
        f"longest call took {_call_ms(inference):,.0f} ms; calls begin at {queue.threshold} actions or fewer.",
        why="The queue was empty before the next chunk came. The arm then holds its last goal, and LeRobot logs "
        "nothing.",
        do=do,
        evidence={"starved": share, "gain_share": share, "queue_threshold": needed},
    )


def poisoned_delay(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """One slow call, mostly the first, that every later call's delay is still taken from."""
    rollout, inference = result.rollout, result.rollout.inference
    delays = inference.delays if inference is not None else None
    if delays is None or inference is None or _stands_still(rollout):
        return
    first = delays.first_needed + 1 >= delays.assumed.median
    if first:
        excess, assumed = delays.assumed.median - delays.needed.p95, delays.assumed.median
    else:  # a later call: its delay may have reached few calls after it
        excess, assumed = (delays.assumed.max - delays.needed.median) / 2, delays.assumed.max
    if excess < MAX_DELAY_EXCESS or max(delays.first_needed, delays.needed.max) + 1 < assumed:
        return
    if first:
        seen = f"The first call took {inference.first_ms:,.0f} ms, {delays.first_needed} actions; later ones needed "
    else:
        seen = f"The longest call took {_call_ms(inference):,.0f} ms, {delays.needed.max:.0f} actions; most needed "
    seen += f"{delays.needed.median:.0f}, and the policy assumed {assumed:.0f}."
    if delays.first_dropped and first:
        seen += (
            f" {delays.first_dropped} actions of the first chunk were dropped, though the robot had executed none. The "
        )
        seen += "arm at rest began that far ahead."
    yield Finding(
        rule="poisoned-delay",
        level="warning",
        title=f"{'A slow first' if first else 'One slow'} call poisons the delay that Real-Time Chunking assumes",
        seen=seen,
        why="For the rest of the run LeRobot assumes the longest latency since the start. It binds that many actions "
        "of each chunk to the chunk before, and the robot reacts that much later.",
        do="With --use_torch_compile=true LeRobot does not count the first --compile_warmup_inferences calls. A "
        "LeRobot with its pull request 4454 does not count them either, without compiling."
        if first
        else "Find what held that call up: the trace shows its parts. Or start again, since the estimate lasts as "
        "long as the run.",
        evidence={"assumed": assumed, "needed": delays.needed.median, "first_ms": inference.first_ms},
    )


def seam_jumps(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A joint that jumps where chunks meet."""
    rollout = result.rollout
    jerky = [
        seam
        for seam in rollout.seams
        if seam.jump.n >= FEW_SEAMS and seam.ratio is not None and seam.ratio >= thresholds.seam_jump
    ]
    if not jerky:
        return
    worst = max(jerky, key=lambda seam: seam.ratio or 0.0)
    if rollout.engine == "remote":
        do = "--aggregate_fn_name=conservative uses more of the earlier chunk where two chunks overlap."
    elif rollout.engine == "rtc":
        longer = f"--inference.rtc.execution_horizon={2 * rollout.horizon}" if rollout.horizon else "a longer horizon"
        do = f"{longer}, so that the last chunk guides more of the next one. Check that the assumed delay is right."
    elif rollout.can_rtc:
        do = "--inference.type=rtc, whose chunks continue the ones before."
    elif result.subject.kind == "act":
        do = "--policy.temporal_ensemble_coeff=0.01 --policy.n_action_steps=1 averages chunks, at a call in every tick."
    else:
        do = "With fewer --policy.n_action_steps the chunks agree better where they meet, and there are more calls."
    yield Finding(
        rule="seam-jumps",
        level="warning",
        title=f"The arm jumps from chunk to chunk, most of all {worst.joint}",
        seen=f"{worst.joint}: {worst.jump.median:.3g} from one chunk to the next (median of {worst.jump.n:,}, largest "
        f"{worst.jump.max:.3g}), {worst.step.p95:.3g} from action to action (95 %); {len(jerky)} of "
        f"{len(rollout.seams)} joints jump.",
        why="The next chunk was predicted from a newer observation and does not begin where the last one stopped.",
        do=do,
        evidence={"ratio": worst.ratio, "joint": worst.joint, "jump": worst.jump.median},
    )


def stamps(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Recorded frames that are stamped with other times than theirs."""
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
    yield Finding(
        rule=rule,
        level="warning",
        title=title,
        seen=f"{frames.frames:,} frames took {frames.real_s:.1f} s, and their time stamps span "
        f"{frames.stamped_s:.1f} s.",
        why=f"{why} A policy trained on them learns another speed.",
        do=do,
        evidence={"off": off, "dataset_fps": frames.dataset_fps},
    )


RULES = (damaged, slow_loop, never_moves, unfinished_call, starvation, poisoned_delay, seam_jumps, stamps)
