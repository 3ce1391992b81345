"""lerobot-train's arguments become the config that lerobot-train would have; mistakes are one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from strobe.core.errors import UserError
from strobe.train.command import read
from strobe.train.watch import train_config


@pytest.fixture(scope="module")
def training_flags(recording: Path) -> list[str]:
    return ["--dataset.repo_id=local/pusht", f"--dataset.root={recording}", "--policy.type=act", "--policy.device=cpu"]


def test_flags_arrive_as_lerobot_train_takes_them_and_nothing_global_is_left(training_flags: list[str]) -> None:
    before = list(sys.argv)
    config = train_config(
        [
            *training_flags,
            "--policy.repo_id=me/act",
            "--num_workers",
            "2",
            "--dataset.episodes=[1]",
            "--policy.chunk_size=120",
        ]
    )
    assert (config.num_workers, config.dataset.episodes, config.prefetch_factor) == (2, [1], 4)
    assert config.policy is not None
    assert config.policy.type == "act"
    assert config.policy.push_to_hub
    assert getattr(config.policy, "chunk_size", None) == 120
    assert config.optimizer is not None, "validated as far as lerobot-train would"
    assert sys.argv == before


def test_measuring_asks_for_no_repository_and_leaves_an_output_folder_be(
    training_flags: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"add --policy\.push_to_hub=false .* or --policy\.repo_id="):
        train_config(training_flags)
    assert read(["--", *training_flags]).theirs == [*training_flags, "--policy.push_to_hub=false"]
    with pytest.raises(UserError, match="already exists"):
        train_config([*training_flags, "--policy.repo_id=me/act", f"--output_dir={tmp_path}"])
    config = train_config([*training_flags, f"--output_dir={tmp_path}", "--policy.push_to_hub"], measuring=True)
    assert config.policy is not None
    assert not config.policy.push_to_hub


def test_a_saved_config_is_read_and_flags_override_it(training_flags: list[str], tmp_path: Path) -> None:
    train_config(training_flags, measuring=True)._save_pretrained(tmp_path)
    saved = f"--config_path={tmp_path / 'train_config.json'}"
    config = train_config([saved, "--batch_size=3"], measuring=True)
    assert config.batch_size == 3
    assert config.policy is not None
    assert config.policy.type == "act"


def test_a_checkpoint_s_config_is_taken_and_overridden(recording: Path, tmp_path: Path) -> None:
    from support.builders.tiny_policies import build

    _, _, loaded = build("act")
    loaded.policy.save_pretrained(tmp_path)
    data = ["--dataset.repo_id=local/pusht", f"--dataset.root={recording}"]
    config = train_config([*data, f"--policy.path={tmp_path}", "--policy.n_action_steps=3"], measuring=True)
    assert config.policy is not None
    assert config.policy.pretrained_path == tmp_path
    assert getattr(config.policy, "n_action_steps", None) == 3
    later = train_config([*data, "--policy.type=act"], measuring=True)
    assert later.policy is not None
    assert later.policy.pretrained_path is None, "nothing stays from the parse before"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--num_wrokers=3", "did you mean '--num_workers'"), ("--policy.chunksize=3", "did you mean 'chunk_size'"),
        ("--dataset.rot=3", "did you mean '--dataset.root'"), ("--num_workers=many", "num_workers.*int|int.*many"),
        ("--num_workers=-1", "at least 0"), ("--batch_size=0", "at least 1"),
        ("--policy.type=atc", "did you mean 'act'"), ("--policy.chunk_size=3", "chunk size"),
        ("--policy.device=cuda:99", "device"), ("--dataloader_multiprocessing_context=frok", "frok"),
        ("--dataset.root=/nowhere", "no LeRobotDataset at /nowhere"), ("--config_path=/nowhere.json", "/nowhere.json"),
        ("stray", "'stray' is not a flag"), ("--help", "lerobot-train --help"),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_one_line(training_flags: list[str], wrong: str, said: str) -> None:
    kept = [flag for flag in training_flags if flag.split("=")[0] != wrong.split("=")[0]]
    with pytest.raises(UserError, match=said) as caught:
        train_config([*kept, wrong], measuring=True)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named(training_flags: list[str]) -> None:
    with pytest.raises(UserError, match="name the policy"):
        train_config(training_flags[:2])
    with pytest.raises(UserError, match=r"name the dataset.*--dataset\.repo_id"):
        train_config(training_flags[1:])
