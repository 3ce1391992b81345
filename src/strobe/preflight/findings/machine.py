"""Rules on a run: does a call end before its chunk does, and are the joints where they were in the training?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from strobe.core.results.finding import Finding, warning
from strobe.preflight.results.wiring import CallTime, FedJoint, Timing, Wiring

BEYOND = 1.0  # normalised: least distance of a first position from the training's range
OFTEN_OUTSIDE = 0.2  # share of the ticks in which a joint is outside of the training's range
SHOWN = 4  # joints


def call(wiring: Wiring) -> Iterator[Finding]:
    """A call that takes longer than the actions that the robot executes during it (lerobot #4580)."""
    timing, measured = wiring.timing, wiring.timing.call
    rate = timing.loop_fps or (measured.fps if measured is not None else None) or timing.data_fps
    if measured is None or rate is None or measured.ms <= 0:
        return
    ticks = measured.ms * rate / 1e3
    if (wiring.engine or measured.engine) == "rtc":
        yield from _late_rtc_chunk(wiring, timing.chunk, measured, ticks, rate)
    else:
        yield from _sync_engine_findings(wiring, timing, measured, ticks, rate)


def _sync_engine_findings(
    wiring: Wiring, timing: Timing, measured: CallTime, ticks: float, rate: float
) -> Iterator[Finding]:
    executed = timing.executed
    if not executed or ticks <= executed:
        return
    most = min((length for length in (timing.most_executed, timing.chunk) if length), default=executed)
    ways = []
    if wiring.guidable and timing.chunk and 2 * math.ceil(ticks) <= timing.chunk:
        ways.append("give --inference.type=rtc: it predicts while the arm moves")
    if executed < most:
        longer = min(most, math.ceil(ticks))
        short = "" if longer >= ticks else ", which shortens the halts but does not end them"
        ways.append(f"give --policy.n_action_steps={longer}, of a chunk of {timing.chunk or most}{short}")
    halt = math.ceil(ticks - 1)
    yield Finding(
        rule="call-longer-than-chunk",
        level=_level(wiring, measured),
        title=f"The arm stands still for {halt} of {halt + executed} control ticks, during each call",
        found=f"A call takes {_call_length(measured, ticks, rate)}; n_action_steps is {executed}.",
        why=f"The sync engine calls the policy inside the control loop: per chunk the arm stands still for {halt} "
        f"ticks and moves for {executed}.",
        do=_either([*ways, *_faster(wiring, executed, measured)]),
    )


def _late_rtc_chunk(
    wiring: Wiring, chunk: int | None, measured: CallTime, ticks: float, rate: float
) -> Iterator[Finding]:
    """Real-Time Chunking: a chunk must last for its own call and for the next one."""
    delay = math.ceil(ticks)
    if chunk is None or 2 * delay <= chunk:
        return
    how = "every chunk is over before it arrives"
    why = "LeRobot drops the actions that were due during the call. The robot never moves, and LeRobot logs nothing."
    if delay < chunk:
        how = "chunks are too short for the calls"
        why = f"A chunk arrives with {chunk - delay} actions that are still due, and the next chunk takes {delay} "
        why += f"control ticks: the robot has no action for {2 * delay - chunk} ticks per chunk."
    yield Finding(
        rule="call-longer-than-chunk",
        level=_level(wiring, measured),
        title=f"Real-Time Chunking cannot keep up: {how}",
        found=f"A call takes {_call_length(measured, ticks, rate)}; a chunk has {chunk} actions.",
        why=why,
        do=_either(_faster(wiring, chunk // 2, measured)),
    )


def _level(wiring: Wiring, measured: CallTime) -> Literal["warning", "info"]:
    return "warning" if measured.run or wiring.engine is not None else "info"


def _either(ways: list[str]) -> str:
    return f"{ways[0][:1].upper()}{ways[0][1:]}. Or: {'; '.join(ways[1:])}." if len(ways) > 1 else f"{ways[0]}."


def _faster(wiring: Wiring, covered: int, measured: CallTime) -> list[str]:
    timing = wiring.timing
    ways = [f"make the call faster: strobe optimize --policy.path={wiring.sources['policy']}"]
    if timing.steps is not None and timing.steps > 1:
        ways.append(f"give fewer denoising steps: --policy.{timing.steps_field}, now {timing.steps}")
    fps = 1e3 * covered / measured.ms
    if fps >= 1:
        slower = ", and record data at that rate" if timing.data_fps and fps < timing.data_fps else ""
        ways.append(f"give --fps={math.floor(fps)}, where one call fits into {covered} control ticks{slower}")
    return ways


def _call_length(measured: CallTime, ticks: float, rate: float) -> str:
    took = f"{measured.ms / 1e3:.2g} s" if measured.ms >= 1e3 else f"{measured.ms:.3g} ms"
    where = f"in {measured.run}" if measured.run else "on recorded frames on this machine"
    return f"{took} = {ticks:.1f} control ticks at {rate:g} Hz, {where}"


def joints_outside_training(wiring: Wiring) -> Iterator[Finding]:
    """Joints of a run that were outside of the range of the training data (wall-x #113, openpi #814)."""
    joints = wiring.fed or []
    starts = sorted((each for each in joints if each.beyond > BEYOND), key=lambda each: -each.beyond)
    leaves = sorted((each for each in joints if each.outside > OFTEN_OUTSIDE), key=lambda each: -each.outside)
    for when, title, found in (
        ("starts", "The arm starts outside of the training data", starts),
        ("runs", "The arm leaves the training data", [each for each in leaves if each not in starts]),
    ):
        if found:
            first = found[0]
            size = f"{first.normalised:+.2g} σ" if when == "starts" else f"{100 * first.outside:.0f} % of the ticks"
            more = f"; and {len(found) - SHOWN} more joints" if len(found) > SHOWN else ""
            yield warning(
                rule=f"{when}-outside-training",
                title=f"{title}: {first.joint}, {size}",
                found=f"{_describe_joints(found)}{more}.",
                why="The policy has never seen such a state. Its actions there are a guess.",
                do=f"Start the arm with {first.joint} between {first.low:.4g} and {first.high:.4g}. If the arm stands "
                "as in the recording, its zero has moved: calibrate it as it was then.",
            )


def _describe_joints(joints: Sequence[FedJoint]) -> str:
    return "; ".join(
        f"{each.joint} was {each.first:.4g} in the first observation ({each.normalised:+.2g} normalised), and outside "
        f"of {each.low:.4g} to {each.high:.4g} in {100 * each.outside:.0f} % of the control ticks"
        for each in joints[:SHOWN]
    )


CHECKS = (call, joints_outside_training)
