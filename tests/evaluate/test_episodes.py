"""What paired episodes show, what they do not exclude, and what a guard makes of both."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.core.measure.guard import Guard, Guards
from strobe.core.results.agreement import Agreement
from strobe.evaluate.measure.episodes import judge
from strobe.evaluate.measure.planning import fewest_pairs, fewest_pairs_apart
from strobe.evaluate.page_episodes import answers, sections
from strobe.evaluate.pairs import EpisodePair
from strobe.ladder.episodes import rejection_reason
from strobe.simulators.results import Episode

SAME = Agreement(cosine=1.0, largest_error=0.0, mean_error=0.0, observations=4)
rewards = st.floats(-1e6, 1e6)
episodes = st.builds(Episode, success=st.booleans(), reward=rewards, best_reward=rewards, ticks=st.integers(1, 400))


def pair(before: bool, after: bool, *, reward: float = 0.0, same: int = 0) -> EpisodePair:
    sides = [
        Episode(success=success, reward=got, best_reward=1.0, ticks=10)
        for success, got in ((before, 0.0), (after, reward))
    ]
    return EpisodePair(task="t", seed=0, baseline=sides[0], candidate=sides[1], same_ticks=same, largest_error=0.5)


def judge_pairs(*pairs: EpisodePair):
    return judge(pairs, baseline="baseline", candidate="step 1", environment="pusht")


@given(
    st.lists(
        st.builds(
            EpisodePair,
            task=st.just("t"),
            seed=st.integers(0, 9),
            baseline=episodes,
            candidate=episodes,
            same_ticks=st.just(0),
            largest_error=st.floats(0, 10),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_verdict_is_finite_holds_its_estimate_and_turns_with_its_sides(pairs):
    one = judge_pairs(*pairs)
    assert -1 <= one.success_interval.low <= one.success_interval.high <= 1
    if one.reward_interval is not None:
        assert one.reward_interval.low <= one.reward <= one.reward_interval.high
    assert all(map(math.isfinite, (one.reward, one.possible_drop, one.success)))
    assert one.success_interval.low <= one.success <= one.success_interval.high
    assert one.success == pytest.approx(one.candidate_success - one.baseline_success)
    assert 0 <= one.possible_drop <= 1
    assert (one.reward_interval is None) == (len(pairs) < 6)
    if len(pairs) < 6:
        assert one.kind in ("too few", "not worse by more than the margin")
    turned = judge_pairs(*(p.model_copy(update={"baseline": p.candidate, "candidate": p.baseline}) for p in pairs))
    opposite = {"worse": "better", "better": "worse"}
    # Only a loss has a margin: its mirror image is undecided yet.
    if "not worse by more than the margin" not in (one.kind, turned.kind):
        assert turned.kind == opposite.get(one.kind, one.kind)
    assert turned.success == pytest.approx(-one.success)


def test_lost_episodes_are_told_as_worse_and_won_ones_as_better():
    lost = judge_pairs(*[pair(True, False)] * 8, *[pair(True, True)] * 12)
    assert (lost.kind, lost.by) == ("worse", "success")
    assert lost.success == pytest.approx(-0.4)
    assert "step 1 does worse than baseline in 20 paired episodes of pusht: success 60 % vs 100 %" in lost.sentence
    assert judge_pairs(*[pair(False, True)] * 8, *[pair(True, True)] * 12).kind == "better"
    assert judge_pairs(*[pair(True, False)] * 2, *[pair(True, True)] * 18).kind == "no difference shown"


def test_without_a_success_the_reward_decides():
    one = judge_pairs(*[pair(False, False, reward=-1.0 - 0.1 * index) for index in range(8)])
    assert (one.kind, one.by) == ("worse", "reward")
    assert one.reward == pytest.approx(-1.35)
    assert "neither ever succeeded" in one.sentence


@pytest.mark.parametrize(("rewards", "loss"), [([5.0] * 20, 1e-9), ([float(i) for i in range(20)], 0.1), ([0.0], 0)])
def test_a_reward_lower_by_what_does_not_matter_is_not_called_worse(rewards, loss):
    def lower(by: float):
        sides = [[Episode(success=False, reward=got - of, best_reward=0, ticks=9) for of in (0, by)] for got in rewards]
        return judge_pairs(*[EpisodePair(task="t", seed=0, baseline=a, candidate=b, same_ticks=0, largest_error=0.1)
                        for a, b in sides * (20 // len(rewards))])  # fmt: skip

    assert lower(loss).kind == "no difference shown"
    assert lower(3.0).kind == "worse"


def test_pairs_of_an_incomplete_round_of_tasks_do_not_count():
    alike, lost = [pair(True, True)] * 700, [pair(True, False)] * 99
    one = judge([*alike, *lost], baseline="a", candidate="b", environment="libero", every=100)
    assert (len(one.pairs), one.success, one.candidate_success) == (799, 0.0, 1.0)
    assert one.success_interval.low <= one.success <= one.success_interval.high
    assert "in 700 paired episodes" in one.sentence


def test_actions_that_are_the_same_to_the_bit_leave_nothing_to_judge():
    one = judge_pairs(*[pair(True, True, same=10)] * 3)
    assert one.kind == "the same"
    assert one.possible_drop > 0.1, "three starts say nothing of the others"
    assert judge_pairs(pair(True, True, same=10), pair(True, True, same=9)).kind == "too few"
    with pytest.raises(ValueError, match="no pairs"):
        judge_pairs()


def test_a_verdict_is_that_of_an_evaluation_at_any_number_of_pairs():
    alike = [pair(True, True)] * 60
    one = judge_pairs(*alike)
    assert (one.kind, one.decided, one.margin) == ("not worse by more than the margin", fewest_pairs(0.1), 0.1)
    assert "not worse by more than 10 points in 60 paired episodes of pusht: success 100 %" in one.sentence
    assert "95 % interval, valid at any number of pairs" in one.sentence
    assert judge_pairs(*alike[: fewest_pairs(0.1) - 1]).kind == "no difference shown"
    lost = [pair(True, False)] * fewest_pairs_apart()
    assert judge_pairs(*lost).kind == "worse"
    assert judge_pairs(*lost[1:]).kind == "too few"
    assert judge_pairs(*lost, *alike).kind == "worse"


def test_a_guard_on_success_is_held_against_what_is_not_excluded():
    guard = Guard.parse("cosine>=0.9, success_drop<=0.1")
    guards = Guards(guard)
    assert str(guard) == "cosine>=0.9, success_drop<=0.1"
    assert guard.success_drop == 0.1
    assert guard.judge(SAME).outcome == "not judged", "episodes show a drop, and no agreement does"
    assert guard.action_guard.judge(SAME).outcome == "held"
    few = judge_pairs(*[pair(True, True)] * 10)
    assert rejection_reason(guards, few) == (
        f"10 pairs do not exclude a success drop of 0.39, limit 0.1; that takes {fewest_pairs(0.1)} pairs or more"
    )
    assert rejection_reason(guards, judge_pairs(*[pair(True, True)] * 47)) != ""
    assert rejection_reason(guards, judge_pairs(*[pair(True, True)] * 48)) is None
    assert rejection_reason(guards, judge_pairs(*[pair(True, True, same=10)] * 3)) != "", (
        "what was not looked at is not held"
    )
    assert rejection_reason(Guards.parse("cosine>=0.9"), few) is None


def test_what_is_shown_to_be_worse_is_refused_by_every_guard():
    worse = judge_pairs(*[pair(True, False)] * 9)
    assert rejection_reason(Guards.parse("cosine>=-1"), worse) == "it does worse in pusht"


def test_the_time_to_task_is_judged_in_the_same_pairs_with_success_first():
    def pairs(seconds: float) -> list[EpisodePair]:
        done = Episode(success=True, reward=1.0, best_reward=1.0, ticks=10, seconds=4.2, limit_s=20.0)
        sides = {"baseline": done, "candidate": done.model_copy(update={"seconds": seconds})}
        return [EpisodePair(task="t", seed=0, same_ticks=0, largest_error=1.0, **sides)] * 12

    judged = judge(pairs(3.0), baseline="baseline", candidate="fast", environment="here")
    assert judged.time is not None
    assert (judged.time.kind, judged.time.ratio) == ("sooner", pytest.approx(1.4))
    (said,) = answers([judged])
    assert said.endswith("Time to task: success is undecided; fast finishes 1.4 × sooner [1.4, 1.4].")
    older = {"baseline": pairs(3.0)[0].baseline.model_copy(update={"limit_s": None})}
    old = [pair.model_copy(update=older) for pair in pairs(3.0)]
    judged = judge(old, baseline="baseline", candidate="fast", environment="here")
    assert judged.time is None
    assert "did not save their limit" in (judged.time_not_judged or "")
    why = judged.time_not_judged or "nothing"
    assert any(why in text for section in sections([judged]) for text in section.text)
