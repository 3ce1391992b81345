"""Rules on the machine: has it the device that is asked for, and is a call over before its chunk is?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.results.finding import Finding
from strobe.preflight.results.wiring import CallTime, Timing, Wiring

BEYOND = 1.0  # normalised: a first position that is farther outside of the training's range
OFTEN_OUTSIDE = 0.2  # of the ticks
MOST_TOLD = 4  # joints


def device(wiring: Wiring) -> Iterator[Finding]:
    """A device that is asked for, and that the machine has not."""
    here = wiring.device_here
    if here is None or here.there is not False:
        return
    instead = here.instead or "an accelerator that is there, else the CPU"
    flag = "--device" if here.asked_by == "--device" else "--policy.device"
    yield Finding(
        rule="device-absent",
        level="info",
        title=f"This machine has no {wiring.device}",
        seen=f"{here.asked_by} asks for {wiring.device}; {here.why}.",
        why=f"LeRobot says so only in its log, and takes {instead}. Every call takes as long as it takes there.",
        do=f"Run it on a machine with {wiring.device}, or set {flag}={here.instead or 'cpu'} and measure a call: "
        f"strobe breakdown --policy.path={wiring.sources['policy']}",
        evidence={"asked": wiring.device, "by": here.asked_by},
    )


def call(wiring: Wiring) -> Iterator[Finding]:
    """A call that takes longer than the actions last that the robot has meanwhile (lerobot #4580)."""
    timing, rate = wiring.timing, rate_of(wiring)
    measured = timing.call
    if measured is None or rate is None or measured.ms <= 0:
        return
    ticks = measured.ms * rate / 1e3
    if (wiring.engine or measured.engine) == "rtc":
        yield from _with_rtc(wiring, timing, measured, ticks, rate)
    else:
        yield from _in_turn(wiring, timing, measured, ticks, rate)


def rate_of(wiring: Wiring) -> float | None:
    """Return the rate in Hz at which actions are executed: of the loop, of the run, or of the data."""
    measured = wiring.timing.call
    return wiring.timing.loop_fps or (measured.fps if measured is not None else None) or wiring.timing.data_fps


def _in_turn(wiring: Wiring, timing: Timing, measured: CallTime, ticks: float, rate: float) -> Iterator[Finding]:
    """The sync engine: the loop stands still in each call, and executes actions of the chunk after it."""
    executed = timing.executed
    if not executed or ticks <= executed:
        return
    most = min((length for length in (timing.most_executed, timing.chunk) if length), default=executed)
    ways = []
    if wiring.guidable and timing.chunk and 2 * math.ceil(ticks) <= timing.chunk:
        ways.append("--inference.type=rtc predicts while the arm moves")
    if executed < most:
        longer = min(most, math.ceil(ticks))
        short = "" if longer >= ticks else ", which shortens the halts and does not end them"
        ways.append(f"--policy.n_action_steps={longer}, of a chunk of {timing.chunk or most}{short}")
    yield _finding(
        wiring,
        measured,
        title=f"A call takes {ticks:.3g} ticks, and {executed} of its actions are executed",
        seen=f"A call takes {_long(measured.ms)} = {ticks:.1f} ticks at {rate:g} Hz, {_where(measured)}; "
        f"n_action_steps is {executed}.",
        why=f"The sync engine calls inside the control loop: the robot stands still for {math.ceil(ticks - 1)} ticks "
        f"in each chunk, and moves for {executed}.",
        ways=[*ways, *_faster(wiring, executed, ticks, measured)],
        evidence={"ticks": ticks, "executed": executed, "still": ticks - 1, "ms": measured.ms},
    )


def _with_rtc(wiring: Wiring, timing: Timing, measured: CallTime, ticks: float, rate: float) -> Iterator[Finding]:
    """Real-Time Chunking: a chunk has to cover the call that made it, and the next one."""
    delay, chunk = math.ceil(ticks), timing.chunk
    if chunk is None or 2 * delay <= chunk:
        return
    if delay >= chunk:
        title = "Real-Time Chunking cannot keep up: every chunk is over before it arrives"
        why = (
            "LeRobot drops the actions that were due during the call. The robot never moves, and LeRobot logs nothing."
        )
    else:
        title = "Real-Time Chunking cannot keep up: chunks are too short for the calls"
        why = f"{chunk - delay} actions of each chunk are still due when it arrives, and the next chunk takes {delay} "
        why += f"ticks: the robot has no action for {2 * delay - chunk} ticks in each."
    yield _finding(
        wiring,
        measured,
        title=title,
        seen=f"A call takes {_long(measured.ms)} = {ticks:.1f} ticks at {rate:g} Hz, {_where(measured)}; a chunk has "
        f"{chunk} actions.",
        why=why,
        ways=_faster(wiring, chunk // 2, ticks, measured),
        evidence={"ticks": ticks, "chunk": chunk, "ms": measured.ms},
    )


def _finding(
    wiring: Wiring, measured: CallTime, *, title: str, seen: str, why: str, ways: list[str],
    evidence: dict[str, float | str | None],
) -> Finding:  # fmt: skip
    """Return the finding. It is serious where the call was timed in a run, or a rollout is to start on this machine."""
    return Finding(
        rule="call-longer-than-chunk",
        level="warning" if measured.run or wiring.engine is not None else "info",
        title=title,
        seen=seen,
        why=why,
        do=f"{ways[0][:1].upper()}{ways[0][1:]}. Or: {'; '.join(ways[1:])}." if len(ways) > 1 else f"{ways[0]}.",
        evidence=evidence,
    )


def _faster(wiring: Wiring, covered: int, ticks: float, measured: CallTime) -> list[str]:
    """Return ways to let a call take no more ticks than ``covered``."""
    timing = wiring.timing
    ways = [f"a faster call: strobe optimize --policy.path={wiring.sources['policy']}"]
    if timing.steps is not None and timing.steps > 1:
        ways.append(f"fewer denoising steps: --policy.{timing.steps_field}, now {timing.steps}")
    fps = 1e3 * covered / measured.ms
    if fps >= 1:
        slower = ", with data that was recorded at that rate" if timing.data_fps and fps < timing.data_fps else ""
        ways.append(f"--fps={math.floor(fps)}, at which {covered} ticks cover a call{slower}")
    return ways


def _where(measured: CallTime) -> str:
    return f"in {measured.run}" if measured.run else "on recorded frames on this machine"


def _long(ms: float) -> str:
    return f"{ms / 1e3:.2g} s" if ms >= 1e3 else f"{ms:.3g} ms"


def fed(wiring: Wiring) -> Iterator[Finding]:
    """Joints that a run gave the policy where the training data never had them (wall-x #113, openpi #814)."""
    joints = wiring.fed or []
    starts = sorted((each for each in joints if each.beyond > BEYOND), key=lambda each: -each.beyond)
    leaves = sorted((each for each in joints if each.outside > OFTEN_OUTSIDE), key=lambda each: -each.outside)
    for rule, found, title in (
        ("starts-outside-training", starts, "The arm starts where the training data never was"),
        ("runs-outside-training", [each for each in leaves if each not in starts],
         "The arm is where the training data never was"),
    ):  # fmt: skip
        if not found:
            continue
        first = found[0]
        size = (
            f"{first.normalised:+.2g} σ" if rule.startswith("starts") else f"{100 * first.outside:.0f} % of the ticks"
        )
        told = [
            f"{each.joint} was {each.first:.4g} in the first observation, {each.normalised:+.2g} normalised, and "
            f"outside of {each.low:.4g} to {each.high:.4g} in {100 * each.outside:.0f} % of the ticks"
            for each in found[:MOST_TOLD]
        ]
        yield Finding(
            rule=rule,
            level="warning",
            title=f"{title}: {first.joint}, {size}",
            seen=f"{'; '.join(told)}{f'; and {len(found) - MOST_TOLD} joints more' if len(found) > MOST_TOLD else ''}.",
            why="The policy was never given such a state. Its actions there are a guess.",
            do=f"Start the arm with {first.joint} between {first.low:.4g} and {first.high:.4g}. If it stands there as "
            "in the recording, calibrate it as it was then: its zero has moved.",
            evidence={"joint": first.joint, "normalised": first.normalised, "outside": first.outside},
        )


CHECKS = (device, call, fed)
