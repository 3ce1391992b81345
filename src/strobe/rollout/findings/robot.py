"""Rules on what a rollout reads: the motors' bus, the cameras, and the thread that reads both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain, islice

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.data import Quantiles
from strobe.core.results.finding import Finding, warning
from strobe.loops.results.arm import Bus
from strobe.loops.results.rollout import POLICY_CALL, Camera, Pace, Rollout, RolloutResult, Turns, spread_in_words

MAX_STALE_READS = 3  # reads that found answers to an earlier question: one or two do not last
LOST_MS = 50.0  # LeRobot's drivers wait so long for an answer (Feetech; 34 ms with Dynamixel)
ELSEWHERE = ("none", "remote", "server")  # engines whose policy, if any, runs in another process


_PORT_WORDS = ("SerialException", "device reports readiness", "termios")  # the adapter or its port, not a servo
_BUS_WORDS = ("status packet", "sync read", "sync write", *_PORT_WORDS)


def bus_trouble(result: RolloutResult, thresholds: Thresholds) -> list[Finding]:
    """Return the one thing that is wrong with the bus, the worst first: it says why reads of the motors are slow."""
    rollout = result.rollout
    if (bus := rollout.bus) is None:
        return []
    arm = f" of the arm '{bus.arm}'" if bus.arm else ""
    worst = (
        _stale(rollout, bus),
        _stopped_answering(rollout.error or "", bus, arm),
        _lost_answers(bus, arm),
        _damaged_answers(bus, arm),
    )
    return list(islice(chain(*worst, _slow(bus, arm, thresholds)), 1))


def _stale(rollout: Rollout, bus: Bus) -> Iterator[Finding]:
    if bus.stale >= MAX_STALE_READS and bus.stale_from_s is not None:
        until, last = (", until the run's end", ", also the last one") if bus.stale_at_end else ("", "")
        tick_ms = 1e3 / rollout.fps
        yield warning(
            rule="stale-observations",
            title=f"Motor positions lag by {tick_ms:.0f} ms, one control tick{until}",
            found=f"From {bus.stale_from_s:.1f} s on, {bus.stale:,} reads got the answer to an earlier request{last}.",
            why="One answer came after the driver's time limit. The driver sent its request again and took the late "
            "answer as the new one. It has been one answer behind since, because its serial library never empties the "
            "port's input. LeRobot logs nothing.",
            do="Start the run again: connecting flushes the serial buffer. Throw recordings of this run away, because "
            f"every observation was {tick_ms:.0f} ms older than its time stamp. Give the adapter a latency timer of 1 "
            "ms and a USB port of its own. Run nothing else on this machine.",
        )


def _stopped_answering(error: str, bus: Bus, arm: str) -> Iterator[Finding]:
    if any(word in error for word in _BUS_WORDS):
        port = any(word in error for word in _PORT_WORDS)
        yield warning(
            rule="motors-gone",
            title=f"The port of the motors{arm} failed, and that ended the run"
            if port
            else f"The motors{arm} stopped answering, and that ended the run",
            found=f"{error.rstrip('.')}. {bus.lost:,} requests had no answer, {bus.damaged:,} a damaged one.",
            why="The adapter was unplugged or lost its power, or a second program opened its port."
            if port
            else f"LeRobot sends the request {_asks(error)} and then ends the run. One silent servo is enough, because "
            "all servos are read together.",
            do="Turn the arm off before you touch it, because torque may be on. Check the servos' supply and plugs"
            f"{' and the USB cable' if port else ''}. Connect again: LeRobot then names the ids that do not answer.",
        )


def _lost_answers(bus: Bus, arm: str) -> Iterator[Finding]:
    if bus.lost and bus.lost >= bus.damaged and bus.failed_ms is not None:
        yield warning(
            rule="lost-answers",
            title=f"Motors{arm} did not answer in time, and the driver repeated its request",
            found=f"{bus.lost:,} requests in {bus.failed_reads:,} of {bus.failed_reads + bus.ms.n:,} reads had no "
            f"answer. These reads took a median of {bus.failed_ms.median:,.1f} ms, the others {bus.ms.median:,.1f} ms.",
            why=f"The driver waits {LOST_MS:.0f} ms for an answer before it repeats the request, and the loop waits "
            "too. LeRobot logs this only at debug level.",
            do="Check the cable between the servos, and the supply's voltage under load. Run nothing else on this "
            "machine: a busy machine can miss an answer that came.",
        )


def _damaged_answers(bus: Bus, arm: str) -> Iterator[Finding]:
    if bus.damaged and bus.failed_ms is not None:
        yield warning(
            rule="damaged-answers",
            title=f"Answers of the motors{arm} were damaged, and the driver repeated its request",
            found=f"{bus.damaged:,} answers in {bus.failed_reads:,} of {bus.failed_reads + bus.ms.n:,} reads were "
            f"damaged. These reads took a median of {bus.failed_ms.median:,.1f} ms, the others {bus.ms.median:,.1f} "
            "ms.",
            why="A checksum was wrong, or bytes were missing. LeRobot sends the request up to three times, then the "
            "run ends.",
            do="Change the cable first. Usual causes are a loose plug, a long cable, or a supply whose voltage drops "
            "while several joints move. Two servos with one id, or a second program on the port, look alike.",
        )


def _slow(bus: Bus, arm: str, thresholds: Thresholds) -> Iterator[Finding]:
    if bus.ms.median >= thresholds.bus_read_ms and bus.on_cpu >= 0.5:
        yield warning(
            rule="slow-bus",
            title=f"The motors{arm} answer slowly",
            found=f"A read of all motors took {spread_in_words(bus.ms, 1)}. The reading thread had a CPU for "
            f"{bus.on_cpu:.0%} of that time, so the bus or the driver takes it, and no other thread.",
            why="Six servos at 1 Mbaud need about 1 ms plus the adapter's latency. Linux often sets that to 16 ms.",
            do="echo 1 > /sys/bus/usb-serial/devices/ttyUSB0/latency_timer (with your port's name). If one servo "
            "answers late, look at the return delay in its register 7.",
        )


def _asks(error: str) -> str:
    tries = re.search(r"after (\d+) tries", error)
    if tries is None or int(tries[1]) == 3:
        return "three times"
    return "this arm once" if int(tries[1]) == 1 else f"{tries[1]} times"


def turns(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A control thread that waits for a CPU, or for the interpreter."""
    rollout, bus = result.rollout, result.rollout.bus
    if bus is not None and waits_for_interpreter(rollout, thresholds):
        yield warning(
            rule="threads-fight",
            title="Other threads of this process hold up the control loop",
            found=f"A read of the motors took {spread_in_words(bus.ms, 1)}. Its loop never sleeps, but had a CPU for "
            f"only {bus.on_cpu:.0%} of that time; for {bus.blocked:.0%} it neither ran nor waited for one.",
            why="Python runs one thread at a time. For each step the driver's loop must get the interpreter back from "
            "a busy thread, such as the inference, an encoder or a viewer. That can take 5 ms.",
            do="The trace shows which thread runs at that time. A compiled policy or a CUDA graph spends less time in "
            "Python. You can run without recording and without the display (--display_data=false).",
        )
    elif rollout.turns is not None and waits_for_cpu(rollout, thresholds):
        yield from _missing_cpu(rollout.turns, policy=rollout.inference is not None and rollout.engine not in ELSEWHERE)


