"""strobe preflight with a data set: the policy is run on recorded frames, or files are read alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.turning_arm import TOP, WRIST, recording, saved, written

from strobe.cli.main import main


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("turning") / "policy", recording().meta.stats)


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded by a robot whose cameras change places."""
    root = tmp_path_factory.mktemp("turning") / "swapped"
    return written(root, recording(lambda ticks: ticks | {TOP: ticks[WRIST], WRIST: ticks[TOP]}, episodes=6))


def run(folder: Path, *flags: str) -> tuple[int, dict]:
    code = main(["preflight", f"--output_dir={folder}", *flags])
    (kept,) = folder.glob("*/result.json")
    return code, json.loads(kept.read_text())


def test_a_miswiring_that_no_file_shows_is_named_and_its_flag_mends_it(
    checkpoint: Path, swapped: Path, tmp_path: Path
) -> None:
    flags = [f"--policy.path={checkpoint}", f"--dataset.root={swapped}", "--held_out=[4,5]"]
    code, result = run(tmp_path / "first", *flags)
    (finding,) = [each for each in result["findings"] if each["level"] == "warning"]
    assert code == 1
    assert finding["rule"] == "wired-otherwise-cameras"
    assert [part["name"] for part in result["open_loop"]["parts"]] == ["all", "training", "held out"]
    assert result["hypotheses"][0]["outcome"] == "claimed"
    mend = finding["do"].replace("'", "")  # as a shell hands it on
    code, result = run(tmp_path / "second", *flags, mend)
    assert code == 0
    assert result["open_loop"]["parts"][0]["explained"] > 0.95


def test_files_alone_are_read_where_that_is_asked_for(checkpoint: Path, swapped: Path, tmp_path: Path) -> None:
    code, result = run(tmp_path, f"--policy.path={checkpoint}", f"--dataset.root={swapped}", "--read_only")
    assert code == 0
    assert result["open_loop"] is None
    assert result["hypotheses"] == []


def test_files_are_read_without_torch(checkpoint: Path, swapped: Path, tmp_path: Path) -> None:
    flags = [f"--policy.path={checkpoint}", f"--dataset.root={swapped}", "--read_only", f"--output_dir={tmp_path}"]
    script = (
        f"import sys; from strobe.cli.main import main; main(['preflight', *{flags}]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_episode_that_is_not_there_is_said(checkpoint: Path, swapped: Path, tmp_path: Path) -> None:
    _, result = run(tmp_path, f"--policy.path={checkpoint}", f"--dataset.root={swapped}", "--dataset.episodes=[0,99]")
    assert "no episode 99" in result["open_loop"]["unjudged"]
