"""An evaluation with a made-up simulator: its order, its early end, what a cut costs, and what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.fakes.made_up_simulator import Lines, MadeUp, make_request, plan, run_evaluation
from support.suite.matrix import matrix

from strobe.core.cli.keep import render_text
from strobe.core.errors import UserError
from strobe.core.findings.thresholds import DEFAULTS
from strobe.core.kinds import advise, document
from strobe.core.runs import store
from strobe.evaluate.episode_log import NAME, EpisodeLog
from strobe.evaluate.episodes.play import FIRST
from strobe.evaluate.results import EvaluateResult


def table(result: EvaluateResult) -> list[dict]:
    return [one.model_dump() for one in result.variants]


def test_all_variants_play_a_seed_before_the_next_and_tasks_take_turns(tmp_path):
    player = MadeUp()
    run_evaluation(tmp_path, plan(2, tasks=("a", "b"), seed=7), player)
    names = (FIRST, "5 steps", "2 steps")
    assert player.played == [(name, task, seed) for seed in (7, 8) for task in ("a", "b") for name in names]


def test_a_decided_variant_is_played_no_further_and_the_run_ends_with_the_last(tmp_path):
    player, lines = MadeUp(), Lines()
    result = run_evaluation(tmp_path, plan(200), player, lines=lines)
    _, five, two = result.variants
    held = five.together.paired.decision
    assert (held.kind, held.pairs) == ("not worse by more than the margin", 48)
    worse = two.together.paired.decision
    assert worse.kind == "worse"
    assert worse.pairs < 48
    count = {name: sum(played == name for played, _, _ in player.played) for name in (FIRST, "5 steps", "2 steps")}
    assert count == {FIRST: 48, "5 steps": 48, "2 steps": worse.pairs}
    assert [one.together.success.episodes for one in result.variants] == list(count.values())
    assert f"2 steps: worse, decided after {worse.pairs} pairs" in lines.lines
    assert "5 steps: not worse by more than 10 points, decided after 48 pairs" in lines.lines
    assert lines.steps[0].expected == 600
    assert lines.steps[-1].done == sum(count.values())


def test_tasks_are_decided_only_when_a_round_is_complete(tmp_path):
    result = run_evaluation(tmp_path, plan(60, tasks=("a", "b", "c")), MadeUp())
    for one in result.variants[1:]:
        assert one.together.paired.decision.pairs % 3 == 0
        assert one.together.paired.pairs == one.together.paired.decision.pairs
        assert [on.success.episodes for on in one.tasks.values()] == [one.together.paired.pairs // 3] * 3


def test_the_policy_alone_plays_all_its_episodes(tmp_path):
    alone = plan(9)
    alone = type(alone)(alone.candidates[:1], alone.tasks, 9, 0.1)
    result = run_evaluation(tmp_path, alone, MadeUp())
    assert [one.together.success.episodes for one in result.variants] == [9]
    assert result.foresight is None
    spoken = document(result).answers
    assert spoken[0].endswith(" succeeds in 9 of 9 episodes.")
    assert spoken[2].startswith("Next: see what latency costs: ")
    assert spoken[3:] == ["baseline: the task takes 2 s (mean of 9 successes)."]


@pytest.mark.parametrize("cut", matrix([37, 1, 83]), ids=["before a verdict", "in the first round", "after one"])
@pytest.mark.parametrize("torn", matrix([True, False]), ids=["in a line", "between lines"])
def test_a_run_that_was_killed_goes_on_to_the_same_table(cut, torn, tmp_path):
    whole, before, after = MadeUp(), MadeUp(cut=cut, ends=SystemExit), MadeUp()
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    uncut = run_evaluation(tmp_path / "whole", plan(), whole)
    with pytest.raises(SystemExit):
        run_evaluation(tmp_path / "cut", plan(), before)
    file = tmp_path / "cut" / NAME
    if torn:
        file.write_bytes(file.read_bytes() + b'{"variant": "baseline", "ta')
    resumed = run_evaluation(tmp_path / "cut", plan(), after, resume=True)
    assert table(resumed) == table(uncut)
    assert before.played + after.played == whole.played, "nothing is repeated, nothing left out"
    assert file.read_bytes() == (tmp_path / "whole" / NAME).read_bytes()


def test_ctrl_c_keeps_what_was_played_and_judges_whole_pairs(tmp_path):
    result = run_evaluation(tmp_path, plan(), MadeUp(cut=8))  # in the third round: two variants have played it
    assert result.status == "interrupted"
    assert [one.together.success.episodes for one in result.variants] == [3, 3, 2]
    assert document(result).banner.startswith("Interrupted")
    assert len((tmp_path / NAME).read_text().splitlines()) == 9
    (tmp_path / "none").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(tmp_path / "none", plan(), MadeUp(cut=0))


def test_more_episodes_may_be_asked_for_later(tmp_path):
    (tmp_path / "at once").mkdir()
    (tmp_path / "later").mkdir()
    at_once = run_evaluation(tmp_path / "at once", plan(60), MadeUp())
    few = run_evaluation(tmp_path / "later", plan(20), MadeUp())
    assert few.variants[1].together.paired.decision.kind == "undecided"
    assert table(run_evaluation(tmp_path / "later", plan(60), MadeUp(), resume=True)) == table(at_once)
    with pytest.raises(UserError, match="began with other flags: episodes 60 there, 20 here"):
        EpisodeLog.resume(tmp_path / "later", make_request(plan(20)))


OTHERWISE = {
    "margin": ({"margin": 0.2}, "margin 0.1 there, 0.2 here"),
    "variants": ({"variants": {FIRST: "", "5 steps": "policy.num_steps=5"}}, "variants: another 5 steps, 2 steps"),
    "environment": ({"environment": {"type": "pusht", "fps": 5}}, "environment: another fps"),
    "settings": ({"settings": {"n_action_steps": 1}}, "settings: another n_action_steps"),
    "score": ({"score": "progress of 4"}, "score success there, progress of 4 here"),
    "weights": ({"weights": "1"}, "the policy has other weights now"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_run_that_was_asked_otherwise_is_not_gone_on_with(name, tmp_path):
    changed, said = OTHERWISE[name]
    EpisodeLog.begin(tmp_path, make_request(plan())).close()
    with pytest.raises(UserError, match="began with other flags") as caught:
        EpisodeLog.resume(tmp_path, make_request(plan(), **changed))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none_of_ours_is_a_line(tmp_path):
    with pytest.raises(UserError, match="no evaluation to resume at"):
        EpisodeLog.resume(tmp_path, make_request(plan()))
    (tmp_path / NAME).write_text('{"asked"')
    with pytest.raises(UserError, match="line 1 is not a valid request; run again without --resume"):
        EpisodeLog.resume(tmp_path, make_request(plan()))
    (tmp_path / NAME).unlink()
    EpisodeLog.begin(tmp_path, make_request(plan())).close()
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes() + b'{"variant": 3}\n')
    with pytest.raises(UserError, match="line 2 is not a valid episode"):
        EpisodeLog.resume(tmp_path, make_request(plan()))


def test_a_simulator_that_does_not_start_alike_makes_no_pairs(tmp_path):
    class Drifting(MadeUp):
        def start(self, candidate, task, seed):
            return f"{seed}" if candidate.name != "2 steps" or seed < 2 else "elsewhere"

    with pytest.raises(UserError, match=r"the same seed gives different starts \(pusht, seed 2: 'baseline' and '2"):
        run_evaluation(tmp_path, plan(), Drifting())
    assert len((tmp_path / NAME).read_text().splitlines()) == 1 + 8, "the episode that has no pair is not kept"


def test_it_says_each_verdict_with_its_speed(tmp_path):
    result = run_evaluation(tmp_path, plan(), MadeUp())
    text = render_text(result)
    said = document(result).answers
    assert "50 pairs" not in (result.foresight or "")
    assert result.foresight.startswith(
        "60 pairs exclude a loss of 10 points if nearly all pairs end alike (48 or more)"
    )
    assert said[0] == "5 denoising steps succeed as often as the baseline, within 10 points."
    assert "48 paired episodes; stopped early: decided; 2 × as fast." in said[1]
    assert any(line.startswith("Worse: 2 denoising steps ") and "5 × as fast" in line for line in said)
    assert said[0] in text
    store.save(result, tmp_path)
    assert store.load_answer(tmp_path) == result


def test_a_policy_that_never_succeeds_has_nothing_to_lose(tmp_path):
    result = run_evaluation(tmp_path, plan(), MadeUp(dict.fromkeys((FIRST, "5 steps", "2 steps"), 0.0)))
    result.subject = result.subject.model_copy(update={"source": "random weights"})
    said = " ".join(document(result).answers)
    assert said.startswith("No episode succeeded. 0 of 144 episodes")
    assert "No success could be lost" in said
    assert "Random weights" in said
    assert [one.rule for one in advise(result, DEFAULTS)] == ["evaluation-never-succeeds"]


class Reaching(MadeUp):
    """Reaches stages of four, and never all of them; the fewest steps reach fewer."""

    def play(self, candidate, task, seed):
        best = (2.0 if candidate.name == "2 steps" else 3.0) - seed % 2
        return super().play(candidate, task, seed).model_copy(update={"best_reward": best})


def test_progress_decides_where_it_was_stated(tmp_path):
    never = Reaching(dict.fromkeys((FIRST, "5 steps", "2 steps"), 0.0))
    result = run_evaluation(tmp_path, replace(plan(), full_reward=4.0), never)
    first, five, two = (one.together for one in result.variants)
    assert (result.score, first.progress, first.comparison, five.scored.decision.pairs) == ("progress", 0.625, None, 48)
    assert (two.comparison.decision.kind, two.comparison.difference, two.paired.difference) == ("worse", -0.25, 0.0)
    said = document(result).answers
    assert said[0] == "5 denoising steps make as much progress as the baseline, within 10 points."
    assert "62 % vs 62 % progress, difference +0 points" in said[1]
    assert any(line.startswith("Worse: 2 denoising steps −25 points [") for line in said)
    assert "points of success near 80 %" in (result.foresight or "")
    assert advise(result, DEFAULTS) == []
    assert "Progress decides" in " ".join(render_text(result).split())
    store.save(result, tmp_path)
    assert store.load_answer(tmp_path) == result


def test_progress_is_a_share_of_the_whole_reward_and_all_of_a_success():
    of = replace(plan(), full_reward=4.0)
    line = MadeUp({FIRST: 0.0}).play(of.candidates[0], "pusht", 0)
    shares = {-1.0: 0.0, 1.0: 0.25, 9.0: 1.0}
    assert {best: of.score(line.model_copy(update={"best_reward": best})) for best in shares} == shares
    assert of.score(line.model_copy(update={"success": True, "best_reward": 1.0})) == 1.0
    assert plan().score(line.model_copy(update={"best_reward": 4.0})) == 0.0, "success alone decides by default"


def test_reward_that_says_the_opposite_of_success_is_named(tmp_path):
    result = run_evaluation(tmp_path, plan(), MadeUp())
    two = result.variants[2]
    result.variants[0].together.reward, two.together.reward = 153.0, 251.0
    (said,) = [line for line in document(result).answers if line.startswith("Reward and success disagree")]
    assert "the mean reward of 2 steps is higher (251 vs 153), and it succeeds less often" in said
    two.together.reward = 100.0
    assert not any("disagree" in line for line in document(result).answers)


def test_what_is_undecided_says_how_to_go_on(tmp_path):
    result = run_evaluation(tmp_path, plan(10), MadeUp())
    (found,) = advise(result, DEFAULTS)
    assert found.rule == "evaluation-undecided"
    assert "--resume=RUN and more --episodes" in found.do
    assert found.title.startswith("10 pairs are too few")
    assert "10 pairs cannot exclude a loss of 10 points" in found.found


def test_each_line_is_there_before_the_next_episode_begins(tmp_path: Path):
    class Looking(MadeUp):
        def play(self, candidate, task, seed):
            lines = (tmp_path / NAME).read_text().splitlines()
            assert [json.loads(line)["variant"] for line in lines[1:]] == [name for name, _, _ in self.played]
            return super().play(candidate, task, seed)

    run_evaluation(tmp_path, plan(5), Looking())
