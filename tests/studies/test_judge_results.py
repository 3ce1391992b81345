"""Runs of lerobot-eval judged as they are: in pairs where they share their seeds, and said where not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.eval_info import judged, write

from strobe.cli.main import main
from strobe.kinds import document
from strobe.measure.unpaired_rates import newcombe_interval, unpaired_rates
from strobe.results import store
from strobe.studies.evaluate import eval_info
from strobe.studies.evaluate.judge import judge


def test_two_runs_are_judged_kept_and_shown_without_playing_anything(tmp_path, capsys):
    write(tmp_path, "first", {"pusht 0": [1] * 45 + [0] * 5})
    write(tmp_path, "second", {"pusht 0": [1] * 20 + [0] * 30})
    argv = ["evaluate", f"--results={tmp_path}/first,{tmp_path}/second", f"--output_dir={tmp_path / 'runs'}"]
    assert main(argv) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "second succeeds in 20 of 50 episodes (40.0 %): worse, difference −50.0 [" in out
    assert "Not in pairs: the files do not say which seeds the runs had; if they had the same, --same_seeds" in out
    (folder,) = (tmp_path / "runs").iterdir()
    kept = store.load_answer(folder)
    assert kept.runs[1].together.paired is None
    assert kept.runs[1].together.unpaired.kind == "worse"
    assert (folder / "report.html").exists()
    assert main([*argv, "--same_seeds"]) == 0
    assert "In pairs: the runs were said to have had the same seed" in " ".join(capsys.readouterr().out.split())


def test_pairs_go_by_task_and_episode_and_tasks_take_turns():
    found = judged()
    first, second = found.runs
    assert first.together.paired is first.together.unpaired is None
    assert found.tasks == ["spatial 0", "spatial 1"]
    pairs = second.together.paired
    assert (pairs.both, pairs.lost, pairs.won, pairs.neither) == (18, 18, 2, 2)
    assert pairs.decision.kind == "worse"
    assert second.tasks["spatial 1"].paired.pairs == 20
    said = "fast succeeds in 20 of 40 episodes (50.0 %): worse, difference −40.0 ["
    assert document(found).answers[1].startswith(said)


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


WRONG = {
    "nowhere": ("--results=none", "there is no none"),
    "empty": ("--results={0}/empty", "no eval_info.json in"),
    "nothing": ("--results=", "--results names runs of lerobot-eval"),
    "twice": ("--results={0}/a,{0}/a/eval_info.json", "each run once"),
    "torn": ("--results={0}/a,{0}/torn.json", "torn.json is truncated or not JSON"),
    "another": ("--results={0}/a,{0}/another.json", "is JSON, but no eval_info.json of lerobot-eval"),
    "uneven": ("--results={0}/a,{0}/uneven.json", "is JSON, but no eval_info.json of lerobot-eval"),
    "other tasks": ("--results={0}/a,{0}/b", "is of other tasks (push) than"),
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
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_runs_names_all_of_them_by_what_tells_them_apart(tmp_path):
    files = [write(tmp_path, f"{day}/run", {"pusht 0": [1]}) for day in ("monday", "tuesday")]
    assert eval_info.find(str(tmp_path)) == files
    assert eval_info.names(files) == ["monday/run", "tuesday/run"]


def test_newcombes_interval_is_the_published_one_and_covers_its_level():
    # Newcombe 1998, table II: 56/70 − 48/80 by method 10, and 10/10 − 0/20.
    found = newcombe_interval((48, 80), (56, 70))
    assert (round(found.low, 4), round(found.high, 4)) == (0.0524, 0.3339)
    found = newcombe_interval((0, 20), (10, 10))
    assert (round(found.low, 4), round(found.high, 4)) == (0.6791, 1.0)
    random, held = np.random.default_rng(0), 0
    for _ in range(400):
        one, two = random.binomial(40, 0.9), random.binomial(60, 0.8)
        interval = newcombe_interval((int(one), 40), (int(two), 60))
        held += interval.low <= -0.1 <= interval.high
    assert held / 400 >= 0.92
    assert unpaired_rates((45, 50), (20, 50), 0.1).kind == "worse"
    assert unpaired_rates((20, 50), (45, 50), 0.1).kind == "better"
    assert unpaired_rates((450, 500), (450, 500), 0.1).kind == "not worse by more than the margin"
    assert unpaired_rates((9, 10), (8, 10), 0.1).kind == "undecided"
