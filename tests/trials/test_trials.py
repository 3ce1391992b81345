"""strobe trials, from a plan to its judgement: an operator is simulated, and knows no key."""

from __future__ import annotations

import csv
import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from strobe.core.cli.main import main
from strobe.core.runs import store

DEFAULT = "default: --policy.n_action_steps=50"
TUNED = "tuned: --policy.n_action_steps=10"
ROBOT = ["--", "--robot.type=so101_follower", "--robot.port=/dev/null", "--policy.path=folder"]
Row = list[str]


def plan(folder: Path, *flags: str, seed: int = 1, robot: Sequence[str] = ROBOT) -> Path:
    settings = ["--setting", DEFAULT, "--setting", TUNED]
    assert main(["trials", *settings, f"--output={folder}", f"--seed={seed}", *flags, *robot]) == 0
    return folder


def read_key(folder: Path) -> Any:
    return json.loads((folder / "key.json").read_text())


def read_sheet(folder: Path) -> list[Row]:
    return list(csv.reader((folder / "trials.csv").read_text().splitlines()))


def fill(folder: Path, outcome: Callable[[str, int], tuple[str, ...]], pairs: int) -> None:
    """Fill in the first pairs: ``outcome`` gives what lies between the start and the note, of a setting in a pair."""
    names = {code: setting["name"] for code, setting in read_key(folder)["settings"].items()}
    header, *rows = read_sheet(folder)
    for row in rows[: 2 * pairs]:
        row[3:-1] = [f"cube at {row[0]}", *outcome(names[row[2]], int(row[0]))]
    save(folder, [header, *rows])


def save(folder: Path, rows: Sequence[Row]) -> None:
    with (folder / "trials.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def judge_folder(folder: Path, *flags: str) -> Any:
    """Return the answer that the command saves."""
    runs = folder.parent / "runs"
    before = set(runs.iterdir()) if runs.is_dir() else set()
    assert main(["trials", f"--judge={folder}", f"--output_dir={runs}", *flags]) == 0
    (saved,) = set(runs.iterdir()) - before
    return store.load_answer(saved)


def simulate_outcomes(
    seed: int, rates: dict[str, float], seconds: dict[str, float]
) -> Callable[[str, int], tuple[str, str]]:
    chance = random.Random(seed)

    def outcome(name: str, _: int) -> tuple[str, str]:
        if chance.random() < rates[name]:
            return "yes", f"{seconds[name] * chance.uniform(0.8, 1.25):.1f}"
        return "no", ""

    return outcome


def test_a_plan_says_nothing_of_its_settings_outside_the_key_and_the_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan", "--pairs=40", "--limit_s=60")
    said = capsys.readouterr().out
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.txt", "a.sh", "b.sh", "key.json", "plan.json", "trials.csv",
    ]  # fmt: skip
    for text in (said, *((folder / name).read_text() for name in ("README.txt", "plan.json", "trials.csv"))):
        assert "tuned" not in text
        assert "n_action_steps" not in text
    key = read_key(folder)
    for code in "AB":
        script = (folder / f"{code.lower()}.sh").read_text()
        (flag,) = key["settings"][code]["flags"]
        assert f"lerobot-rollout {' '.join(ROBOT[1:])} --duration=60 {flag}" in script
    header, *rows = read_sheet(folder)
    assert header == ["pair", "trial", "code", "condition", "success", "seconds", "note"]
    orders = ["".join(row[2] for row in rows if row[0] == str(pair)) for pair in range(1, 41)]
    assert set(orders) == {"AB", "BA"}
    assert 10 <= orders.count("AB") <= 30


def test_codes_and_orders_are_drawn_by_the_seed(tmp_path: Path) -> None:
    first, again = plan(tmp_path / "1", seed=5), plan(tmp_path / "2", seed=5)
    assert (first / "trials.csv").read_text() == (again / "trials.csv").read_text()
    assert read_key(first) == read_key(again)
    defaults = {read_key(plan(tmp_path / f"seed-{seed}", seed=seed))["default"] for seed in range(8)}
    assert defaults == {"A", "B"}


