"""LeRobot's robot client and policy server in virtual time: which action of which chunk is executed at which tick."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from strobe.core.errors import UserError
from strobe.loops.virtual_rollout import Beat, EngineInputs, RecordedWorld, Setting
from strobe.loops.virtual_time import PlayOptions, play

TICK_NS, CHUNK = 100_000_000, 8


class Numbered:
    """A policy whose chunk n holds 100 n, 100 n + 1, …; it notes the tick of each observation."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(use_amp=False, image_features={})
        self.saw: list[int] = []

    def predict_action_chunk(self, batch: dict[str, Any]) -> torch.Tensor:
        number = len(self.saw)
        self.saw.append(batch["tick"])
        return (100.0 * number + torch.arange(CHUNK, dtype=torch.float32)).view(1, CHUNK, 1).expand(1, CHUNK, 2)

    def reset(self) -> None:
        pass


class Unchanged:
    steps = ()

    def __call__(self, batch: Any) -> Any:
        return batch

    def reset(self) -> None:
        pass


def play_virtual_loop(policy: Any, ticks: int, latency: int, **client: Any) -> list[float | None]:
    """Play ``ticks`` of a loop whose calls last ``latency`` ticks; return what each executed."""
    setting = Setting("async", 10.0, client=client)
    world = RecordedWorld(lambda moment: lambda: {"tick": moment // TICK_NS})
    robot = SimpleNamespace(robot_type="", action_features={})
    inputs = EngineInputs(policy, Unchanged(), Unchanged(), robot, {}, {}, [], "push", "cpu", world)
    options = PlayOptions(until_ns=ticks * TICK_NS)
    played = play(itertools.repeat(Beat(0, 0, 0, 0)), setting, itertools.repeat(latency * TICK_NS), inputs, options)
    actions = iter(played.actions)
    assert [call.length for call in played.calls] == [CHUNK] * len(played.calls)
    return [next(actions).values[0] if tick.sent else None for tick in played.ticks]


WAITED = [None, None, None]  # for the first chunk
FIRST = [0, 1, 2, 3, 4, 5]  # the next observation is sent at half a chunk, and its chunk is there after two ticks


def test_the_latest_chunk_replaces_what_it_overlaps() -> None:
    policy = Numbered()
    assert play_virtual_loop(policy, 13, 2, aggregate_fn_name="latest_only") == [*WAITED, *FIRST, 103, 104, 203, 204]
    # The server is busy for two ticks, and then takes the newest observation.
    assert policy.saw[:3] == [0, 6, 8]


def test_chunks_are_joined_as_lerobot_joins_them() -> None:
    found = play_virtual_loop(Numbered(), 12, 2, aggregate_fn_name="weighted_average")
    assert found[9:11] == pytest.approx([0.3 * 6 + 0.7 * 103, 0.3 * 7 + 0.7 * 104])
    assert play_virtual_loop(Numbered(), 12, 2) == found, "it is LeRobot's own"
    # Two chunks that were joined are joined with a third.
    assert found[11] == pytest.approx(0.3 * 105 + 0.7 * 203)


def test_the_threshold_says_when_the_next_observation_is_sent() -> None:
    early, late = Numbered(), Numbered()
    play_virtual_loop(early, 14, 2, chunk_size_threshold=0.9)
    found = play_virtual_loop(late, 16, 2, chunk_size_threshold=0.0)
    # In tick 3 the first action is executed, whose number the first observation has: the server drops it as predicted.
    assert early.saw[:3] == [0, 4, 6]
    assert late.saw[:2] == [0, 10]
    assert found[3:13] == [0, 1, 2, 3, 4, 5, 6, 7, None, None], "the queue runs empty"


def test_a_policy_that_fails_is_a_line() -> None:
    class Failing(Numbered):
        def predict_action_chunk(self, batch: Any) -> torch.Tensor:
            raise ValueError("no such weights")

    with pytest.raises(UserError, match="the policy failed: ValueError: no such weights"):
        play_virtual_loop(Failing(), 10, 2)


def test_a_value_that_lerobot_refuses_is_a_line() -> None:
    with pytest.raises(UserError, match=r"--inference.type=async: chunk_size_threshold must be between 0 and 1"):
        play_virtual_loop(Numbered(), 10, 2, chunk_size_threshold=7.0)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handlers = list(logging.getLogger().handlers)
    play_virtual_loop(Numbered(), 5, 1)
    assert not list(tmp_path.iterdir()), "LeRobot's own modules make a folder for logs as they are imported"
    assert logging.getLogger().handlers == handlers
