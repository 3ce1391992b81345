"""The file of a rollout says what its probes appended, also where one tuple is several events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from support.examples.made_up_rollout import header

from strobe.loops.event_log import Log, read
from strobe.loops.instrument import _action_rows
from strobe.loops.rollout import _get_rows

HEADER = header()
ACTION = torch.tensor([1.0, 2.5])


def _log_and_read(log: Log, *held: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    for one in held:
        log.append(one)
    log.stop()
    return list(log.read()[1])


def test_one_tuple_becomes_its_events_in_the_file_and_in_memory(tmp_path: Path) -> None:
    command = _action_rows, 6, 8, 7, ["pan", "lift"], [{"pan": 0.5, "lift": 1.5}, {"pan": 9.0, "lift": 1.5}], False
    held = ((_get_rows, 1, 4, 7, ACTION, 9, 2, 1, True), ("tick", 5), command)
    told = [
        ("s", "get action", 1, 4, 7),
        ("get", 1, 4, 1, 9, 2, 1),
        ("values", 4, [1.0, 2.5]),
        ("pick", 4, 1),
        ("tick", 5),
        ("s", "action", 6, 8, 7),
        ("sent", [0.5, 1.5]),
    ]
    written = Log(tmp_path / "run.events")
    written.start(HEADER)
    assert _log_and_read(written, *held) == told
    assert list(read(written.file)[1]) == told
    assert _log_and_read(Log(tmp_path / "never.events"), *held) == told  # it could not be written


def test_a_tick_without_an_action_says_so(tmp_path: Path) -> None:
    assert _log_and_read(Log(tmp_path / "run.events"), (_get_rows, 1, 4, 7, None, 0, 2, -1, True)) == [
        ("s", "get action", 1, 4, 7),
        ("get", 1, 4, 0, 0, 2, -1),
        ("pick", 4, 0),
    ]


def test_a_call_that_cannot_be_told_costs_itself_alone(tmp_path: Path) -> None:
    log = Log(tmp_path / "run.events")
    log.start(HEADER)
    assert _log_and_read(log, ("tick", 1), (_get_rows, "too few"), ("tick", 2)) == [("tick", 1), ("tick", 2)]
    assert not log.failed
