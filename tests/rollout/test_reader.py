"""Event files are read: those of today, and those with kinds that none knows."""

from __future__ import annotations

import json

import pytest
from support.examples.made_up_rollout import MAIN, header, rtc

from strobe.loops import events
from strobe.loops.header import Header
from strobe.loops.reader import read_record
from strobe.rollout.answer import make_rollout


def test_a_header_is_the_same_after_json() -> None:
    whole = header(
        arguments=["--fps=30"], rtc={"enabled": True}, observation_features={"front": [4, 4, 3], "pan": None}
    )
    assert Header.from_json(json.loads(json.dumps(whole.to_json()))) == whole


def test_an_event_is_the_record_of_its_kind() -> None:
    assert events.decode(("s", "observation", 1, 2, 7)) == events.SectionEnded(
        name="observation", start=1, end=2, thread=7
    )
    assert events.decode(("of a later Strobe", 1)) is None
    kinds = {type(events.decode(row)) for row in rtc(lambda _: 90.0, seconds=1)}
    assert {events.TickBegan, events.ActionRequested, events.ChunkMerged} <= kinds


def test_a_reset_ends_the_tick_as_it_was() -> None:
    rows = [("run", 0), ("tick", 10), ("pick", 12, 1), ("reset", 15), ("pick", 18, 0), ("tick", 40), ("end", 60)]
    record = read_record(header(), rows)
    assert [(tick.start_ns, tick.sent) for tick in record.ticks] == [(10, True)]
    assert [turn.wanted for turn in record.turns] == [True, False]


def test_a_reset_before_a_turn_wants_an_action_ends_no_tick_and_one_after_it_does() -> None:
    rows = [
        ("run", 0), ("tick", 10), ("pick", 12, 1),
        ("tick", 40), ("reset", 45), ("pick", 50, 1),
        ("tick", 70), ("pick", 71, 1), ("reset", 75), ("sent", [1.0]),
        ("tick", 90), ("pick", 91, 1), ("end", 100),
    ]  # fmt: skip
    ticks = read_record(header(), rows).turns
    assert [(tick.work_ns, tick.follows, tick.engine_reset) for tick in ticks] == [
        (30, False, False),
        (30, False, False),
        (5, True, True),
        (10, False, True),
    ]
    assert ticks[2].commanded is None, "what comes after the reset is not the tick's"


def test_a_camera_counts_the_longest_time_of_one_frame_and_of_one_picture() -> None:
    second = 1_000_000_000
    fresh = [0, 2, 1, 0, 0, 2, 2, 1]  # same, another frame of the same picture, another picture
    rows = [("run", 0)]
    for number, seen in enumerate(fresh):
        at = number * second
        rows += [("tick", at), ("s", "camera front", at, at + 1, MAIN), ("camera", at, "front", seen), ("pick", at, 1)]
    rows += [("tick", len(fresh) * second), ("pick", len(fresh) * second, 1), ("end", 9 * second)]
    (camera,) = make_rollout(header(), read_record(header(), rows)).cameras
    assert (camera.longest_ms, camera.longest_from_s) == (2000, 2), "from its first read to the last of the same frame"
    assert (camera.frozen_ms, camera.frozen_from_s, camera.frozen_frames) == (4000, 2, 3)
    assert camera.fresh_hz == pytest.approx(4 / 8)
