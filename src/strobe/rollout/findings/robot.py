"""Rules on what a rollout reads: the motors' bus, the cameras, and the thread that reads both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.rollout.results.rollout import Bus, Camera, Pace, Rollout, RolloutResult, Turns

MAX_STALE_READS = 3  # reads that found answers to an earlier question: one or two do not last
LOST_MS = 50.0  # LeRobot's drivers wait so long for an answer (Feetech; 34 ms with Dynamixel)
ELSEWHERE = ("none", "remote", "server")  # engines whose policy, if any, runs in another process


_BUS_WORDS = ("status packet", "sync read", "sync write", "SerialException", "device reports readiness", "termios")


def bus_trouble(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """The one thing that is wrong with the bus, the worst first."""
    trouble = _trouble(result.rollout, thresholds)
    if trouble is not None:
        yield trouble


def explains(rollout: Rollout, thresholds: Thresholds) -> bool:
    """Whether a finding on the bus says already why reads of the motors are slow."""
    return _trouble(rollout, thresholds) is not None


def _trouble(rollout: Rollout, thresholds: Thresholds) -> Finding | None:
    if rollout.bus is None:
        return None
    judged = (judge(rollout, rollout.bus, thresholds) for judge in (_stale, _stopped_answering, _lost, _damaged, _slow))
    return next((finding for finding in judged if finding is not None), None)


def _stale(rollout: Rollout, bus: Bus, thresholds: Thresholds) -> Finding | None:
    if bus.stale < MAX_STALE_READS or bus.stale_from_s is None:
        return None
    lasting = bus.stale_at_end
    return Finding(
        rule="stale-observations",
        level="warning",
        title="The motors' positions are one tick old" + (", until the run's end" if lasting else ""),
        seen=f"From {bus.stale_from_s:.1f} s on, {bus.stale:,} reads got the answer to an earlier request from the "
        f"port{', also the last one' if lasting else ''}.",
        why="One answer came after the driver's time limit. The driver sent its request again and took the late "
        "answer as the new one. It has been one answer behind since, because its serial library never empties "
        "the port's input. LeRobot logs nothing.",
        do=f"Start again: connecting empties the port. Every observation was {1e3 / rollout.fps:.0f} ms older than "
        "its time stamp, so throw recordings of this run away. Give the adapter a latency timer of 1 ms and a "
        "USB port of its own. Run nothing else on this machine.",
        evidence={"stale": bus.stale, "from_s": bus.stale_from_s},
    )


def _stopped_answering(rollout: Rollout, bus: Bus, thresholds: Thresholds) -> Finding | None:
    error = rollout.error
    if not any(word in error for word in _BUS_WORDS):
        return None
    return Finding(
        rule="motors-gone",
        level="warning",
        title=f"The motors{_of(bus)} stopped answering, and that ended the run",
        seen=f"{error.rstrip('.')}. {bus.lost:,} tries had no answer, {bus.damaged:,} a damaged one.",
        why=f"LeRobot sends the request {_asks(error)} and then ends the run. One silent servo is enough, since all "
        "servos are read together.",
        do="Check the servos' supply and plugs. Connect again: LeRobot then names the ids that do not answer. Turn "
        "the arm off before you touch it, since torque may be on.",
        evidence={"lost": bus.lost, "damaged": bus.damaged},
    )


def _lost(rollout: Rollout, bus: Bus, thresholds: Thresholds) -> Finding | None:
    if not bus.lost or bus.lost < bus.damaged or bus.failed_ms is None:
        return None
    return Finding(
        rule="lost-answers",
        level="warning",
        title=f"Motors{_of(bus)} did not answer in time, and the driver repeated its request",
        seen=f"{bus.lost:,} tries in {bus.failed_reads:,} of {bus.failed_reads + bus.ms.n:,} reads had no answer. Such "
        f"a read took {bus.failed_ms.median:,.1f} ms (median), the others {bus.ms.median:,.1f} ms.",
        why=f"The driver waits {LOST_MS:.0f} ms for an answer before it repeats the request, and the loop waits too. "
        "LeRobot logs this only at debug level.",
        do="Check the cable between the servos, and the supply's voltage under load. Run nothing else on this "
        "machine: a busy machine can miss an answer that came.",
        evidence={"lost": bus.lost, "failed_ms": bus.failed_ms.median},
    )


def _damaged(rollout: Rollout, bus: Bus, thresholds: Thresholds) -> Finding | None:
    if not bus.damaged or bus.failed_ms is None:
        return None
    return Finding(
        rule="damaged-answers",
        level="warning",
        title=f"Answers of the motors{_of(bus)} were damaged, and the driver repeated its request",
        seen=f"{bus.damaged:,} tries in {bus.failed_reads:,} of {bus.failed_reads + bus.ms.n:,} reads. Such a read "
        f"took {bus.failed_ms.median:,.1f} ms (median), the others {bus.ms.median:,.1f} ms.",
        why="A checksum was wrong, or bytes were missing. LeRobot sends the request up to three times, then the run "
        "ends.",
        do="The cause is a loose plug, a long cable, or a supply whose voltage drops while several joints move. "
        "Change the cable first.",
        evidence={"damaged": bus.damaged},
    )


def _slow(rollout: Rollout, bus: Bus, thresholds: Thresholds) -> Finding | None:
    if bus.ms.median < thresholds.bus_read_ms or bus.on_cpu < 0.5:
        return None
    return Finding(
        rule="slow-bus",
        level="warning",
        title=f"The motors{_of(bus)} answer slowly",
        seen=f"A read of all motors took {bus.ms.median:,.1f} ms (median; 95 % within {bus.ms.p95:,.1f}). The "
        f"reading thread had a CPU for {bus.on_cpu:.0%} of it, so the time is the bus's.",
        why="Six servos at 1 Mbaud need about 1 ms plus the adapter's latency. Linux often sets that to 16 ms.",
        do="echo 1 > /sys/bus/usb-serial/devices/ttyUSB0/latency_timer (with your port's name). If one servo answers "
        "late, look at the return delay in its register 7.",
        evidence={"read_ms": bus.ms.median},
    )


def _of(bus: Bus) -> str:
    """Words that tell which arm's bus it is."""
    return f" of the arm '{bus.arm}'" if bus.arm else ""


