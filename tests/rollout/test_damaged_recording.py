"""A recording that was cut, changed or made up never reads as a shorter, better run, and never ends in a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.examples.made_up_rollout import header, rtc

from strobe.core.errors import UserError
from strobe.loops.event_log import Log
from strobe.loops.reader import read_record
from strobe.loops.recorded_run import load
from strobe.replay.results import Changes
from strobe.replay.run import Options, replay_run
from strobe.rollout.run import recover_rollout

DAMAGED = "The recording is damaged"
FEW = Options(draws=2)


def _later_starving(call: int) -> float:
    """Latencies of a run that keeps up in its first half, and starves in the second."""
    return 90.0 if call < 8 else 2_500.0


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A whole recording of a run that starves."""
    log = Log(tmp_path / "run.events")
    log.start(header())
    for event in rtc(_later_starving, seconds=12):
        log.append(event)
    log.stop()
    assert not log.failed
    return log.file


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _cut_at_a_line(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:40])


def _drop_line(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:-3], *lines[-2:]])


def _drop_end(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-1])


def _another_digit(data: bytes) -> bytes:
    at = data.rindex(b", 0]", 0, data.rindex(b'["pick"') + 40)
    return data[:at] + b", 1]" + data[at + 4 :]


def _another_byte(data: bytes) -> bytes:
    return data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :]


def _more_after_the_end(data: bytes) -> bytes:
    return data + data.splitlines(keepends=True)[1]


@pytest.mark.parametrize(
    "damage", [_cut, _cut_at_a_line, _drop_line, _drop_end, _another_digit, _another_byte, _more_after_the_end]
)
def test_what_is_lost_is_said_first(damage, sound: Path) -> None:
    whole = recover_rollout(sound).result.rollout
    assert whole.queue.starved > 100
    assert DAMAGED not in whole.sentence
    replay = replay_run(load(sound), "run", Changes(), FEW)
    assert DAMAGED not in replay.verdict
    assert replay.tried
    damaged = damage(sound.read_bytes())
    assert damaged != sound.read_bytes()
    sound.write_bytes(damaged)
    assert recover_rollout(sound).result.rollout.sentence.startswith(DAMAGED)
    replay = replay_run(load(sound), "run", Changes(), FEW)
    assert replay.verdict.startswith(DAMAGED)
    assert replay.least_threshold is None
    with pytest.raises(UserError, match="damaged"):
        replay_run(load(sound), "run", Changes(latency=str(sound)), FEW)


def test_a_recording_of_an_older_strobe_has_no_end_and_no_fault(sound: Path) -> None:
    first, *lines = sound.read_text().splitlines()
    older = {name: value for name, value in json.loads(first).items() if name != "ends"}
    sound.write_text("\n".join([json.dumps(older), *lines[:-1]]))
    result = recover_rollout(sound).result
    assert DAMAGED not in result.rollout.sentence
    assert result.rollout.sentence.startswith("The recording may be incomplete, since an older Strobe made it without")


ODD = [
    5, None, "run", [], [[]], {}, ["tick"], ["tick", None], ["tick", "now"], ["tick", 1e400], ["tick", 10**30],
    [["tick"], 1], ["at", 5], ["at", [None]], ["at", ["x"]], ["values", 1, [[1]]], ["pick", 1, []],
    ["camera", 1, [], 1], ["bus", 1], ["upload", 1, 1, 1, 1, 1, 1, [1]], ["trip", 1, 1, 1, 1, [1], 1, 1],
    ["s", 5, 1, 2, 1], ["s", "x", 2, 1, 1, 1], ["cadence", {}], ["role", [], []],
    ["s", "x", 2, 1, 1], ["bus", 5, 4, 0, 0, 0, 0, 0, ""], ["get", 5, 4, 1, 1, 1, 1],
]  # fmt: skip


def test_odd_events_are_counted_and_left_out(sound: Path) -> None:
    figures = recover_rollout(sound).result.rollout
    first, began, *lines = sound.read_text().splitlines()
    sound.write_text("\n".join([first, began, json.dumps(ODD), *lines]))
    told = recover_rollout(sound).result.rollout
    assert told.sentence.startswith(DAMAGED)
    assert told.queue == figures.queue
    rows = list(rtc(_later_starving, seconds=2))
    assert read_record(header(), rows).lost is None
    early = read_record(header(), [*rows[:60], ("tick", -1), *rows[60:]])  # time runs back
    assert early.lost == "1 of its events cannot be read"


def test_a_recording_of_years_or_of_more_bytes_than_it_has_is_refused(sound: Path) -> None:
    first, *_ = sound.read_text().splitlines()
    lines = [first, json.dumps(rtc(lambda _: 90.0, seconds=1)[:-1]), json.dumps([["tick", 10**18]])]
    sound.write_text("\n".join(lines))
    with pytest.raises(UserError, match="clock is wrong"):
        load(sound)
    packed = sound.with_suffix(".jsonl.gz")
    wide = b"[" + b" " * 2_000_000 + b"]\n"
    packed.write_bytes(gzip.compress("\n".join([*lines[:-1], ""]).encode() + wide * 20))
    assert "more bytes" in str(load(packed).record.lost)
    packed.write_bytes(gzip.compress(b"[" * 2**26))
    with pytest.raises(UserError, match="not the log"):
        load(packed)
