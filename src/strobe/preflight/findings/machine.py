"""Rules on the machine: does it have the requested device, and does a call end before its chunk does?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from strobe.core.findings.texts import Found, finding
from strobe.core.results.finding import Finding
from strobe.preflight.results.wiring import CallTime, FedJoint, Timing, Wiring

BEYOND = 1.0  # normalised: least distance of a first position from the training's range
OFTEN_OUTSIDE = 0.2  # share of the ticks in which a joint is outside of the training's range
SHOWN = 4  # joints


@finding("device-absent", "info")
def device(wiring: Wiring) -> Found:
    """This machine has no {wiring.device}.

    Found: {here.asked_by} requests {wiring.device}; {here.why}.
    Why: LeRobot mentions that only in its log, and uses {instead}. Calls take as long as they take there.
    Do: Run it on a machine with {wiring.device}, or set {flag}={other} and measure a call: strobe breakdown
        --policy.path={policy}
    """
    here = wiring.device_here
    if here is not None and here.there is False:
        instead, other = here.instead or "another accelerator if there is one, else the CPU", here.instead or "cpu"
        flag = "--device" if here.asked_by == "--device" else "--policy.device"
        policy = wiring.sources["policy"]
        yield {"asked": wiring.device, "by": here.asked_by}, locals()


def call(wiring: Wiring) -> Iterator[Finding]:
    """A call that takes longer than the actions that the robot executes during it (lerobot #4580)."""
    timing, rate = wiring.timing, action_rate(wiring)
    measured = timing.call
    if measured is None or rate is None or measured.ms <= 0:
        return
    ticks = measured.ms * rate / 1e3
    if (wiring.engine or measured.engine) == "rtc":
        yield from _late_rtc_chunk(wiring, timing.chunk, measured, ticks, rate)
    else:
        yield from _sync_engine_findings(wiring, timing, measured, ticks, rate)


def action_rate(wiring: Wiring) -> float | None:
    """Return the rate in Hz at which actions are executed: of the loop, of the run, or of the data."""
    measured = wiring.timing.call
    return wiring.timing.loop_fps or (measured.fps if measured is not None else None) or wiring.timing.data_fps


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
    yield from _stalled_loop(
        wiring, measured, executed, ticks, rate, _either([*ways, *_faster(wiring, executed, measured)])
    )


@finding("call-longer-than-chunk", "{level}")
def _stalled_loop(wiring: Wiring, measured: CallTime, executed: int, ticks: float, rate: float, do: str) -> Found:
    """The arm stands still for {halt} of {period} control ticks, during each call.

    Found: A call takes {took} = {ticks:.1f} control ticks at {rate:g} Hz, {where}; n_action_steps is {executed}.
    Why: The sync engine calls the policy inside the control loop: per chunk the arm stands still for {halt} ticks and
        moves for {executed}.
    Do: {do}
    """
    level, took, where, halt = (
        _level(wiring, measured),
        _long(measured.ms),
        _measurement_place(measured),
        math.ceil(ticks - 1),
    )
    period = halt + executed
    yield {"ticks": ticks, "executed": executed, "still": ticks - 1, "ms": measured.ms}, locals()


@finding("call-longer-than-chunk", "{level}")
def _late_rtc_chunk(wiring: Wiring, chunk: int | None, measured: CallTime, ticks: float, rate: float) -> Found:
    """Real-Time Chunking: a chunk must last for its own call and for the next one.

    Title: Real-Time Chunking cannot keep up: {how}
    Found: A call takes {took} = {ticks:.1f} control ticks at {rate:g} Hz, {where}; a chunk has {chunk} actions.
    Why: {why}
    Do: {do}
    """
    delay = math.ceil(ticks)
    if chunk is None or 2 * delay <= chunk:
        return
    how = "every chunk is over before it arrives"
    why = "LeRobot drops the actions that were due during the call. The robot never moves, and LeRobot logs nothing."
    if delay < chunk:
        how = "chunks are too short for the calls"
        why = (
            f"A chunk arrives with {chunk - delay} actions that are still due, and the next chunk takes {delay} "
            "control "
        )
        why += f"ticks: the robot has no action for {2 * delay - chunk} ticks per chunk."
    level, took, where = _level(wiring, measured), _long(measured.ms), _measurement_place(measured)
    do = _either(_faster(wiring, chunk // 2, measured))
    yield {"ticks": ticks, "chunk": chunk, "ms": measured.ms}, locals()


def _level(wiring: Wiring, measured: CallTime) -> str:
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


def _measurement_place(measured: CallTime) -> str:
    return f"in {measured.run}" if measured.run else "on recorded frames on this machine"


def _long(ms: float) -> str:
    return f"{ms / 1e3:.2g} s" if ms >= 1e3 else f"{ms:.3g} ms"


@finding("{when}-outside-training", "warning", ids=("starts-outside-training", "runs-outside-training"))
def joints_outside_training(wiring: Wiring) -> Found:
    """Joints of a run that were outside of the range of the training data (wall-x #113, openpi #814).

    Title: {title}: {first.joint}, {size}
    Found: {positions}{more}.
    Why: The policy has never seen such a state. Its actions there are a guess.
    Do: Start the arm with {first.joint} between {first.low:.4g} and {first.high:.4g}. If the arm stands as in the
        recording, its zero has moved: calibrate it as it was then.
    """
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
            yield (
                {"joint": first.joint, "normalised": first.normalised, "outside": first.outside},
                {
                    "when": when,
                    "title": title,
                    "first": first,
                    "size": size,
                    "positions": _describe_joints(found),
                    "more": more,
                },
            )


def _describe_joints(joints: Sequence[FedJoint]) -> str:
    return "; ".join(
        f"{each.joint} was {each.first:.4g} in the first observation ({each.normalised:+.2g} normalised), and outside "
        "of "
        f"{each.low:.4g} to {each.high:.4g} in {100 * each.outside:.0f} % of the control ticks"
        for each in joints[:SHOWN]
    )


CHECKS = (device, call, joints_outside_training)