def _asks(error: str) -> str:
    """How often LeRobot's driver asks, as its error tells: SO arms have `num_read_retries`, Koch and OMX arms none."""
    tries = re.search(r"after (\d+) tries", error)
    if tries is None or int(tries[1]) == 3:
        return "three times"
    return "this arm once" if int(tries[1]) == 1 else f"{tries[1]} times"


def turns(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A control thread that waits for a CPU, or for the interpreter."""
    rollout, bus = result.rollout, result.rollout.bus
    if bus is not None and waits_for_interpreter(rollout, thresholds):
        yield Finding(
            rule="threads-fight",
            level="warning",
            title="Other threads of this process hold up the control loop",
            seen=f"A read of the motors took {bus.ms.median:,.1f} ms (median; 95 % within {bus.ms.p95:,.1f}) and had "
            f"a CPU for {bus.on_cpu:.0%} of it, though it waits in a loop that never sleeps; {bus.blocked:.0%} "
            "it was held back.",
            why="Python runs one thread at a time. For each step the driver's loop must get the interpreter back "
            "from a busy thread, such as the inference, an encoder or a viewer. That can take 5 ms.",
            do="The trace shows which thread runs at that time. A compiled policy or a CUDA graph spends less time "
            "in Python. You can run without recording and without the display (--display_data=false).",
            evidence={"blocked": bus.blocked, "read_ms": bus.ms.median},
        )
    elif rollout.turns is not None and waits_for_cpu(rollout, thresholds):
        yield _no_cpu(rollout.turns, policy=rollout.inference is not None and rollout.engine not in ELSEWHERE)


def _no_cpu(turns: Turns, *, policy: bool) -> Finding:
    others = turns.other_cpus >= turns.own_cpus
    who = "Other processes take" if others else "The policy takes" if policy else "Other threads of this process take"
    if others:
        do = "End other programs, or give this run a higher priority: `nice -n -5` (as root)."
    elif not policy:
        do = (
            "No policy runs in this process. The trace shows which thread runs at that time: an encoder, a camera or a "
            "viewer. "
            "Give --dataset.rgb_encoder.vcodec=h264 or a hardware encoder, or --display_data=false."
        )
    else:
        do = (
            "Set OMP_NUM_THREADS to 1, or to half the cores. Then the policy's threads do not take every core, and "
            "the loop has one."
        )
    return Finding(
        rule="busy-machine" if others else "busy-process",
        level="warning",
        title=f"{who} the CPU from the control loop",
        seen=f"The control thread was ready and had no CPU for {turns.waited_share:.0%} of the run. This process kept "
        f"{turns.own_cpus:.1f} CPUs busy, others {turns.other_cpus:.1f}.",
        why="Ticks, reads of the motors and calls of the policy take longer, and the driver can miss answers.",
        do=do,
        evidence={"waited": turns.waited_share, "gain_share": turns.waited_share},
    )


def waits_for_cpu(rollout: Rollout, thresholds: Thresholds) -> bool:
    """Whether the control thread waits for a CPU that something beside it has.

    Where it asks the policy itself, it also waits for the policy's own threads: that is the policy's time.
    """
    turns = rollout.turns
    if turns is None or turns.waited_share < thresholds.cpu_waited:
        return False
    return rollout.engine != "sync" or turns.other_cpus >= turns.own_cpus


def waits_for_interpreter(rollout: Rollout, thresholds: Thresholds) -> bool:
    """Whether reads of the motors take long since another thread of the process has the interpreter."""
    bus = rollout.bus
    return bus is not None and bus.ms.median >= thresholds.bus_read_ms and bus.blocked >= 0.5


def real_time(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """A control thread that was made real-time while LeRobot ran."""
    scheduling = result.rollout.scheduling
    if scheduling is None or scheduling.real_time_before or not scheduling.real_time_after:
        return
    since = "when the loop began" if scheduling.from_s is None else f"from {scheduling.from_s:.1f} s on, or before"
    yield Finding(
        rule="real-time-thread",
        level="warning",
        title="The control thread was made real-time, and it stayed so",
        seen=f"It started as {scheduling.before}, and was {scheduling.after} {since}.",
        why="LeRobot's video encoder, SVT-AV1, does that to the thread that opens it, if it has the right: as root, "
        "or in a container with SYS_NICE. No other thread gets that core while the thread runs: not the cameras, "
        "not the inference, and no thread that it starts later.",
        do="Use --dataset.rgb_encoder.vcodec=h264 or a hardware encoder. Or take the right away: do not run as root, "
        "or start the container with --cap-drop=SYS_NICE. `chrt -o -p 0 PID` mends a running process.",
        evidence={"before": scheduling.before, "after": scheduling.after},
    )


def torque_left(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Servos that a rehearsal left with torque on."""
    rehearsal = result.rollout.rehearsal
    if rehearsal is None or not rehearsal.holding:
        return
    joints = rehearsal.holding
    yield Finding(
        rule="torque-left-on",
        level="warning",
        title=f"The arm still has torque in {len(joints)} joint{'s' if len(joints) > 1 else ''}",
        seen=f"At the end of the run these joints held their goal: {', '.join(joints)}.",
        why="LeRobot switches the torque off servo by servo, and stops at the first servo that is silent or in "
        "error. All later ids keep their torque, even after the process has ended. They grow warm, and nobody "
        "can move the arm by hand.",
        do="Switch the arm's power off. Expect the same on the real arm after such an end.",
        evidence={"joints": ", ".join(joints)},
    )


# Where --fps is called otherwise.
FPS_FLAGS = {"lerobot-record": "--dataset.fps"}
MIN_FRESH = 0.9  # different frames per second over the rate of the loop: under it frames are repeated
FROZEN_PERIODS = 5.0  # periods of the requested rate, with new frames of the same picture
FEW_FRAMES = 4  # below, pictures that are equal say little


def cameras(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """The one thing that is wrong with each camera."""
    rollout, pace = result.rollout, result.rollout.pace
    if pace is None or rollout.command == "lerobot-teleoperate":  # which only shows its frames, or not even that
        return
    wanted = min(rollout.fps, pace.held_hz)
    late = waits_for_interpreter(rollout, thresholds) or waits_for_cpu(rollout, thresholds)
    for camera in rollout.cameras:
        if camera.frozen_frames >= FEW_FRAMES and camera.frozen_ms >= FROZEN_PERIODS * 1e3 / rollout.fps:
            yield _frozen(camera)
        elif late:
            continue  # a camera's own thread waits as the loop does
        elif camera.fresh_hz < MIN_FRESH * wanted:
            yield _repeated(camera, rollout, pace)
        elif camera.longest_ms >= thresholds.camera_stall * 1e3 / wanted:
            yield _stalled(camera)
        elif camera.age is not None and camera.age.median >= thresholds.frame_age_ms:
            yield _old(camera, rollout)


def _repeated(camera: Camera, rollout: Rollout, pace: Pace) -> Finding:
    hz = math.floor(camera.fresh_hz)
    acts = rollout.engine != "none"
    sees = (
        "the policy sees an old frame again, and nothing shows it"
        if acts
        else ("the data set contains an old frame again, and nothing marks it")
    )
    flag = FPS_FLAGS.get(rollout.command, "--fps")
    aged = f" Frames were up to {camera.age.p95:,.0f} ms old (95 %)." if camera.age is not None else ""
    return Finding(
        rule="repeated-frames",
        level="warning",
        title=f"Camera {camera.name} is slower than the loop",
        seen=f"{camera.fresh_hz:.1f} different frames per second; the loop reads it at {pace.held_hz:.1f} Hz.{aged}",
        why=f"The robot takes the latest frame and never waits, so {sees}.",
        do="Give this camera a higher fps in --robot.cameras, fewer pixels, or more light (long exposures halve the "
        f"rate){f'; or {flag}={hz}' if hz >= 1 else ''}.",
        evidence={"fresh_hz": camera.fresh_hz, "camera": camera.name},
    )


def _stalled(camera: Camera) -> Finding:
    return Finding(
        rule="camera-stall",
        level="warning",
        title=f"Camera {camera.name} stood still for {camera.longest_ms:,.0f} ms",
        seen=f"From {camera.longest_from_s:.1f} s on the loop saw one frame for {camera.longest_ms:,.0f} ms. Over "
        f"the whole run it saw {camera.fresh_hz:.1f} different frames per second.",
        why="The robot takes the latest frame, even an old one. If the frame is older than 500 ms the run ends. "
        "LeRobot gives no warning before.",
        do="Give this camera a USB port and a controller of its own, and a shorter cable. Read `dmesg` for that "
        "moment.",
        evidence={"longest_ms": camera.longest_ms, "camera": camera.name},
    )


def _frozen(camera: Camera) -> Finding:
    return Finding(
        rule="camera-frozen",
        level="warning",
        title=f"Camera {camera.name} gave new frames with the same picture for {camera.frozen_ms:,.0f} ms",
        seen=f"From {camera.frozen_from_s:.1f} s on, {camera.frozen_frames:,} frames in a row were equal in every "
        f"pixel that was compared, for {camera.frozen_ms:,.0f} ms. Their time stamps were new.",
        why="A sensor's noise makes any two pictures differ, so the camera or its driver repeats one. LeRobot checks "
        "only a frame's time, so it cannot see this. The policy acts on a scene that stands still.",
        do="Plug the camera in again, into a port of its own. Read `dmesg` for that moment, and look for a newer "
        "firmware or driver. Frames of a simulator or of a video may rightly be equal.",
        evidence={"frozen_ms": camera.frozen_ms, "camera": camera.name},
    )


def _old(camera: Camera, rollout: Rollout) -> Finding:
    assert camera.age is not None
    flag = FPS_FLAGS.get(rollout.command, "--fps")
    return Finding(
        rule="old-frames",
        level="warning",
        title=f"Frames of camera {camera.name} are old when they are read",
        seen=f"{camera.age.median:,.0f} ms (median; 95 % within {camera.age.p95:,.0f}), though {camera.fresh_hz:.1f} "
        f"different frames came per second.",
        why="The policy acts on an old picture, and its own call adds to that age. It was trained on pictures that "
        "were as old as those of its recordings.",
        do="Make the camera buffer less: a USB port of its own, fourcc: MJPG or fewer pixels in --robot.cameras, no "
        f"network in between. Or record with the same camera and the same {flag}, so that the training data has "
        "the same age.",
        evidence={"age_ms": camera.age.median, "camera": camera.name},
    )


RULES = (bus_trouble, turns, torque_left, cameras, real_time)
