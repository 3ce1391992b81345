"""Runs of lerobot-eval judged as they are: in pairs where they share their seeds, and said where not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.checks.run_contents import load_stored
from support.examples.eval_info import make_judged, write
from support.fakes.made_up_episodes import made_up
from support.fakes.made_up_simulator import make_request, plan

from strobe.core.cli.main import main
from strobe.core.kinds import document
from strobe.evaluate.episode_log import EpisodeLog
from strobe.evaluate.judge import distinct_names, find_runs, judge
from strobe.evaluate.measure.planning import fewest_pairs
from strobe.evaluate.measure.success_rates import exact_p, score_interval, unpaired_rates
from strobe.evaluate.results import Judged


def test_two_runs_are_judged_kept_and_shown_without_playing_anything(tmp_path, capsys):
    write(tmp_path, "first", {"pusht 0": [1] * 45 + [0] * 5})
    write(tmp_path, "second", {"pusht 0": [1] * 20 + [0] * 30})
    argv = ["evaluate", f"--results={tmp_path}/first,{tmp_path}/second", f"--output_dir={tmp_path / 'runs'}"]
    assert main(argv) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "second succeeds less often than first." in out
    assert "Not in pairs: the files do not say which seeds the runs had; if they had the same, --same_seeds" in out
    (folder,) = (tmp_path / "runs").iterdir()
    kept = load_stored(Judged, folder)
    assert kept.runs[1].together.paired is None
    assert kept.runs[1].together.unpaired.kind == "worse"
    assert (folder / "report.html").exists()
    assert main([*argv, "--same_seeds"]) == 0
    assert "In pairs: by --same_seeds the runs had the same seed" in " ".join(capsys.readouterr().out.split())


def test_pairs_go_by_task_and_episode_and_tasks_take_turns():
    found = make_judged()
    first, second = found.runs
    assert first.together.paired is first.together.unpaired is None
    assert found.tasks == ["spatial 0", "spatial 1"]
    pairs = second.together.paired
    assert (pairs.both, pairs.lost, pairs.won, pairs.neither) == (18, 18, 2, 2)
    assert pairs.decision.kind == "worse"
    assert second.tasks["spatial 1"].paired.pairs == 20
    answers = document(found).answers
    assert answers[0] == "fast succeeds less often than slow."
    assert answers[1].startswith("50 % vs 90 % success, 20 of 40 episodes vs 36 of 40 episodes, −40 points [")


def test_seeds_in_the_file_make_pairs_or_forbid_them(tmp_path):
    def older(name, seeds, won):
        path = tmp_path / name
        path.write_text(json.dumps({"per_episode": [
            {"episode_ix": i, "sum_reward": 1.0, "max_reward": 1.0, "success": bool(one), "seed": seed}
            for i, (seed, one) in enumerate(zip(seeds, won, strict=True))]}))  # fmt: skip
        return path

    a, b, c = older("a.json", [1, 2, 3], [1, 1, 0]), older("b.json", [1, 2, 3], [1, 0, 0]), older("c.json", [4], [1])
    same = judge([a, b], 0.1)
    assert same.paired
    assert [run.name for run in same.runs] == ["a", "b"]
    assert (same.runs[1].together.paired.lost, same.runs[1].together.paired.both) == (1, 1)
    other = judge([a, c], 0.1)
    assert not other.paired
    assert other.pairing == "Not in pairs: the runs had different seeds."
    assert judge([a], 0.1).pairing.startswith("One run")


def test_two_runs_name_their_settings_their_starts_and_a_rate_that_cannot_be(tmp_path):
    for name, more in (("a", {}), ("b", {"settings": {"n_action_steps": 2}})):
        (tmp_path / name).mkdir()
        log = EpisodeLog.begin(tmp_path / name, make_request(plan(), **more))
        for seed in range(4):
            log.add(
                made_up("baseline", "pusht", seed).model_copy(update={"start": f"{name if seed == 3 else 0}{seed}"})
            )
        log.close()
    own = judge(find_runs([tmp_path / "a", tmp_path / "b"]), 0.1)
    assert own.pairing == "Not in pairs: equal seeds were no equal starts."
    assert own.differences == [
        "b differs from a in n_action_steps: 8 → 2.",
        "1 episodes of b begin with another first observation than those of equal seeds.",
    ]
    path = write(tmp_path, "c", {"libero_spatial 0": [1, 0, 0]})
    other = json.loads(path.read_text())
    other["overall"]["pc_success"] = 40.0
    path.write_text(json.dumps(other))
    found = " ".join(judge([path, write(tmp_path, "d", {"libero_spatial 0": [1, 0]})], 0.1).differences)
    assert "c states 40 %, which is no whole number of its 3" in found
    assert "d differs from c in episodes: 3 → 2" in found
    assert "renderer (MUJOCO_GL)" in found


WRONG = {
    "nowhere": ("--results=none", "there is no none"),
    "empty": ("--results={0}/empty", "no eval_info.json in"),
    "nothing": ("--results=", "--results=: give one value or more, or leave the flag out"),
    "twice": ("--results={0}/a,{0}/a/eval_info.json", "each run once"),
    "torn": ("--results={0}/a,{0}/torn.json", "torn.json is truncated or not JSON"),
    "another": ("--results={0}/a,{0}/another.json", "is JSON, but not an eval_info.json of lerobot-eval"),
    "uneven": ("--results={0}/a,{0}/uneven.json", "is JSON, but not an eval_info.json of lerobot-eval"),
    "other tasks": ("--results={0}/a,{0}/b", "has other tasks (push) than"),
    "other lengths": ("--results={0}/a,{0}/c --same_seeds", "different numbers of episodes"),
    "a policy": ("--results={0}/a --policy.type=act", "leave out --policy"),
    "a simulator": ("--results={0}/a --env.type=pusht", "unknown flag --env.type"),
    "misspelt": ("--result={0}/a", "did you mean --results?"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_a_line(name, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    write(tmp_path, "a", {"pusht 0": [1, 0]})
    write(tmp_path, "b", {"push 0": [1, 0]})
    write(tmp_path, "c", {"pusht 0": [1, 0, 1]})
    (tmp_path / "torn.json").write_text('{"per_task": [')
    (tmp_path / "another.json").write_text("[1, 2]")
    uneven = {"task_group": "pusht", "task_id": 0, "metrics": {"successes": [True], "sum_rewards": [1.0, 2.0]}}
    (tmp_path / "uneven.json").write_text(json.dumps({"per_task": [uneven]}))
    argv, said = WRONG[name]
    assert main(["evaluate", *argv.format(tmp_path).split(), f"--output_dir={tmp_path / 'runs'}"]) == 2
    err = capsys.readouterr().err.partition("\nCorrected: ")[0]
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_runs_names_all_of_them_by_what_tells_them_apart(tmp_path):
    files = [write(tmp_path, f"{day}/run", {"pusht 0": [1]}) for day in ("monday", "tuesday")]
    assert find_runs([tmp_path]) == files
    assert distinct_names(files) == ["monday/run", "tuesday/run"]


def test_results_sorted_by_outcome_or_difficulty_show_nothing_that_is_not_there(tmp_path):
    a = write(tmp_path, "a", {"all 0": [1] * 500 + [0] * 500})
    b = write(tmp_path, "b", {"all 0": [0] * 500 + [1] * 500})
    found = judge([a, b], 0.1, same_seeds=True)
    assert found.runs[1].together.paired.decision.kind != "worse"
    assert "+0 points [−" in document(found).answers[1]
    c = write(tmp_path, "c", {f"t {task}": [won] * 20 for task, won in enumerate([1, 1, 1, 0, 0, 0])})
    d = write(tmp_path, "d", {f"t {task}": [won] * 20 for task, won in enumerate([0, 1, 1, 1, 0, 0])})
    paired = judge([c, d], 0.1, same_seeds=True).runs[1].together.paired
    assert (paired.difference, paired.decision.kind) == (0.0, "undecided")


def test_finished_results_are_judged_at_one_look_which_takes_fewer_pairs_than_a_look_after_each(tmp_path):
    files = [write(tmp_path, name, {"all 0": [1] * 40}) for name in ("a", "b")]
    paired = judge(files, 0.1, same_seeds=True).runs[1].together.paired
    assert paired.decision.kind == "not worse by more than the margin"
    assert fewest_pairs(0.1) > 40


def test_verdicts_on_single_tasks_are_held_to_the_error_of_one(tmp_path):
    tasks = {f"t {number}": [1] * 10 + [0] * 10 for number in range(10)}
    files = [write(tmp_path, name, tasks) for name in ("a", "b")]
    for same_seeds in (False, True):
        run = judge(files, 0.1, same_seeds).runs[1]
        on = [(one.paired and one.paired.decision) or one.unpaired for one in (run.together, *run.tasks.values())]
        assert [one.interval.level for one in on] == pytest.approx([0.95, *[0.995] * 10])


def test_runs_with_unequal_episodes_of_each_task_are_compared_task_by_task(tmp_path):
    easy_often = write(tmp_path, "first", {"easy 0": [1] * 81 + [0] * 9, "hard 1": [1] * 1 + [0] * 9})
    hard_often = write(tmp_path, "second", {"easy 0": [1] * 10, "hard 1": [1] * 27 + [0] * 63})
    second = judge([easy_often, hard_often], 0.1).runs[1]
    assert second.together.success.rate == 0.37, "against 0.82, though it is better in both tasks"
    assert second.together.unpaired.difference > 0
    assert second.together.unpaired.kind != "worse"
    assert min(one.unpaired.difference for one in second.tasks.values()) > 0
    assert "task by task" in document(judge([easy_often, hard_often], 0.1)).answers[1]


def test_the_score_interval_is_the_published_one_and_the_exact_test_is_fishers():
    # Newcombe, Statistics in Medicine 17, 1998, table II, method 6: 56/70 − 48/80, and 9/10 − 3/10.
    found = score_interval([(48, 80)], [(56, 70)])
    assert (round(found.low, 4), round(found.high, 4)) == (0.0528, 0.3382)
    found = score_interval([(3, 10)], [(9, 10)])
    assert (round(found.low, 4), round(found.high, 4)) == (0.1700, 0.8406)
    assert exact_p([(1, 10)], [(9, 10)]) == pytest.approx(stats.fisher_exact([[1, 9], [9, 1]])[1])
    # Without a difference in a task, a task that always ends alike changes nothing.
    assert exact_p([(1, 10), (5, 5)], [(9, 10), (7, 7)]) == pytest.approx(exact_p([(1, 10)], [(9, 10)]))


episodes = st.integers(1, 30).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))


@settings(deadline=None)
@given(st.lists(st.tuples(episodes, episodes), min_size=1, max_size=5))
def test_an_unpaired_verdict_holds_its_estimate_and_turns_with_its_sides(tasks):
    first, second = ([of_task[run] for of_task in tasks] for run in (0, 1))
    one, turned = unpaired_rates(first, second, 0.1), unpaired_rates(second, first, 0.1)
    assert -1 <= one.interval.low <= one.difference <= one.interval.high <= 1
    assert turned.difference == pytest.approx(-one.difference)
    assert (turned.interval.low, turned.interval.high) == pytest.approx((-one.interval.high, -one.interval.low))
    if one.kind in ("worse", "better"):
        assert turned.kind == {"worse": "better", "better": "worse"}[one.kind]


def test_an_unpaired_verdict_needs_enough_episodes():
    assert unpaired_rates([(45, 50)], [(20, 50)], 0.1).kind == "worse"
    assert unpaired_rates([(20, 50)], [(45, 50)], 0.1).kind == "better"
    assert unpaired_rates([(450, 500)], [(450, 500)], 0.1).kind == "not worse by more than the margin"
    assert unpaired_rates([(9, 10)], [(8, 10)], 0.1).kind == "undecided"
    assert unpaired_rates([(1, 1)] * 10, [(1, 1)] * 10, 0.1).kind == "undecided"
    for wrong in ([], [(3, 2)], [(0, 0)]):
        with pytest.raises(ValueError, match=r"tasks|successes"):
            unpaired_rates(wrong, wrong, 0.1)
