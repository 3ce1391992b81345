"""The order of a tuning: rounds that halve, bets that drop, and held-out pairs that alone claim something."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.evaluate.measure.time_to_task import episode_ends
from strobe.tune.search import HELD_OUT, HOPELESS, HOPELESS_STARTS, Search, SearchPlan

LIMIT = 20.0
Outcome = Callable[[str, int], float]  # setting, seed → seconds to the task; 0: it fails


def line(name: str, task: str, seed: int, seconds: float) -> EpisodeLine:
    return EpisodeLine(
        variant=name, task=task, seed=seed, start="", success=bool(seconds), reward=0.0, ticks=1, call_ms=[1.0],
        policy_ms=1.0, step_ms=1.0, render_ms=None, reset_ms=1.0, seconds=seconds or LIMIT, limit_s=LIMIT,
    )  # fmt: skip


def plan(names: str, tasks: tuple[str, ...] = ("task",), starts: int = 56, pairs: int = 60) -> SearchPlan:
    candidates: Any = [SimpleNamespace(name=name) for name in names]
    return SearchPlan(candidates, tasks, starts, 0.1, held_out=pairs)


def play_search(
    search: Search, outcome: Outcome, episodes: dict[Key, EpisodeLine] | None = None
) -> dict[Key, EpisodeLine]:
    """Play a search to its end, an episode at a time."""
    episodes = {} if episodes is None else episodes
    while not search.is_finished:
        due = search.due(episodes)
        if due is not None:
            candidate, task, seed = due
            episodes[candidate.name, task, seed] = line(candidate.name, task, seed, outcome(candidate.name, seed))
        for _ in search.advance(episodes):
            pass
    return episodes


def better(name: str, seed: int) -> float:
    """'c' always does it; the others from every other start."""
    return 4.0 if name == "c" or seed % 2 else 0.0


def test_the_better_setting_wins_and_is_judged_on_fresh_starts() -> None:
    search = Search(plan("abcd"))
    play_search(search, better)
    assert search.winner == "c"
    default, winner = zip(*search.pairs(), strict=True)
    assert {each.variant for each in default} == {"a"}
    assert {each.variant for each in winner} == {"c"}
    assert all(each.seed >= HELD_OUT for each in default)
    assert [each.seed for each in default] == [each.seed for each in winner]
    in_rounds = {seed for _, _, seed in search.counted if seed < HELD_OUT}
    assert max(in_rounds) < search.plan.episodes


def test_the_rounds_play_a_third_of_an_exhaustive_search_where_all_are_alike() -> None:
    search = Search(plan("abcdefghijkl", starts=112))
    play_search(search, lambda name, seed: 4.0 + (seed % 3))
    assert sum(map(len, search.played_in_rounds().values())) <= 0.35 * 12 * 112


def test_a_setting_that_ranks_behind_is_not_called_worse() -> None:
    search = Search(plan("abcd"))
    play_search(search, lambda name, seed: 4.0 if (seed + "abcd".index(name)) % 9 else 0.0)
    assert set(search.left.values()) == {"rank"}


def test_a_setting_that_always_fails_is_shown_to_be_worse() -> None:
    search = Search(plan("abcd", starts=112))
    play_search(search, lambda name, seed: 0.0 if name == "d" else 4.0)
    assert search.left["d"] in ("success", "rank")
    slow = Search(plan("ab", starts=400))
    play_search(slow, lambda name, seed: 0.0 if name == "b" else 4.0)
    assert slow.left["b"] == "success"


def test_where_the_default_is_the_best_there_are_no_pairs() -> None:
    search = Search(plan("abc"))
    play_search(search, lambda name, seed: 3.0 if name == "a" else 9.0)
    assert search.winner == "a"
    assert search.pairs() == []


def test_a_policy_that_never_succeeds_ends_early() -> None:
    search = Search(plan("abcdefgh", starts=200))
    episodes = play_search(search, lambda name, seed: 0.0)
    assert search.hopeless
    assert not search.winner
    assert HOPELESS <= len(episodes) == 8 * HOPELESS_STARTS
    pair = Search(plan("ab", starts=200))
    assert HOPELESS <= len(play_search(pair, lambda name, seed: 0.0)) < 2 * HOPELESS
    few = Search(plan("ab", starts=8))
    play_search(few, lambda name, seed: 0.0)
    assert few.hopeless, "the rounds ended without a success"


def test_starts_that_are_hard_for_all_settings_do_not_end_a_search() -> None:
    search = Search(plan("abcdefghi", starts=60))
    play_search(search, lambda name, seed: 0.0 if seed < 6 else 4.0)
    assert not search.hopeless, "54 episodes failed, and they are of six starts"


def test_nothing_is_ranked_before_the_first_success() -> None:
    search = Search(plan("abcd", starts=56))
    play_search(search, lambda name, seed: 4.0 if name == "d" and seed >= 8 else 0.0)
    assert search.winner == "d", "the first round, of 8 starts, could have dropped it"


def test_episodes_played_ahead_do_not_count() -> None:
    alone, ahead = Search(plan("abcd")), Search(plan("abcd"))
    episodes = play_search(alone, better)
    everything = {
        (name, "task", seed): line(name, "task", seed, better(name, seed))
        for name in "abcd"
        for seed in [*range(56), *range(HELD_OUT, HELD_OUT + 60)]
    }
    for _ in ahead.advance(everything):
        pass
    assert ahead.winner == alone.winner
    assert ahead.counted == {key: episodes[key] for key in ahead.counted}
    assert len(ahead.counted) == len(alone.counted)


def test_a_search_goes_on_from_the_episodes_of_before() -> None:
    whole = Search(plan("abcd", tasks=("one", "two"), starts=28))
    episodes = play_search(whole, better)
    half = dict(list(episodes.items())[: len(episodes) // 2])
    again = Search(plan("abcd", tasks=("one", "two"), starts=28))
    assert play_search(again, better, half).keys() == episodes.keys()
    assert again.counted.keys() == whole.counted.keys()


def test_the_episodes_that_remain_fall_to_none() -> None:
    search = Search(plan("abcd"))
    before = search.remaining({})
    episodes = play_search(search, better)
    assert before >= len(episodes)
    assert all(each.limit_s == LIMIT for each in episode_ends(episodes.values()))
