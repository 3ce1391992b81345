"""Findings on cameras, the motors' bus and turns of the CPU, from made-up events whose cause is known: each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.examples.findings_results import approve_findings
from support.examples.made_up_rollout import MS, header, rtc

from strobe.core.kinds import advise, document
from strobe.loops import device_probes
from strobe.loops.device_probes import FRESH, FROZEN, SAME, UNKNOWN, CameraProbe
from strobe.loops.reader import read_record
from strobe.loops.results.arm import Rehearsal, ServoLeft
from strobe.loops.results.rollout import RolloutResult, spread_in_words
from strobe.rollout.answer import make_answer

PERIOD = round(1e9 / 30)
SECOND = 1000 * MS
TICKS = range(200)
Frames = Callable[[int], tuple[int, float]]  # by the tick's number: fresh, and age in ms


def answer_events(events: list[Any], first: Any = (), last: Any = ()) -> RolloutResult:
    """``first`` come after the start of the run, ``last`` before its end."""
    begin, *rest, end = events
    return make_answer(header(), read_record(header(), [begin, *first, *rest, *last, end]))


def make_camera_result(frames: Frames, *scheduled: Any) -> RolloutResult:
    """A camera's frames; how the control thread was ``scheduled`` first and last."""
    number, events = 0, []
    for event in rtc(lambda _: 90.0):
        if event[0] == "camera":
            fresh, age = frames(number)
            event, number = (*event[:3], fresh, round(age * MS)), number + 1
        events.append(event)
    return answer_events(events, scheduled[:1], scheduled[1:])


def read(tick: int, ms: float = 2.0, lost: int = 0, damaged: int = 0, waiting: int = 0, cpu: float = 0.95,
         waited: float = 0.0) -> Any:  # fmt: skip
    start, took = tick * PERIOD, ms * MS
    return ("bus", start, start + round(took), lost, damaged, waiting, round(cpu * took), round(waited * took))


def make_bus_result(*reads: Any, turns: Any = ()) -> RolloutResult:
    """What the bus did; how often the CPU was waited for and used at the first and at the last of two ``turns``."""
    marks = [("turns", at, *each) for at, each in zip((0, 10 * SECOND), turns, strict=False)]
    return answer_events(rtc(lambda _: 90.0), [*marks[:1], *reads], marks[1:])


def make_flaky_bus_result(kind: str) -> RolloutResult:
    return make_bus_result(*[read(tick, 52.0, **{kind: 1}) if tick % 50 == 0 else read(tick) for tick in TICKS])  # type: ignore[arg-type]


def make_motorless_result() -> RolloutResult:
    made = make_bus_result(*map(read, range(60)), read(60, 152.0, lost=3))
    made.status = "failed"
    error = "ConnectionError: Failed to sync read 'Present_Position' on ids=[1]. There is no status packet!"
    made.rollout.error = error
    return made


def make_torque_result() -> RolloutResult:
    made = make_bus_result(*map(read, range(60)))
    left = [ServoLeft(joint=name, id=id, torque=id > 1, lock=True, goal=2047, present=2047, celsius=30)
            for id, name in enumerate(("pan", "lift", "elbow"), start=1)]  # fmt: skip
    made.rollout.rehearsal = Rehearsal(frames="", calibration="", latency_ms=1.0, arms={"robot": left})
    return made


def late_ticks(bus: bool) -> RolloutResult:
    """Five observations that take 52 ms; ``bus``: since the bus waited for lost answers."""
    late = [7, 31, 55, 79, 103]
    events = rtc(lambda _: 90.0, extra=lambda tick: [("observation", 52.0)] if tick in late else [])
    starts = [event[1] for event in events if event[0] == "tick"] if bus else []
    reads = [
        ("bus", start, start + round((51 if tick in late else 2) * MS), int(tick in late), 0, 0, 2 * MS, 0)
        for tick, start in enumerate(starts)
    ]
    return answer_events(events, reads)


