"""The events of a rollout on a clock of their own: LeRobot's queue and latency tracker under made-up times.

A loop of 30 Hz asks for actions, an inference thread of given latencies makes chunks and looks up at each tick's start,
or more often. Nothing sleeps, and what a probe would have recorded is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from lerobot.policies.rtc import ActionQueue, LatencyTracker
from lerobot.policies.rtc.configuration_rtc import RTCConfig

from strobe.core.results.subject import SubjectInfo
from strobe.loops.header import Header

MS = 1_000_000
MAIN, OTHER = 1, 2
Event = tuple[Any, ...]


def header(**more: Any) -> Header:
    subject = SubjectInfo(
        name="smolvla", kind="smolvla", source="made up", parameters=10, weight_bytes=40, inputs=""
    )  # fmt: skip
    plain = Header(
        subject=subject, robot="dummy", strategy="base", engine="rtc", fps=30.0, threshold=30, horizon=10, guided=True,
        can_rtc=True, joints=["pan", "lift"], main=MAIN,
    )  # fmt: skip
    return replace(plain, **more)


def motion(tick: int) -> list[float]:
    """Where two joints shall be at a tick: never still, never far from the tick before."""
    return [30 * math.sin(tick / 15), 20 * math.cos(tick / 10)]


def rtc(
    latency_ms: Callable[[int], float],
    *,
    seconds: float = 8.0,
    chunk: int = 50,
    threshold: int = 30,
    offset: Callable[[int], float] = lambda _: 0.0,
    extra: Callable[[int], Sequence[tuple[str, float]]] = lambda _: (),
    fresh: Callable[[int], bool] = lambda _: True,
    looks: int = 1,
) -> list[Event]:
    """Events of a run with Real-Time Chunking.

    Args:
        latency_ms: of each call, by its number.
        offset: added to all actions of a chunk, by its number.
        extra: by the number of a tick, parts of it that take the milliseconds named.
        fresh: whether the camera has another frame, by the number of the tick.
        looks: of the inference thread in each tick; LeRobot's has about three.
    """
    period = 1e9 / 30
    queue, tracker = ActionQueue(RTCConfig(enabled=True)), LatencyTracker()
    events: list[Event] = [("run", 0)]
    observed: list[int] = []  # tick numbers, as the engine is told of them
    call: tuple[int, int, int, int, int | None] | None = None  # end, start, tick seen, index, delay assumed
    now, number, calls, merges = 0, 0, 0, 0

    def look(now: int) -> None:
        nonlocal call, calls, merges
        if call is not None and call[0] <= now:
            end, start, seen, index, assumed = call
            values = torch.tensor([[v + offset(calls - 1) for v in motion(seen + k)] for k in range(chunk)])
            events.append(("call", start, end, assumed, None, chunk))
            delay = math.ceil((end - start) / period)
            tracker.add((end - start) / 1e9)
            before, at = queue.qsize(), queue.last_index
            queue.merge(values, values, delay, index)
            merges += 1
            events.append(("merge", end, delay, before, at - index, chunk, queue.qsize()))
            call = None
        if call is None and observed and queue.qsize() <= threshold:
            longest = tracker.max()
            events.append(("taken", now, 1000 + observed[-1]))
            assumed = math.ceil(longest * 30) if longest else 0
            call = (now + round(latency_ms(calls) * MS), now, observed[-1], queue.get_action_index(), assumed)
            calls += 1

    while now < seconds * 1e9:
        look(now)
        start = now
        events += _observation(start, number, fresh(number))
        observed.append(number)
        more, at = _parts(start + MS, extra(number))
        events += more
        action = queue.get()
        held = queue.queue
        left = (0, merges, -1) if held is None else (len(held) - queue.last_index, merges, queue.last_index - 1)
        events.append(("get", at, at, int(action is not None), *left))
        if action is not None:
            events.append(("values", at, action.tolist()))
        events.append(("pick", at, int(action is not None)))
        if action is not None:
            events.append(("s", "action", at, at + MS, MAIN))
        work = at + MS - start
        end = start + max(work, round(period))
        if work < period:
            events.append(("s", "sleep", start + work, end, MAIN))
        for turn in range(1, looks):
            look(start + round(turn * period / looks))
        now, number = end, number + 1
    events.append(("end", now))
    return events


def _observation(start: int, number: int, fresh: bool) -> list[Event]:
    """The first events of a tick: it looks, and the camera has another frame or not."""
    return [
        ("tick", start),
        ("s", "observation", start, start + MS, MAIN),
        ("camera", start + MS, "front", int(fresh)),
        ("s", "camera front", start, start + MS // 10, MAIN),
        ("seen", start + MS, 1000 + number),
    ]


def _parts(at: int, parts: Sequence[tuple[str, float]]) -> tuple[list[Event], int]:
    """The events of parts of a tick that take the milliseconds named, one after the other, and when they end."""
    events: list[Event] = []
    for name, took in parts:
        events.append(("s", name, at, at + round(took * MS), MAIN))
        if name.startswith("camera "):
            events.append(("camera", at, name.removeprefix("camera "), 1))
        at += round(took * MS)
    return events, at


def sync(
    call_ms: float | Callable[[int], float], *, every: int = 20, ticks: int = 200, part: str = "select action"
) -> list:
    """Events of the sync engine at 30 Hz: every so many ticks the policy is asked for a chunk.

    Args:
        call_ms: of each call, or by its number.
    """
    told = call_ms if callable(call_ms) else lambda _: call_ms
    events: list = [("run", 0)]
    now, period = 0, round(1e9 / 30)
    for number in range(ticks):
        asks = number % every == 0
        start, took = now, round(told(number // every) * MS) if asks else MS
        events += [("tick", start), ("s", "observation", start, start + MS, MAIN)]
        at = start + MS
        events += [("s", part, at, at + took, MAIN), ("s", "get action", at, at + took, MAIN)]
        at += took
        events.append(("get", start + MS, at, 1, every - 1 - number % every, 1 + number // every, 0 if asks else 1))
        events += [("values", at, [number / 10, 0.0]), ("pick", at, 1), ("s", "action", at, at + MS, MAIN)]
        at += MS
        now = max(at, start + period)
        if at < now:
            events.append(("s", "sleep", at, now, MAIN))
    return [*events, ("end", now)]