def _missing_cpu(turns: Turns, *, policy: bool) -> Iterator[Finding]:
    """A control thread that is ready and has no CPU."""
    rule = "busy-process"
    if turns.other_cpus >= turns.own_cpus:
        rule, who = "busy-machine", "Other processes take"
        do = "End other programs, or give this run a higher priority: `nice -n -5` (as root)."
    else:
        who = "Other threads of this process take"
        do = "No policy runs in this process."
        if policy:
            do = "If the policy's threads do, set OMP_NUM_THREADS to 1, or to half the cores: the loop then has one."
        do += " The trace shows which thread runs at that time: an encoder, a camera or a viewer. Give "
        do += "--dataset.rgb_encoder.vcodec=h264 or a hardware encoder, or --display_data=false."
    yield warning(
        rule=rule,
        title=f"{who} the CPU from the control loop",
        found=f"The control thread was ready and had no CPU for {turns.waited_share:.0%} of the run. This process "
        f"kept {turns.own_cpus:.1f} CPUs busy, others {turns.other_cpus:.1f}.",
        why="Ticks, reads of the motors and calls of the policy take longer, and the driver can miss answers.",
        do=do,
        evidence={"gain_share": turns.waited_share},
    )


def waits_for_cpu(rollout: Rollout, thresholds: Thresholds) -> bool:
    """Whether the control thread waits for a CPU that something else has.

    Where it asks the policy itself, it also waits for the policy's own threads: that is the policy's time.
    """
    turns = rollout.turns
    if turns is None or turns.waited_share < thresholds.cpu_waited:
        return False
    return rollout.engine != "sync" or turns.other_cpus >= turns.own_cpus


