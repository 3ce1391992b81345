"""Where ranks meet: all that came are there, nobody is waited for for ever, and nothing stays behind."""

from __future__ import annotations

import threading

import pytest
from support.checks.presence import require_value

from strobe.train.results import Rank
from strobe.train.run import Meeting


def make_rank(rank, own=10.0):
    return Rank(rank=rank, steps=5, step_ms=20.0, own_ms=own, communication_ms=1.0)


def test_the_first_gathers_all_and_the_folder_is_gone(tmp_path):
    folder = tmp_path / "meeting"
    others = [threading.Timer(0.2, Meeting(folder, rank, 3).hand_over, [make_rank(rank)]) for rank in (2, 1)]
    for other in others:
        other.start()
    met = require_value(Meeting(folder, 0, 3).hand_over(make_rank(0)))
    assert [rank.rank for rank in met] == [0, 1, 2]
    assert Meeting(folder, 0, 3).missing(met) == []
    assert not folder.exists()


def test_one_that_does_not_come_is_told(tmp_path):
    meeting = Meeting(tmp_path / "meeting", 0, 2, patience_s=0.3)
    met = require_value(meeting.hand_over(make_rank(0)))
    assert [rank.rank for rank in met] == [0]
    assert meeting.missing(met) == ["nothing came from rank 1: it ended early or sees other files"]


def test_what_an_earlier_launch_left_is_not_taken(tmp_path, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    Meeting.from_environment(tmp_path).hand_over(make_rank(1, own=99.0))
    assert Meeting.from_environment(tmp_path).rank == 1  # the same rank of the next launch
    monkeypatch.setenv("RANK", "0")
    first = Meeting.from_environment(tmp_path)
    first.patience_s = 0.3
    assert [rank.rank for rank in first.hand_over(make_rank(0))] == [0]


@pytest.mark.parametrize("size", [None, "1"])
def test_a_process_that_trains_alone_meets_nobody(tmp_path, monkeypatch, size):
    if size is None:
        monkeypatch.delenv("WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("WORLD_SIZE", size)
    assert Meeting.from_environment(tmp_path) is None
