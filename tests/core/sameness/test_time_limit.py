"""Looks at actions end within their time, by a clock of the test's own; what they saw by then is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.fakes.progress_log import ProgressSeen
from support.fakes.sleeper import Clock
from torch import Tensor

from strobe.core.measure.guard import Guards, Judgement
from strobe.core.measure.sampling import PATIENCE
from strobe.core.measure.time_limit import LookInterrupted, TimeLimit, TimeUpError
from strobe.core.results.agreement import Agreement
from strobe.core.results.recipe import Recipe
from strobe.core.sameness.check import Sameness
from strobe.core.sameness.reordered import ReorderedSums
from strobe.core.sameness.visits import FEWEST, plan, required_visits
from strobe.core.studies.shared.action_check import action_time_limit, check_actions
from strobe.core.treatments.recipe import recipe_guards
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.verify import verify

CHUNK_S = 1.0
ROUNDING = Guards().strictest_guard(["rounding"])


@cache
def tiny() -> PolicySubject:
    return load_tiny_subject("act")


class Slow:
    """Makes each chunk of a check take its seconds by a clock; ``stop_at``: the call that Ctrl-C comes in."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.calls = clock, 0
        self.seconds: Callable[[int], float] = lambda _: CHUNK_S
        self.stop_at: int | None = None
        act = Sameness._act

        def call(same: Sameness, observation: dict[str, Any], seed: int) -> Tensor:
            self.calls += 1
            if self.calls == self.stop_at:
                raise KeyboardInterrupt
            clock.sleep(self.seconds(self.calls))
            return act(same, observation, seed)

        monkeypatch.setattr(Sameness, "_act", call)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    clock = Clock().wind(monkeypatch)
    return Slow(clock, monkeypatch)


def test_a_limit_is_shared_out_and_what_is_needed_has_more_time(slow: Slow) -> None:
    limit = TimeLimit(10.0)
    limit.begin(1 / 2)
    slow.clock.sleep(4.0)
    assert not limit.is_work_over
    slow.clock.sleep(2.0)
    assert limit.is_work_over
    limit.begin(1)
    assert not limit.is_work_over, "the next work has what is left"
    slow.clock.sleep(5.0)
    assert limit.is_work_over
    assert not limit.is_spent
    slow.clock.sleep(10.0 * PATIENCE)
    assert limit.is_spent
    assert not TimeLimit().is_work_over, "without seconds it never ends"


def test_a_judgement_needs_few_observations_and_each_kind_of_call() -> None:
    visits = plan(16, rtc=True, passes=2)
    chosen = [visits[place] for place in sorted(required_visits(visits))]
    assert {visit.observation for visit in chosen if not visit.reset} == set(range(FEWEST))
    assert sum(visit.rtc for visit in chosen) == 1
    assert sum(visit.isolated for visit in chosen) == 1
    assert sum(visit.reset for visit in chosen) == 1
    assert any("again" in visit.words for visit in chosen)
    assert any("after a call with it" in visit.words for visit in chosen)
    assert len(chosen) <= FEWEST + 5


def test_looks_end_within_their_time_and_say_how_many_calls_they_made(slow: Slow) -> None:
    """Planned for chunks of 0.2 s, which then take 1 s: 16 observations, some 100 calls, do not fit."""
    began = slow.clock.now
    limit = action_time_limit(20.0, 0.2)
    check = check_actions(tiny(), [Variant("baseline"), Variant("same")], 0.2, 30.0, ProgressSeen(), limit)
    assert slow.clock.now - began < 20.0 + 10 * CHUNK_S
    agreement = check.agreements["same"]
    assert FEWEST <= (agreement.distinct or 0) < 16
    assert "calls were made in time" in agreement.how
    assert not agreement.short
    assert ROUNDING.judge(agreement, check.exact_yardstick).outcome == "held"
    assert check.exact_yardstick is not None


def test_figures_of_too_few_calls_break_no_limit() -> None:
    few = Agreement(cosine=1, largest_error=9, mean_error=9, observations=1, rms=9, worst=9, flips=0)
    assert ROUNDING.judge(few).outcome == "broken"
    few.short, few.unjudged = True, "1 of 9 calls were made in time"
    assert ROUNDING.judge(few) == Judgement("not judged", few.unjudged)
    few.not_finite = 3
    assert ROUNDING.judge(few).outcome == "broken", "a number that is none is one, however many calls come after it"


