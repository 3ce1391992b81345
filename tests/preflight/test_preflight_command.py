"""`strobe preflight` from the command line: exit codes, what it imports, and one line for wrong input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.builders.stage import EPISODES, TICKS, Wired, change_json
from support.checks.refusals import assert_refused

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.preflight import run
from strobe.preflight.results.preflight import PreflightResult


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


def missing_folder(stage: Wired) -> list[str]:
    return ["--policy.path=./nowhere"]


def missing_config(stage: Wired) -> list[str]:
    (stage.policy / "config.json").unlink()
    return [f"--policy.path={stage.policy}"]


def broken_config(stage: Wired) -> list[str]:
    (stage.policy / "config.json").write_text('{"type": "act",')
    return [f"--policy.path={stage.policy}"]


def broken_processor(stage: Wired) -> list[str]:
    (stage.policy / "policy_preprocessor.json").write_text("[]")
    return [f"--policy.path={stage.policy}"]


def broken_statistics(stage: Wired) -> list[str]:
    (file,) = stage.policy.glob("policy_preprocessor*.safetensors")
    file.write_bytes(b"short")
    return [f"--policy.path={stage.policy}"]


def hub_only_policy(stage: Wired) -> list[str]:
    return ["--policy.path=somebody/some_policy"]


def old_dataset(stage: Wired) -> list[str]:
    stage.describe(codebase_version="v2.1")
    return [f"--policy.path={stage.policy}", f"--dataset.root={stage.dataset}"]


def missing_dataset(stage: Wired) -> list[str]:
    return [f"--policy.path={stage.policy}", f"--dataset.root={stage.policy}"]


def missing_policy(stage: Wired) -> list[str]:
    return []


def a_model(stage: Wired) -> list[str]:
    return ["--model.type=vjepa2"]


def odd_features(stage: Wired) -> list[str]:
    change_json(stage.policy / "config.json", lambda config: config | {"input_features": [1, 2]})
    return [f"--policy.path={stage.policy}"]


def unknown_rollout_flag(stage: Wired) -> list[str]:
    return [f"--policy.path={stage.policy}", "--", "--robot.type=so101_follower", "--task=x", "--durration=3"]


def odd_data(stage: Wired) -> list[str]:
    stage.describe(features={"action": 3})
    return [f"--dataset.root={stage.dataset}"]


def a_copy_that_changes_nothing(stage: Wired) -> list[str]:
    return [f"--dataset.root={stage.dataset}", f"--fix_data={stage.dataset}-new"]


def a_copy_of_no_data(stage: Wired) -> list[str]:
    return [f"--policy.path={stage.policy}", "--fix_data=new"]


def missing_port(stage: Wired) -> list[str]:
    return [f"--policy.path={stage.policy}", "--", "--robot.type=so101_follower", "--task=x"]


def episodes_of_no_data_set(stage: Wired) -> list[str]:
    return [f"--policy.path={stage.policy}", "--dataset.episodes=[0]"]


def misspelt_setting(stage: Wired) -> list[str]:
    return [f"--policy.path={stage.policy}", "--policy.chunk_sise=5"]


WRONG = {
    odd_data: "are not as LeRobot writes them", a_copy_that_changes_nothing: "already match its frames",
    a_copy_of_no_data: "add --dataset.root=DATA", missing_port: "lerobot-rollout lacks --robot.port=…",
    episodes_of_no_data_set: "add --dataset.root=DATA",
    misspelt_setting: "unknown flag --policy.chunk_sise: did you mean --policy.chunk_size?",
    missing_folder: "there is no folder ./nowhere; use a policy's folder or its Hub id",
    missing_config: "there is no config.json in it", broken_config: "config.json cannot be read",
    broken_processor: "policy_preprocessor.json is not a JSON object", broken_statistics: "safetensors cannot be read",
    hub_only_policy: "somebody/some_policy is not a folder, and the Hub has no such model",
    old_dataset: "it is in LeRobot's format v2.1", missing_dataset: "no LeRobotDataset at",
    missing_policy: "--policy.path=FOLDER", a_model: "--model has no actions",
    odd_features: "are not as LeRobot writes them",
    unknown_rollout_flag: "lerobot-rollout has no flag --durration: did you mean '--duration'?",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_wrong_input_ends_in_one_line(wrong: Any, stage: Wired, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = tmp_path / "runs"
    runs.mkdir()
    assert_refused(["preflight", f"--output_dir={runs}", *wrong(stage)], WRONG[wrong], capsys, runs)


def test_ctrl_c_ends_with_130(stage: Wired, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def raise_interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "read_wiring", raise_interrupt)
    assert main(["preflight", f"--policy.path={stage.policy}"]) == 130
    assert "Traceback" not in capsys.readouterr().err