def test_a_script_starts_the_rollout_with_its_setting_and_hides_what_it_prints(tmp_path: Path) -> None:
    folder, recipe = tmp_path / "plan", tmp_path / "fast.yaml"
    recipe.write_text("")
    settings = ["--setting", DEFAULT, "--setting", f"{TUNED} --recipe={recipe}"]
    assert main(["trials", *settings, f"--output={folder}", *ROBOT]) == 0
    program = tmp_path / "bin" / "lerobot-rollout"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$STROBE_RECIPE" "$@"\nexit 3\n')
    program.chmod(0o755)
    tuned = "B" if read_key(folder)["default"] == "A" else "A"
    for code in "AB":
        ran = subprocess.run(
            ["sh", folder / f"{code.lower()}.sh", "--task=a b"],
            env={"PATH": f"{program.parent}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 3
        assert "exit code 3" in ran.stdout
        assert "n_action_steps" not in ran.stdout + ran.stderr
        log = (folder / f"{code.lower()}.log").read_text()
        steps, used = ("10", str(recipe)) if code == tuned else ("50", "off")
        assert log == f"{used} {' '.join(ROBOT[1:])} --policy.n_action_steps={steps} --task=a b\n"


def test_the_planted_better_setting_is_called_in_success_and_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan", "--pairs=60", "--limit_s=60")
    fill(folder, simulate_outcomes(3, {"default": 0.35, "tuned": 0.9}, {"default": 30, "tuned": 15}), 40)
    result = judge_folder(folder)
    assert (result.counted, result.planned) == (40, 60)
    assert [setting.name for setting in result.settings] == ["default", "tuned"]
    assert result.rates.decision.kind == "better"
    assert result.times.kind == "sooner"
    assert result.decided == ["success", "time"]
    assert result.findings == []
    shown = capsys.readouterr().out
    assert "tuned succeeds more often than default." in shown
    assert "Next: lerobot-rollout … --policy.n_action_steps=10" in shown


def test_the_planted_worse_setting_is_called_worse_whichever_code_it_has(tmp_path: Path) -> None:
    for seed in range(4):
        folder = plan(tmp_path / f"plan-{seed}", "--pairs=40", seed=seed)
        fill(folder, simulate_outcomes(seed, {"default": 0.95, "tuned": 0.2}, {"default": 30, "tuned": 15}), 40)
        assert judge_folder(folder).rates.decision.kind == "worse"


def test_a_look_with_a_closed_key_says_whether_it_is_decided_and_not_for_whom(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan", "--pairs=40", "--limit_s=60")
    fill(folder, simulate_outcomes(3, {"default": 0.2, "tuned": 0.9}, {"default": 30, "tuned": 15}), 30)
    key = (folder / "key.json").read_text()
    (folder / "key.json").unlink()
    capsys.readouterr()
    for flags in ([], ["--blind"]):
        result = judge_folder(folder, *flags)
        assert (result.settings, result.rates, result.times, result.orders) == ([], None, None, [])
        assert result.decided == ["success", "time"]
        shown = " ".join(capsys.readouterr().out.split())
        assert "30 of 40 pairs complete." in shown
        assert "One setting is shown to be better in success and time to task" in shown
        assert "tuned" not in shown
    (folder / "key.json").write_text(key)
    assert judge_folder(folder, "--blind").settings == []
    fill(folder, lambda *_: ("yes", "20"), 30)
    assert judge_folder(folder, "--blind").decided == []
    assert "Not decided yet: run more pairs." in capsys.readouterr().out


def reach(name: str, pair: int) -> tuple[str, str, str]:
    """Three stages of four or one; every tenth pair succeeds with both settings."""
    return ("yes", "", "") if pair % 10 == 0 else ("no", "3 of 4" if name == "tuned" else "1/4", "")


def test_progress_decides_where_the_plan_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plan(tmp_path / "plan", "--pairs=40", "--score=progress")
    assert "Separating 10 points of progress takes about " in capsys.readouterr().out
    assert "2 of 4" in (folder / "README.txt").read_text()
    fill(folder, reach, 40)
    assert judge_folder(folder, "--blind").progress is None
    assert "One setting is shown to be better in progress; 40 of 40" in " ".join(capsys.readouterr().out.split())
    result = judge_folder(folder)
    assert (result.progress.decision.kind, result.decided) == ("better", ["progress"])
    assert result.progress.decision.pairs < 20
    shown = " ".join(capsys.readouterr().out.split())
    assert "tuned makes more progress than default. 77.5 % vs 32.5 % progress, +45 points" in shown
    assert "Success, which does not decide: 4 of 40 vs 4 of 40 trials, +0 points" in shown
    fill(folder, lambda name, pair: ("no", "", "") if pair == 2 else reach(name, pair), 40)
    result = judge_folder(folder)
    assert (result.progress, result.decided) == (None, [])
    assert result.progress_not_judged == "2 of 80 trials have no progress (trial 3 is the first)"


def test_progress_in_the_table_of_another_plan_is_shown_and_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan", "--pairs=40")
    save(folder, [[*row[:5], "" if row[0].isdigit() else "progress", *row[5:]] for row in read_sheet(folder)])
    fill(folder, reach, 40)
    result = judge_folder(folder)
    assert (result.score, result.progress, result.decided) == ("success", None, [])
    assert [setting.progress for setting in result.settings] == [pytest.approx(0.325), pytest.approx(0.775)]
    shown = " ".join(capsys.readouterr().out.split())
    assert "not judged, because the plan says that success decides: 77.5 % vs 32.5 % progress." in shown


def test_few_pairs_and_missing_seconds_are_not_judged_and_the_reason_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan", "--pairs=20", "--limit_s=60")
    assert judge_folder(folder).rates_not_judged == "0 pairs are complete, and fewer than 8 decide nothing"
    assert "0 of 20 pairs complete." in " ".join(capsys.readouterr().out.split())
    fill(folder, lambda name, pair: ("yes", "" if pair == 3 else "20"), 9)
    result = judge_folder(folder)
    assert result.rates.decision.kind == "undecided"
    assert result.times_not_judged == "2 of 18 successes have no seconds (trial 5 is the first)"
    assert "2 of 18 successes have no seconds (trial 5 is the first)" in " ".join(capsys.readouterr().out.split())
    folder = plan(tmp_path / "no-limit", "--pairs=20")
    fill(folder, lambda *_: ("yes", "20"), 9)
    assert judge_folder(folder).times_not_judged == "the plan states no limit of a trial (--limit_s)"


def test_a_spreadsheets_habits_are_read(tmp_path: Path) -> None:
    folder = plan(tmp_path / "plan", "--pairs=10", "--limit_s=60")
    fill(folder, lambda name, pair: ("Yes" if name == "tuned" else "NO", "12.5" if name == "tuned" else ""), 9)
    header, *rows = read_sheet(folder)
    rows[0][6] = "two\nlines"
    save(folder, [header, *rows])
    wanted = judge_folder(folder)
    with (folder / "trials.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=";").writerows([[h.upper() for h in header], [""] * 7, *reversed(rows)])
    result = judge_folder(folder)
    same = [trial.model_copy(update={"line": 0}) for trial in result.trials]
    assert same == [trial.model_copy(update={"line": 0}) for trial in wanted.trials]
    assert (result.rates.won, wanted.rates.won) == (9, 9)
    assert {trial.seconds for trial in result.trials if trial.success} == {12.5}
    tabs = "\n".join("\t".join(row) for row in [header, *rows[1:]])
    (folder / "trials.csv").write_text(tabs)
    assert judge_folder(folder).counted == 8


def test_what_was_not_run_as_planned_is_found(tmp_path: Path) -> None:
    folder = plan(tmp_path / "plan", "--pairs=20")
    fill(folder, lambda name, pair: ("yes", ""), 14)
    header, *rows = read_sheet(folder)
    assert judge_folder(folder).findings == []
    rows[4][4] = ""  # pair 3: one trial
    rows[8][4] = rows[9][4] = ""  # pair 5: none
    rows[12][2], rows[13][2] = rows[13][2], rows[12][2]  # pair 7: the other order
    rows[16][3] = "cube elsewhere"  # pair 9
    save(folder, [header, *rows])
    result = judge_folder(folder)
    assert (result.half_run, result.passed_over, result.other_order, result.other_start) == ([3], [5], [7], [9])
    assert result.counted == 12
    assert {finding.rule for finding in result.findings} == {
        "trials-half-pairs", "trials-passed-over", "trials-order", "trials-start",
    }  # fmt: skip


def test_a_pair_that_is_being_run_is_no_fault_and_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan", "--pairs=20")
    fill(folder, lambda name, pair: ("yes", ""), 10)
    header, *rows = read_sheet(folder)
    rows[19][4] = ""
    save(folder, [header, *rows])
    result = judge_folder(folder)
    assert (result.counted, result.half_run, result.findings) == (9, [10], [])
    shown = " ".join(capsys.readouterr().out.split())
    assert "9 of 20 pairs complete, 1 pair with one trial not counted" in shown


def test_second_trials_that_succeed_more_often_are_found_and_speak_for_no_setting(tmp_path: Path) -> None:
    folder = plan(tmp_path / "plan", "--pairs=30")
    header, *rows = read_sheet(folder)
    for row in rows:
        row[4] = "no" if int(row[1]) % 2 else "yes"
    save(folder, [header, *rows])
    result = judge_folder(folder)
    assert [finding.rule for finding in result.findings] == ["trials-place"]
    assert result.decided == []
    assert sum(order.pairs for order in result.orders) == 30


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"success": "maybe"}, "success is 'maybe': write yes or no"),
        ({"success": "ja"}, "success is 'ja': write yes or no"),
        ({"success": "yes", "seconds": "12,5"}, "seconds is '12,5': write a number, such as 12.5"),
        ({"success": "yes", "seconds": "ten"}, "seconds is 'ten': write a number, such as 12.5"),
        ({"success": "yes", "seconds": "-1"}, "seconds is '-1'"),
        ({"success": "yes", "seconds": "0"}, "a success after 0 seconds"),
        ({"success": "yes", "seconds": "61"}, "a success after 61 s, and the limit of a trial is 60 s: write no"),
        ({"success": "", "seconds": "20"}, "seconds without a success"),
        ({"success": "", "progress": "0.5"}, "progress without a success"),
        ({"success": "no", "progress": "50 %"}, "progress is '50 %': write a share from 0 to 1, such as 0.5,"),
        ({"success": "no", "progress": "5 of 4"}, "progress is '5 of 4': write a share"),
        ({"success": "no", "progress": "1/0"}, "progress is '1/0': write a share"),
        ({"success": "no", "progress": "02.Apr"}, "progress is '02.Apr': write a share"),
        ({"success": "yes", "progress": "3/4"}, "progress is '3/4' and success is 'yes': all of it is a success"),
        ({"success": "no", "progress": "4 of 4"}, "progress is '4 of 4' and success is 'no': all of it is a success"),
        ({"success": "yes", "code": "C"}, "code is 'C': write A or B"),
        ({"success": "yes", "code": ""}, "code is missing"),
        ({"success": "yes", "pair": "99"}, "pair 99 is not in the plan, which has 20"),
        ({"success": "yes", "pair": ""}, "pair is missing"),
        ({"success": "yes", "trial": "9"}, "trial 9 is not of pair 2, whose trials are 3 and 4"),
    ],
)
def test_a_row_that_is_wrong_is_named_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], said: str
) -> None:
    folder = plan(tmp_path / "plan", "--limit_s=60", "--score=progress")
    header, *rows = read_sheet(folder)
    for column, value in change.items():
        rows[2][header.index(column)] = value
    save(folder, [header, *rows])
    assert refusal_message(capsys, f"--judge={folder}").startswith(f"strobe: {folder}/trials.csv, line 4: {said}")