def test_what_is_found() -> None:
    other, fifo = ("scheduled", 0, "SCHED_OTHER", 0), ("scheduled", 8 * SECOND, "SCHED_FIFO", 99)
    stale = [read(tick, waiting=48 if tick > 90 else 0, lost=int(tick == 90)) for tick in TICKS]
    slow = [read(tick, 12.0, cpu=0.2, waited=0.7) for tick in TICKS]
    at_once = [read(tick) for tick in TICKS]
    approve_findings("robot", {
        ".*": {
            "frames of 5 to 24 ms": ("", make_camera_result(lambda tick: (FRESH, 5 + tick % 20))),
            "new frames that are old": ("old-frames", make_camera_result(lambda _: (FRESH, 160.0))),
            "repeated frames": ("repeated-frames", make_camera_result(
                lambda tick: (SAME if tick % 5 else FRESH, 33.0 * (tick % 5) + 30))),
            "12 pictures that repeat": (
                "camera-frozen", make_camera_result(lambda tick: (FROZEN if 100 < tick <= 112 else FRESH, 10.0))),
            "a scene that rests for a moment": ("",
                                                make_camera_result(lambda tick: (FROZEN if tick % 4 else FRESH, 10.0))),
            "a thread that became real-time": ("real-time-thread",
                                               make_camera_result(lambda _: (FRESH, 10.0), other, fifo)),
            "a thread that was real-time": ("", make_camera_result(lambda _: (FRESH, 10.0), fifo, fifo)),
            "a thread that is not real-time": ("", make_camera_result(lambda _: (FRESH, 10.0), other, other)),
            "a bus that answers at once": ("", make_bus_result(*at_once)),
            "answers to an earlier question": ("stale-observations", make_bus_result(*stale)),  # before all else
            "bytes left over once": ("",
                                     make_bus_result(*[read(tick, waiting=12 if tick == 50 else 0) for tick in TICKS])),
            "lost answers": ("lost-answers", make_flaky_bus_result("lost")),
            "damaged answers": ("damaged-answers", make_flaky_bus_result("damaged")),
            "slow reads on the bus": ("slow-bus", make_bus_result(*[read(tick, 12.0) for tick in TICKS])),
            "slow reads off the CPU": ("threads-fight",
                                       make_bus_result(*[read(tick, 12.0, cpu=0.2) for tick in TICKS])),
            "other processes have the CPUs": ("busy-machine", make_bus_result(
                *slow, turns=((0, 0, 0), (2 * SECOND, 3 * SECOND, 19 * SECOND)))),
            "this process has the CPUs": ("busy-process", make_bus_result(
                *slow, turns=((0, 0, 0), (2 * SECOND, 16 * SECOND, 18 * SECOND)))),
            "a calm machine": ("", make_bus_result(*at_once, turns=((0, 0, 0), (SECOND // 10, SECOND, 2 * SECOND)))),
            "motors that end the run": ("motors-gone", make_motorless_result()),
            "torque that was left on": ("torque-left-on", make_torque_result()),
            "ticks that lost answers made late": ("lost-answers", late_ticks(bus=True)),
        },
        "slow-loop": {"late ticks": ("slow-loop", late_ticks(bus=False))},
    })  # fmt: skip


def test_no_policy_is_blamed_for_what_the_process_does() -> None:
    slow = [read(tick, 12.0, cpu=0.2, waited=0.7) for tick in TICKS]
    result = make_bus_result(*slow, turns=((0, 0, 0), (2 * SECOND, 16 * SECOND, 18 * SECOND)))
    for engine in ("rtc", "none", "remote", "server"):
        result.rollout.engine = engine
        (finding,) = [each for each in advise(result) if each.rule == "busy-process"]
        assert finding.title == "Other threads of this process take the CPU from the control loop"


def test_the_age_of_frames_is_told_beside_that_of_observations() -> None:
    result = make_camera_result(lambda tick: (FRESH, 5 + tick % 20))
    age = result.rollout.cameras[0].age
    assert age is not None
    assert (age.median, age.p95) == (pytest.approx(14, abs=1), pytest.approx(23, abs=1))
    shown = document(result)
    assert f"Frame age when the loop reads it: {spread_in_words(age)}." in shown.answers
    (table,) = (one.table for one in shown.sections if one.key == "cameras")
    assert [column.title for column in table.columns][-2:] == ["Age, median (ms)", "Age, p95 (ms)"]


def test_figures_of_the_bus_and_of_the_cpu() -> None:
    bus = make_bus_result(*map(read, TICKS)).rollout.bus
    assert (bus.lost, bus.damaged, bus.stale, bus.failed_reads) == (0, 0, 0, 0)
    assert (bus.ms.median, bus.on_cpu) == pytest.approx((2.0, 0.95))
    turns = make_bus_result(turns=((0, 0, 0), (2 * SECOND, 3 * SECOND, 19 * SECOND))).rollout.turns
    assert (turns.waited_share, turns.own_cpus, turns.other_cpus) == pytest.approx((0.2, 0.3, 1.6))
    assert make_bus_result(turns=((-1, 0, 0), (-1, 0, 0))).rollout.turns is None  # not Linux


class Camera:
    """A camera that gives ``frames``, one after another, each with its time."""

    def __init__(self, frames: list[Any]) -> None:
        self.frames, self.latest_timestamp = frames, 0.0

    def read_latest(self) -> Any:
        self.latest_timestamp += 1.0
        return self.frames.pop(0)


def logged_events(appended: list[Any]) -> list[Any]:
    """Events that the log's thread makes of what a probe appended."""
    return [event for make, *rest in appended for event in make(*rest)]


def test_a_read_says_whether_frame_and_picture_are_new_and_how_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    first = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    second = first.copy()
    second[1::2] += 1
    stamped = first.view(type("Stamped", (np.ndarray,), {"captured_s": 4.9}))
    camera, events, clock = Camera([first, first, first.copy(), second, stamped, None]), list[Any](), [0]
    monkeypatch.setattr(device_probes, "host_ns", lambda: clock[0])
    read = CameraProbe("front", "camera front", camera, events.append).reading(camera.read_latest)
    for tick in range(1, 7):
        clock[0] = tick * 1_000_000_000 + 20 * MS
        read()
    told = [event[3:] for event in logged_events(events) if event[0] == "camera"]
    assert told == [
        (FRESH, 20 * MS), (SAME, 20 * MS), (FROZEN, 20 * MS), (FRESH, 20 * MS), (FRESH, 120 * MS), (FRESH, 20 * MS),
    ]  # fmt: skip
    del camera.latest_timestamp
    read = CameraProbe("front", "camera front", camera, events.append).reading(lambda: first)
    read()
    assert logged_events(events)[-1][4] == UNKNOWN
