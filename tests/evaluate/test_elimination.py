"""The order in which checkpoints are played, and how they are named: without a policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.fakes.made_up_episodes import made_up

from strobe.core.errors import UserError
from strobe.evaluate.eliminate import SuccessiveElimination
from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.evaluate.episodes.play import Plan
from strobe.evaluate.flags import name_checkpoints


def order(names: str, tasks: tuple[str, ...] = ("task",), episodes: int = 100) -> SuccessiveElimination:
    candidates: Any = [SimpleNamespace(name=name) for name in names]
    return SuccessiveElimination(Plan(candidates, tasks, episodes, 0.1))


def play(
    of: SuccessiveElimination, wins: Callable[[str, int], bool], ahead: int = 1
) -> tuple[dict[Key, Any], list[str]]:
    """Play to the end, with ``ahead`` episodes before each look. Return the episodes and the verdicts."""
    episodes: dict[Key, EpisodeLine] = {}
    said: list[str] = []
    while not of.is_finished:
        for _ in range(ahead):
            if (due := of.due(episodes)) is not None:
                candidate, task, seed = due
                rates = {candidate.name: float(wins(candidate.name, seed))}
                episodes[candidate.name, task, seed] = made_up(candidate.name, task, seed, rates)
        for _, verdicts in of.advance(episodes):
            said += verdicts
    return episodes, said


def is_success(name: str, seed: int) -> bool:
    """'c' always does it, 'a' from every other start, 'b' never."""
    return name == "c" or (name == "a" and seed % 2 == 0)


def test_the_worst_goes_first_and_the_run_ends_with_the_last_but_one() -> None:
    of = order("abc")
    episodes, said = play(of, is_success)
    assert of.by == {"a": "c", "b": "c"}
    assert of.starts["b"] < of.starts["a"] < 100
    assert [candidate.name for candidate in of.playing] == ["c"]
    assert of.count_complete_starts("c") == of.starts["a"]
    assert {name: sum(key[0] == name for key in episodes) for name in "abc"} == {
        "a": of.starts["a"], "b": of.starts["b"], "c": of.starts["a"],
    }  # fmt: skip
    assert said[0] == f"b: shown to succeed less than c, after {of.starts['b']} starts"
    assert of.remaining(episodes) == 100 - of.starts["a"], "of the one that remains, which is not played on"


@pytest.mark.parametrize("ahead", [2, 7, 50])
def test_who_plays_ahead_decides_nothing_else(ahead: int) -> None:
    one, many = order("abc"), order("abc")
    play(one, is_success)
    play(many, is_success, ahead)
    assert (one.by, one.starts, one.counted) == (many.by, many.starts, many.counted)


def test_equal_checkpoints_play_all_starts() -> None:
    of = order("ab", episodes=30)
    episodes, said = play(of, lambda _, seed: seed % 3 == 0)
    assert (of.by, said, len(episodes)) == ({}, [], 60)


def test_tasks_that_take_turns_are_judged_at_the_end_of_a_round() -> None:
    of = order("ab", ("easy", "hard"))
    play(of, lambda name, seed: name == "a")
    assert of.starts["b"] % 2 == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a/checkpoints/100", "a/checkpoints/200", "b/checkpoints/200"):
        inside = tmp_path / name / "pretrained_model"
        inside.mkdir(parents=True)
        (inside / "config.json").write_text("{}")
        (inside / "model.safetensors").touch()
    (tmp_path / "a/checkpoints/last").symlink_to("200")
    return tmp_path


def names(folder: Path, *inside: str) -> list[str]:
    return [each.name for each in name_checkpoints([f"{folder}/{name}/pretrained_model" for name in inside]).all]


def test_a_name_is_what_tells_a_path_from_the_others(folder: Path) -> None:
    assert names(folder, "a/checkpoints/100", "a/checkpoints/200") == ["100", "200"]
    assert names(folder, "a/checkpoints/200", "b/checkpoints/200") == ["a", "b"]
    assert names(folder, "a/checkpoints/100", "b/checkpoints/200") == ["a/100", "b/200"]


def test_a_link_to_a_checkpoint_is_not_played_again(folder: Path) -> None:
    assert names(folder, "a/checkpoints/last", "a/checkpoints/100", "a/checkpoints/200") == ["100", "200"]
    paths = [f"{folder}/a/checkpoints/{name}/pretrained_model" for name in ("200", "last", "100")]
    (note,) = name_checkpoints(paths).notes
    assert "last/pretrained_model is the folder" in note
    with pytest.raises(UserError, match="name two checkpoints or more"):
        name_checkpoints(paths[:2])


def test_a_folder_and_a_name_on_the_hub_have_nothing_in_common(folder: Path) -> None:
    path = f"{folder}/a/checkpoints/100/pretrained_model"
    assert [each.name for each in name_checkpoints([path, "someone/act"]).all] == [path, "someone/act"]