def waits_for_interpreter(rollout: Rollout, thresholds: Thresholds) -> bool:
    """Whether reads of the motors take long because another thread of the process has the interpreter."""
    bus = rollout.bus
    return bus is not None and bus.ms.median >= thresholds.bus_read_ms and bus.blocked >= 0.5


def real_time(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    scheduling = result.rollout.scheduling
    if scheduling is not None and not scheduling.real_time_before and scheduling.real_time_after:
        from_s = scheduling.from_s
        since = "when the loop began" if from_s is None else f"from {from_s:.1f} s on, or before"
        yield warning(
            rule="real-time-thread",
            title="The control thread became real-time",
            found=f"The control thread started as {scheduling.before}, and was {scheduling.after} {since}.",
            why="LeRobot's video encoder, SVT-AV1, makes the thread that opens it real-time if it may: as root, or in "
            "a container with SYS_NICE. `chrt` and other programs can do that, too. No other thread gets that core "
            "while the thread runs: not the cameras, not the inference, and no thread that it starts later.",
            do="Use --dataset.rgb_encoder.vcodec=h264 or a hardware encoder. Or take the right away: do not run as "
            "root, or start the container with --cap-drop=SYS_NICE. `chrt -o -p 0 PID` fixes a running process.",
        )


def torque_left(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    rollout, rehearsal = result.rollout, result.rollout.rehearsal
    holding = rehearsal.holding if rehearsal is not None else []
    failed = rollout.error is not None and any(f"{state}: " in (rollout.torque or "") for state in ("on", "not known"))
    if holding or (failed and (rehearsal is None or not rehearsal.arms)):
        where = f" in {units.count(len(holding), 'joint')}" if holding else ""
        joints = f"these joints held their goal: {', '.join(holding)}" if holding else f"torque was {rollout.torque}"
        yield warning(
            rule="torque-left-on",
            title=f"The arm {'still has' if holding else 'may still have'} torque{where}",
            found=f"At the end of the run {joints}.",
            why="LeRobot switches the torque off servo by servo, and stops at the first servo that is silent or in "
            "error. All later ids keep their torque, even after the process has ended. They grow warm, and nobody can "
            "move the arm by hand.",
            do="Switch the power of the arm off."
            if rehearsal is None
            else "Expect the same on the real arm after such an end, and switch its power off.",
            evidence={"gain_share": 1.0},
        )


def stalls(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """A part of the loop, or a policy call, that hung."""
    for stall in result.rollout.stalls:
        times = "It happened once," if stall.count == 1 else f"It happened {stall.count:,} times, the longest"
        why = "The loop waits for this device, and the arm holds its last goal. A lower --fps does not help."
        do = "Check that device, its cable and its driver (`dmesg` for that moment). Give it a USB port of its own. "
        do += "If other parts hung at that moment too, the machine or the process paused, and not the device."
        if stall.part == POLICY_CALL:
            why = "Later calls wait for it, and the robot runs out of actions. A lower --fps does not help."
            do = "Find out what held the call up: the trace shows its parts. Look for other programs on that device."
        yield warning(
            rule="device-stall",
            title=stall.title,
            found=f"{times} at {stall.from_s:.1f} s of the run. Usually that takes less than a tenth of the time.",
            why=why,
            do=do,
            evidence={"gain_share": 0.9},
        )


def numbers_not_finite(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Joints that were NaN or infinite."""
    found = result.rollout.not_finite
    if found is None or not found.read + found.sent:
        return
    title = "The robot reported NaN or infinite positions"
    told = f"{found.sent:,} control ticks sent such an action, and {found.read:,} read such a position"
    do = "Check the robot's driver and the calibration of these joints."
    if found.sent:
        title = "The robot was sent NaN or infinite actions"
        do = "Run `strobe preflight --policy.path=FOLDER`: it checks the statistics that the actions are scaled with."
    if result.rollout.engine == "server":
        title, told = "The robot client was sent NaN or infinite actions", f"{found.sent:,} chunks had such an action"
    yield warning(
        rule="not-finite",
        title=title,
        found=f"{told}, in {', '.join(found.joints)}.",
        why="A driver refuses such a number, or the arm moves anywhere. A policy that reads one predicts NaN.",
        do=do,
        evidence={"gain_share": 1.0},  # before all else
    )


def wild_commands(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Commands beyond a joint's range, or farther from the last one than a motor moves in a tick."""
    wild = result.rollout.wild or []
    for joint in wild[:1]:
        ends = f" Its range is {joint.ends[0]:.4g} to {joint.ends[1]:.4g}." if joint.ends is not None else ""
        others = f" So were {', '.join(each.joint for each in wild[1:])}." if wild[1:] else ""
        yield warning(
            rule="wild-commands",
            title=joint.title,
            found=f"The first was at {joint.from_s:.1f} s; {units.count(joint.ticks, 'control tick')} sent it such a "
            f"command.{ends}{others}",
            why="No motor can execute such a command. A driver clamps it, or the arm hits its stop at full speed.",
            do="Run `strobe preflight --policy.path=FOLDER` with this robot: it compares units, statistics and "
            "calibration. For the first runs, limit a step: --robot.max_relative_target.",
            evidence={"gain_share": 1.0},
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
            yield from _frozen_camera(camera)
        elif late:
            continue  # a camera's own thread waits as the loop does
        elif camera.fresh_hz < MIN_FRESH * wanted:
            yield from _repeated_frames(camera, rollout, pace)
        elif camera.longest_ms >= thresholds.camera_stall * 1e3 / wanted:
            yield from _camera_stall(camera)
        elif camera.age is not None and camera.age.median >= thresholds.frame_age_ms:
            yield from _old(camera, camera.age, rollout)


def _repeated_frames(source: Camera, rollout: Rollout, pace: Pace) -> Iterator[Finding]:
    sees = "the policy sees an old frame again, and nothing shows it"
    if rollout.engine == "none":
        sees = "the data set contains an old frame again, and nothing marks it"
    aged = f" Frames were up to {source.age.p95:,.0f} ms old (95 %)." if source.age is not None else ""
    hz = math.floor(source.fresh_hz)
    lower = f"; or {FPS_FLAGS.get(rollout.command, '--fps')}={hz}" if hz >= 1 else ""
    yield warning(
        rule="repeated-frames",
        title=f"Camera {source.name} is slower than the control loop",
        found=f"The camera gave {source.fresh_hz:.1f} different frames per second; the loop reads it at "
        f"{pace.held_hz:.1f} Hz.{aged}",
        why=f"The robot takes the latest frame and never waits, so {sees}.",
        do=f"Give the camera {source.name} a higher fps in --robot.cameras, fewer pixels, or more light (long "
        f"exposures halve the rate){lower}.",
    )


def _camera_stall(source: Camera) -> Iterator[Finding]:
    yield warning(
        rule="camera-stall",
        title=f"Camera {source.name} gave no new frame for {source.longest_ms:,.0f} ms",
        found=f"From {source.longest_from_s:.1f} s on the loop read one frame for {source.longest_ms:,.0f} ms. Over "
        f"the whole run it read {source.fresh_hz:.1f} different frames per second.",
        why="The robot takes the latest frame, even an old one. If the frame is older than 500 ms the run ends. "
        "LeRobot gives no warning before.",
        do=f"Give the camera {source.name} a USB port and a controller of its own, and a shorter cable. Read `dmesg` "
        "for that moment.",
    )


def _frozen_camera(source: Camera) -> Iterator[Finding]:
    yield warning(
        rule="camera-frozen",
        title=f"Camera {source.name} gave new frames with the same picture for {source.frozen_ms:,.0f} ms",
        found=f"From {source.frozen_from_s:.1f} s on, {source.frozen_frames:,} frames in a row were equal in every "
        f"pixel that was compared, for {source.frozen_ms:,.0f} ms. Their time stamps were new.",
        why="A sensor's noise makes any two pictures differ, so the camera or its driver repeats one. LeRobot checks "
        "only a frame's time, so it cannot see this. The policy acts on a scene that stands still.",
        do="Plug the camera in again, into a port of its own. Read `dmesg` for that moment, and look for a newer "
        "firmware or driver. Frames of a simulator or of a video may rightly be equal.",
    )


def _old(source: Camera, age: Quantiles, rollout: Rollout) -> Iterator[Finding]:
    yield warning(
        rule="old-frames",
        title=f"Frames of camera {source.name} are {age.median:,.0f} ms old when the loop reads them",
        found=f"The age of a frame was {spread_in_words(age)}, though the camera gave {source.fresh_hz:.1f} different "
        "frames per second.",
        why="The policy acts on an old picture, and its own call adds to that age. In its training the pictures were "
        "as old as those of its recordings.",
        do="Make the camera buffer less: a USB port of its own, fourcc: MJPG or fewer pixels in --robot.cameras, no "
        f"network in between. Or record with the same camera and the same {FPS_FLAGS.get(rollout.command, '--fps')}, "
        "so that the training data has the same age.",
    )


RULES = (numbers_not_finite, wild_commands, stalls, bus_trouble, turns, torque_left, cameras, real_time)