def test_a_variant_that_there_was_no_time_for_says_so(slow: Slow) -> None:
    slow.seconds = lambda _: 200.0
    check = check_actions(
        tiny(), [Variant("baseline"), Variant("same")], 0.1, 1.0, ProgressSeen(), action_time_limit(30.0, 0.1)
    )
    assert not check.agreements
    assert "the time was over" in check.unseen["same"]
    assert slow.calls == 1, "nothing is begun once the time is spent"


def test_a_call_that_takes_too_long_is_given_up_where_its_operators_are_seen(slow: Slow) -> None:
    limit = TimeLimit(1.0)
    with pytest.raises(TimeUpError), ReorderedSums(0, limit):  # noqa: PT012  # the time passes inside
        torch.ones(3, 3) @ torch.ones(3, 3)
        slow.clock.sleep(4.0)
        torch.ones(3, 3) @ torch.ones(3, 3)


def test_ctrl_c_in_a_yardstick_keeps_the_observations_that_it_had(slow: Slow) -> None:
    same = Sameness(tiny(), count=4)
    same.prepare(plan(4, rtc=False))
    slow.stop_at = slow.calls + 3
    with pytest.raises(LookInterrupted) as stopped:
        same.yardstick("reordered sums", 4)
    assert stopped.value.found.observations == 2


def test_ctrl_c_in_a_check_keeps_its_calls_and_they_are_not_judged(slow: Slow) -> None:
    variants = [Variant("baseline"), Variant("one"), Variant("two")]
    kept = ProgressSeen()
    whole = check_actions(tiny(), variants, 0.1, 3.0, kept)
    assert not whole.interrupted
    begun = slow.calls
    slow.calls, slow.stop_at = 0, begun - 2
    check = check_actions(tiny(), variants, 0.1, 3.0, ProgressSeen())
    assert check.interrupted
    assert ROUNDING.judge(check.agreements["one"], check.exact_yardstick).outcome == "held"
    assert check.agreements["two"].short
    judged = ROUNDING.judge(check.agreements["two"], check.exact_yardstick)
    assert judged.outcome == "not judged"
    assert "stopped after" in (judged.words or "")
    assert [one.name for one in check.yardsticks] == [one.name for one in whole.yardsticks]
    slow.calls, slow.stop_at = 0, begun // 3
    early = check_actions(tiny(), variants, 0.1, 3.0, ProgressSeen())
    assert early.interrupted
    assert set(early.unseen) == {"one", "two"}
    assert "stopped before" in early.unseen["one"]


def test_every_look_tells_how_far_it_is_and_the_time_left(slow: Slow) -> None:
    kept = ProgressSeen()
    check_actions(tiny(), [Variant("baseline"), Variant("same")], 0.1, 3.0, kept)
    assert len(kept.stages) == 5
    for what, told in kept.stages.items():
        assert told, what
        assert all(one.expected is not None and one.seconds_left is not None for one in told)
        assert told[-1].seconds_left == 0 or "noise draw" in what


def test_verify_ends_within_its_seconds_and_a_machine_that_became_slow_is_said(slow: Slow) -> None:
    recipe = Recipe(policy="act", size="tiny", treatments=[{"precision": "bf16"}])
    slow.seconds = lambda calls: 0.1 if calls <= 2 else 1.0
    began = slow.clock.now
    result = verify(tiny(), recipe, "fast.yaml", recipe_guards(recipe), count=16, passes=2, seconds=20.0)
    assert slow.clock.now - began < 20.0 + 12 * CHUNK_S
    (check,) = result.checks
    assert check.outcome == "held"
    assert "calls were made in time" in check.agreement.how
    assert check.agreement.distinct >= FEWEST


def test_verify_without_time_for_its_check_is_not_judged(slow: Slow) -> None:
    recipe = Recipe(policy="act", size="tiny", treatments=[{"precision": "bf16"}])
    slow.seconds = lambda calls: 0.1 if calls <= 18 else 50.0
    result = verify(tiny(), recipe, "fast.yaml", recipe_guards(recipe), count=4, passes=1, seconds=1.0)
    assert result.outcome == "not judged"
    assert not result.has_passed


def test_ctrl_c_in_a_check_of_verify_keeps_its_calls(slow: Slow) -> None:
    recipe = Recipe(policy="act", size="tiny", treatments=[{"precision": "bf16"}])
    verify(tiny(), recipe, "fast.yaml", recipe_guards(recipe), count=4, passes=1)
    slow.calls, slow.stop_at = 0, slow.calls - 2
    result = verify(tiny(), recipe, "fast.yaml", recipe_guards(recipe), count=4, passes=1)
    assert result.status == "interrupted"
    (check,) = result.checks
    assert check.agreement.short
    assert check.outcome == "not judged"