def test_a_code_twice_in_a_pair_and_cells_too_many_are_named_by_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan")
    header, *rows = read_sheet(folder)
    for row in rows[:4]:
        row[4] = "yes"
    rows[1][2] = rows[0][2]
    save(folder, [header, *rows])
    assert f"line 3: code {rows[0][2]} of pair 1 stands in line 2 too" in refusal_message(capsys, f"--judge={folder}")
    head = "pair,trial,code,condition,success,seconds,note"
    (folder / "trials.csv").write_text(f"{head}\n1,1,A,,yes,12,5,\n1,1,A,,yes,12,5,x\n")
    assert "line 3: 8 cells under 7 columns" in refusal_message(capsys, f"--judge={folder}")
    (folder / "trials.csv").write_text("")
    assert "is no table: its first line needs pair" in refusal_message(capsys, f"--judge={folder}")
    (folder / "trials.csv").write_bytes(b"pair,\xff\n")
    assert "is no text: save it as CSV in UTF-8" in refusal_message(capsys, f"--judge={folder}")
    (folder / "trials.csv").write_text("pair,code\n")
    assert "has no column 'trial': it needs pair, trial, code, success" in refusal_message(capsys, f"--judge={folder}")


def refusal_message(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    capsys.readouterr()
    assert main(["trials", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--pairs=3"], "name the folder of the plan: --output=FOLDER"),
        (["--output=x"], "name the two settings: --of=RUN of strobe tune, or --setting twice"),
        (["--output=x", "--setting", DEFAULT], "a plan has two settings, and --setting is given 1 times"),
        (["--output=x", "--setting", DEFAULT, "--setting", DEFAULT], "both settings are called 'default'"),
        (["--output=x", "--setting", "a: --x=1", "--setting", "b: --x=1"], "'a' and 'b' have the same flags"),
        (["--output=x", "--setting", "--policy.x=1", "--setting", TUNED], "--setting needs a value"),
        (["--output=x", "--setting", "a: policy", "--setting", TUNED], "'policy' is no flag with its value"),
        (["--output=x", "--setting", "a: --fsp=1", "--setting", TUNED], "lerobot-rollout has no flag --fsp"),
        (["--output=x", "--setting", "a: --recipe=none.yaml", "--setting", TUNED], "no recipe at none.yaml"),
        (["--output=x", "--of=nowhere"], "nowhere"),
        (["--output=x", "--latency=100", "--setting", DEFAULT, "--setting", TUNED], "--latency chooses one of"),
        (["--judge=nowhere"], "--judge=nowhere: there is no such folder or file"),
        (["--judge=nowhere", "--score=progress"], "leave out --score"),
        (["--judge=nowhere", "--setting", TUNED], "leave out --setting"),
        (["--output=x", "--score=reward"], "--score=reward: known: progress, success"),
        (["--judge=nowhere", "--pairs=3"], "--judge reads a plan that was written before: leave out --pairs"),
        (["--judge=nowhere", "--", "--x"], "--judge runs nothing"),
        (["--blind", "--output=x"], "--blind is for a look at trials that were run"),
        (
            ["--output=x", "--limit_s=60", "--setting", DEFAULT, "--setting", TUNED, "--", "--duration=30"],
            "--limit_s=60 and --duration=30 disagree",
        ),
        (
            ["--output=x", "--setting", DEFAULT, "--setting", TUNED, "--", "--policy.n_action_steps=3"],
            "--policy.n_action_steps stands in a setting and after the --",
        ),
    ],
)
def test_wrong_flags_are_answered_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal_message(capsys, *flags)
    assert not (tmp_path / "x").exists()


def test_files_of_a_plan_that_are_damaged_or_there_already_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plan(tmp_path / "plan")
    settings = ["--setting", DEFAULT, "--setting", TUNED]
    assert "holds a plan already" in refusal_message(capsys, *settings, f"--output={folder}")
    (folder / "key.json").write_text("{}")
    assert f"{folder}/key.json is not as Strobe wrote it" in refusal_message(capsys, f"--judge={folder}")
    (folder / "plan.json").unlink()
    assert f"{folder} has no plan of trials" in refusal_message(capsys, f"--judge={folder}")
