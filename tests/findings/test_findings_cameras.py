"""Findings on cameras and on the control thread's policy, from made-up events whose cause is known: each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.made_up_rollout import MS, header, rtc

from strobe.kinds import advise, document
from strobe.loops import device_probes
from strobe.loops.device_probes import FRESH, FROZEN, SAME, UNKNOWN, CameraProbe
from strobe.loops.reader import read_course
from strobe.results.rollout import RolloutResult
from strobe.studies.rollout.answer import answer_of

Seen = Callable[[int], tuple[int, float]]  # by the tick's number: fresh, and age in ms


def answered(seen: Seen, *more: Any) -> RolloutResult:
    events: list[Any] = []
    number = 0
    for event in rtc(lambda _: 90.0):
        if event[0] == "camera":
            fresh, age = seen(number)
            event, number = (*event[:3], fresh, round(age * MS)), number + 1
        events.append(event)
    return answer_of(header(), read_course(header(), [*more[:1], *events, *more[1:]]))


def rules(result: RolloutResult) -> list[str]:
    return [one.rule for one in advise(result)]


def test_the_age_of_frames_is_told_beside_that_of_observations() -> None:
    result = answered(lambda tick: (FRESH, 5 + tick % 20))
    assert rules(result) == []
    age = result.rollout.cameras[0].age
    assert age is not None
    assert (age.median, age.p95) == (pytest.approx(14, abs=1), pytest.approx(23, abs=1))
    told = document(result)
    assert f"Frames were {age.median:.0f} ms old when they were read, 95 % within {age.p95:.0f}." in told.answers
    (section,) = (one for one in told.sections if one.key == "cameras")
    assert section.table is not None
    assert [column.title for column in section.table.columns][-2:] == ["Age (ms)", "Age, 95 % (ms)"]


def test_frames_that_are_old_though_new_ones_come_are_told() -> None:
    result = answered(lambda _: (FRESH, 160.0))
    (finding,) = advise(result)
    assert (finding.rule, finding.evidence["camera"]) == ("old-frames", "front")
    assert "160 ms" in finding.seen


def test_repeated_frames_are_told_with_their_age_and_not_twice() -> None:
    result = answered(lambda tick: (FRESH if tick % 5 == 0 else SAME, 33.0 * (tick % 5) + 30))
    (finding,) = advise(result)
    assert finding.rule == "repeated-frames"
    assert "up to 162 ms old" in finding.seen


def test_new_frames_with_the_same_picture_are_told() -> None:
    result = answered(lambda tick: (FROZEN if 100 < tick <= 112 else FRESH, 10.0))
    (finding,) = advise(result)
    assert finding.rule == "camera-frozen"
    assert finding.evidence["frozen_ms"] == pytest.approx(400, abs=1)
    assert "13 frames" in finding.seen
    assert "From 3.3 s on" in finding.seen
    assert rules(answered(lambda tick: (FROZEN if tick % 4 else FRESH, 10.0))) == [], "a scene may rest for a moment"


class Camera:
    """A camera that gives ``frames``, one after another, each with its time."""

    def __init__(self, frames: list[Any]) -> None:
        self.frames, self.latest_timestamp = frames, 0.0

    def read_latest(self) -> Any:
        self.latest_timestamp += 1.0
        return self.frames.pop(0)


def written(appended: list[Any]) -> list[Any]:
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
    told = [event[3:] for event in written(events) if event[0] == "camera"]
    assert told == [
        (FRESH, 20 * MS), (SAME, 20 * MS), (FROZEN, 20 * MS), (FRESH, 20 * MS), (FRESH, 120 * MS), (FRESH, 20 * MS),
    ]  # fmt: skip
    del camera.latest_timestamp
    read = CameraProbe("front", "camera front", camera, events.append).reading(lambda: first)
    read()
    assert written(events)[-1][4] == UNKNOWN


OTHER, FIFO = ("scheduled", 0, "SCHED_OTHER", 0), ("scheduled", 8_000 * MS, "SCHED_FIFO", 99)


@pytest.mark.parametrize(
    ("began", "ended", "found"), [(OTHER, FIFO, ["real-time-thread"]), (FIFO, FIFO, []), (OTHER, OTHER, [])]
)
def test_a_thread_that_became_real_time_is_told(began: Any, ended: Any, found: list[str]) -> None:
    result = answered(lambda _: (FRESH, 10.0), began, ended)
    assert rules(result) == found
    for finding in advise(result):
        assert "SCHED_OTHER, and was SCHED_FIFO 99 from 8.0 s on" in finding.seen
        assert "vcodec=h264" in finding.do
