"""strobe evaluate --policies with a real simulator and tiny checkpoints, and what is wrong in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.builders.checkpoints import pusht_checkpoint
from support.checks.run_contents import logged_episodes, sole_run

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.evaluate.episode_log import NAME
from strobe.evaluate.flags import take_policies

PLAYS = ["--env.type=pusht", "--env.episode_length=8", "--threads=1", "--videos=1"]


@pytest.fixture(scope="module")
def trained_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LeRobot's folder of checkpoints: a diffusion policy of two seeds, an ACT, and the link to the last one."""
    folder = tmp_path_factory.mktemp("train") / "checkpoints"
    pusht_checkpoint(folder / "000100" / "pretrained_model", kind="diffusion", seed=1)
    pusht_checkpoint(folder / "000200" / "pretrained_model", kind="diffusion", seed=2)
    pusht_checkpoint(folder / "000300" / "pretrained_model")
    (folder / "last").symlink_to("000300")
    return folder


def policies(folder: Path, *names: str) -> list[str]:
    return [str(folder / name / "pretrained_model") for name in names]


def outcomes(folder: Path) -> dict[tuple[str, int], tuple[str, float]]:
    return {
        (line["variant"], line["seed"]): (line["start"], line["motion"]["path"]) for line in logged_episodes(folder)
    }


def test_checkpoints_of_two_types_play_the_same_starts_and_a_killed_run_goes_on(
    trained_checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["000100", "000200", "000300"]
    paths = policies(trained_checkpoints, *names, "last")
    flags = [*PLAYS, "--episodes=3", f"--output_dir={tmp_path}", "--policies", *paths]
    assert main(["evaluate", *flags]) == 0
    folder = sole_run(tmp_path)
    episodes = logged_episodes(folder)
    assert [(line["variant"], line["seed"]) for line in episodes] == [
        (name, seed) for seed in range(3) for name in names
    ]
    assert len({(line["seed"], line["start"]) for line in episodes}) == 3, "each start is the same for all"
    assert len({line["motion"]["path"] for line in episodes[:3]}) == 3, "each episode is of its own policy"
    shown = " ".join(capsys.readouterr().out.split())
    assert "No episode succeeded. 0 of 9 episodes" in shown
    assert "Nothing separates the checkpoints" in shown
    result: Any = store.load_answer(folder)
    assert [each.policy for each in result.elimination.checkpoints] == ["diffusion", "diffusion", "act"]
    assert {each.times_not_judged for each in result.elimination.checkpoints[1:]} == {
        "no episode succeeded within its limit"
    }
    assert {video.variant for video in result.videos} == set(names)
    assert any("last/pretrained_model is the folder" in note for note in result.notes)
    assert (folder / "report.html").is_file()

    before = outcomes(folder)
    lines = (folder / NAME).read_bytes().splitlines(keepends=True)
    (folder / NAME).write_bytes(b"".join(lines[:5]) + lines[5][:30])  # as a kill leaves it
    assert main(["evaluate", *flags, f"--resume={folder}"]) == 0
    assert outcomes(folder) == before
    assert len(logged_episodes(folder)) == 9, "no episode is played twice"

    capsys.readouterr()
    fewer = [
        *PLAYS,
        "--episodes=3",
        f"--policies={','.join(policies(trained_checkpoints, *names[:2]))}",
        f"--resume={folder}",
    ]
    assert main(["evaluate", *fewer]) == 2
    assert "began with other flags" in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.slow("two real processes that import LeRobot")
def test_side_by_side_each_process_plays_all_checkpoints(trained_checkpoints: Path, tmp_path: Path) -> None:
    flags = [*PLAYS, "--episodes=2", f"--policies={','.join(policies(trained_checkpoints, '000100', '000300'))}"]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, more in zip(folders, ([], ["--parallel=2"]), strict=True):
        assert main(["evaluate", *flags, *more, f"--output_dir={folder}"]) == 0
    assert outcomes(sole_run(folders[0])) == outcomes(sole_run(folders[1]))
    both: Any = [store.load_answer(sole_run(folder)) for folder in folders]
    files = [[video.file for video in each.videos] for each in both]
    assert files[0] == files[1]
    assert len(files[0]) == 2


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--policies={0}"], "name two checkpoints or more"),
        (["--policies="], "--policies names no checkpoint"),
        (["--policies={0},{0}"], "000100/pretrained_model is named twice"),
        (["--policies={0},{1}/none"], "there is no folder"),
        (["--policies={0},{1}/.."], "there is no config.json in it; did you mean"),
        (["--policies={0},{1}", "--policy.type=act"], "leave out --policy.path and --policy.type"),
        (["--policies={0},{1}", "--realtime"], "--realtime is for variants of one policy"),
        (["--policies={0},{1}", "--steps=2"], "--steps is for variants of one policy"),
        (["--policies={0},{1}", "--n_action_steps=2"], "--n_action_steps is for variants of one policy"),
        (["--policies={0},{1}", "--recipe=fast.yaml"], "--recipe is for variants of one policy"),
        (["--policies={0},{1}", "--latency=100"], "--latency needs --realtime"),
        (["--policies={0},{1}", "--launcher=ray"], "--policies plays on this machine"),
        (["--policies={0},{1}", "--policy.chunks=3"], "chunks"),
    ],
)
def test_wrong_input_is_one_line_before_anything_is_loaded(
    flags: list[str], named: str, trained_checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [flag.format(*policies(trained_checkpoints, "000100", "000200")) for flag in flags]
    assert main(["evaluate", *PLAYS, *given]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert named in " ".join(said)
    assert "Traceback" not in "".join(said)


def test_folders_stand_between_spaces_as_a_shell_writes_them() -> None:
    flags = ["--env.type=pusht", "--policies", "a/1", "a/2", "--episodes", "3"]
    assert take_policies(flags) == ["--env.type=pusht", "--episodes", "3", "--policies=a/1,a/2"]
    assert take_policies(["--steps=2"]) == ["--steps=2"]
