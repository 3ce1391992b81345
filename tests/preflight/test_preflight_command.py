"""`strobe preflight` from the command line: exit codes, what it imports, and one line for wrong input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.builders.stage import EPISODES, TICKS, Wired
from support.checks.refusals import assert_refused

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.preflight import run
from strobe.preflight.results.wiring import PreflightResult


def load_only_answer(folder: Path) -> PreflightResult:
    (found,) = folder.iterdir()
    result: Any = store.load_answer(found)
    assert isinstance(result, PreflightResult)
    return result


def test_a_sound_policy_ends_with_0(stage: Wired, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    argv = ["preflight", f"--policy.path={stage.policy}"]
    assert main([*argv, f"--output_dir={tmp_path / 'runs'}"]) == 0
    printed = capsys.readouterr().out
    assert "No mismatch found by" in printed
    assert "Not looked at: the data set, the robot, missing weights of the policy" in " ".join(printed.split())
    assert "FEATURES" in printed
    assert load_only_answer(tmp_path / "runs").findings == []


def test_a_fault_of_the_data_ends_with_1_and_its_copy_with_0(stage: Wired, tmp_path: Path, capsys):
    ends = {"dataset_to_index": [TICKS * (number + 1) - (100 if number == 2 else 0) for number in range(EPISODES)]}
    (file,) = (stage.dataset / "meta/episodes").rglob("*.parquet")
    pd.read_parquet(file).assign(**ends).to_parquet(file)
    both = [f"--dataset.root={stage.dataset}", "--read_only", f"--policy.path={stage.policy}"]
    for number, flags in enumerate((both, both[:1])):  # with a policy, and the data set by itself
        fixed = tmp_path / f"fixed-{number}"
        argv = ["preflight", *flags, f"--output_dir={tmp_path / f'runs-{number}'}"]
        assert main([*argv, f"--fix_data={fixed}"]) == 1
        printed = " ".join(capsys.readouterr().out.split())
        assert "Fix the data set first: it has 1 fault. 83 % of episode 2's actions count as padding." in printed
        assert "No mismatch" not in printed
        argv[1] = f"--dataset.root={fixed}"
        assert main(argv) == 0
        capsys.readouterr()


def test_a_fault_ends_with_1_and_is_fixed(stage: Wired, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    stage.configure(use_magic=True)
    argv = ["preflight", f"--policy.path={stage.policy}", f"--output_dir={tmp_path / 'runs'}"]
    assert main([*argv, f"--fix={tmp_path / 'fixed'}"]) == 1
    assert "config.json: removed use_magic." in " ".join(capsys.readouterr().out.split())
    assert load_only_answer(tmp_path / "runs").serious == 1
    argv[1:] = [f"--policy.path={tmp_path / 'fixed'}", f"--output_dir={tmp_path / 'more'}"]
    assert main(argv) == 0


def test_a_flag_of_the_policy_counts(stage: Wired, tmp_path: Path):
    stage.configure(n_action_steps=31)
    argv = ["preflight", f"--policy.path={stage.policy}", f"--output_dir={tmp_path / 'runs'}"]
    assert main(argv) == 1
    assert main([*argv, "--policy.n_action_steps=30"]) == 0


def test_files_alone_need_no_torch_and_no_lerobot(stage: Wired, tmp_path: Path):
    argv = ["preflight", f"--policy.path={stage.policy}", f"--output_dir={tmp_path}"]
    code = f"import sys; from strobe.core.cli.main import main; code = main({argv!r}); "
    code += "print([name for name in ('torch', 'lerobot') if name in sys.modules], code)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


# Wrong input → the arguments, and words of the line. The files of some are spoilt before.
WRONG = {
    "no such folder": ("--policy.path=./nowhere", "there is no folder ./nowhere; use a policy's folder or its Hub id"),
    "no config": ("--policy.path={policy}", "there is no config.json in it"),
    "a cut config": ("--policy.path={policy}", "config.json cannot be read"),
    "a list of features": ("--policy.path={policy}", "are not as LeRobot writes them"),
    "a processor that is a list": ("--policy.path={policy}", "policy_preprocessor.json is not a JSON object"),
    "cut statistics": ("--policy.path={policy}", "safetensors cannot be read"),
    "a name that only the Hub could have": (
        "--policy.path=somebody/some_policy", "no folder somebody/some_policy, and the Hub cannot be reached"),
    "an old data set": ("--policy.path={policy} --dataset.root={data}", "it is in LeRobot's format v2.1"),
    "a data set that is none": ("--policy.path={policy} --dataset.root={policy}", "no LeRobotDataset at"),
    "a data set with a number for a feature": ("--dataset.root={data}", "are not as LeRobot writes them"),
    "nothing": ("", "--policy.path=FOLDER"),
    "a model": ("--model.type=vjepa2", "--model has no actions"),
    "a flag that lerobot-rollout lacks": (
        "--policy.path={policy} -- --robot.type=so101_follower --task=x --durration=3",
        "lerobot-rollout has no flag --durration: did you mean '--duration'?"),
    "no port": ("--policy.path={policy} -- --robot.type=so101_follower --task=x",
                "lerobot-rollout lacks --robot.port=…"),
    "a copy that changes nothing": ("--dataset.root={data} --fix_data={data}-new", "already match its frames"),
    "a copy of no data": ("--policy.path={policy} --fix_data=new", "add --dataset.root=DATA"),
    "episodes of no data": ("--policy.path={policy} --dataset.episodes=[0]", "add --dataset.root=DATA"),
    "a misspelt setting": ("--policy.path={policy} --policy.chunk_sise=5",
                           "unknown flag --policy.chunk_sise: did you mean --policy.chunk_size?"),
}  # fmt: skip
SPOILT: dict[str, Callable[[Wired], Any]] = {
    "no config": lambda stage: (stage.policy / "config.json").unlink(),
    "a cut config": lambda stage: (stage.policy / "config.json").write_text('{"type": "act",'),
    "a list of features": lambda stage: stage.configure(input_features=[1, 2]),
    "a processor that is a list": lambda stage: (stage.policy / "policy_preprocessor.json").write_text("[]"),
    "cut statistics": lambda stage: next(stage.policy.glob("policy_pre*.safetensors")).write_bytes(b"short"),
    "an old data set": lambda stage: stage.describe(codebase_version="v2.1"),
    "a data set with a number for a feature": lambda stage: stage.describe(features={"action": 3}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_input_ends_in_one_line(wrong: str, stage: Wired, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (runs := tmp_path / "runs").mkdir()
    SPOILT.get(wrong, lambda _: None)(stage)
    arguments, words = WRONG[wrong]
    given = arguments.format(policy=stage.policy, data=stage.dataset).split()
    assert_refused(["preflight", f"--output_dir={runs}", *given], words, capsys, runs)


def test_ctrl_c_ends_with_130(stage: Wired, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def raise_interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "read_wiring", raise_interrupt)
    assert main(["preflight", f"--policy.path={stage.policy}"]) == 130
    assert "Traceback" not in capsys.readouterr().err
