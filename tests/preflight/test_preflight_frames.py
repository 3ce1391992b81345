"""strobe preflight with a data set: the policy is run on recorded frames, or files are read alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lerobot.configs.default import DatasetConfig
from safetensors.numpy import load_file, save_file
from support.builders.tiny_policies import load_tiny_subject
from support.builders.turning_arm import STATE, TOP, WRIST, recording, save_policy, write_dataset
from support.suite.places import TESTS

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.lerobot.policies.options import InputOptions

GOLDEN = TESTS / "golden" / "rollout"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("turning") / "policy", recording().meta.stats)


@pytest.fixture(scope="module")
def swapped_cameras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded by a robot whose cameras change places."""
    root = tmp_path_factory.mktemp("turning") / "swapped"
    return write_dataset(root, recording(lambda ticks: ticks | {TOP: ticks[WRIST], WRIST: ticks[TOP]}, episodes=6))


def run(folder: Path, *flags: str) -> tuple[int, dict]:
    code = main(["preflight", f"--output_dir={folder}", *flags])
    (kept,) = folder.glob("*/result.json")
    return code, json.loads(kept.read_text())


@pytest.mark.slow("a trained policy on frames, with and without the flag", each_change=True)
def test_a_miswiring_that_no_file_shows_is_named_and_its_flag_fixes_it(
    checkpoint: Path, swapped_cameras: Path, tmp_path: Path
) -> None:
    trained = shutil.copytree(checkpoint, tmp_path / "trained")
    said = {"dataset": {"root": str(swapped_cameras), "episodes": [0, 1, 2, 3]}}
    (trained / "train_config.json").write_text(json.dumps(said))
    flags = [f"--policy.path={trained}", f"--dataset.root={swapped_cameras}"]
    code, result = run(tmp_path / "first", *flags)
    (finding,) = [each for each in result["findings"] if each["level"] == "warning"]
    assert code == 1
    assert finding["rule"] == "wired-otherwise-cameras"
    assert [part["name"] for part in result["open_loop"]["parts"]] == ["all", "training", "held out"]
    assert "held out: episodes 4 and 5 (train_config.json)" in result["notes"]
    assert result["hypotheses"][0]["outcome"] == "claimed"
    fix = finding["do"].replace("'", "")  # as a shell hands it on
    code, result = run(tmp_path / "second", *flags, fix)
    assert code == 0
    assert result["open_loop"]["parts"][0]["explained"] > 0.95


def test_ctrl_c_while_the_policy_is_loaded_costs_nothing_that_the_files_say(
    checkpoint: Path, swapped_cameras: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strobe.open_loop.run.open_loop", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    code, result = run(tmp_path, f"--policy.path={checkpoint}", f"--dataset.root={swapped_cameras}")
    assert (code, result["status"]) == (130, "interrupted")
    assert result["wiring"]["wires"]


@pytest.mark.slow("a policy played on recorded frames")
def test_a_run_of_the_policy_is_read_once(
    checkpoint: Path, swapped_cameras: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, reads = store.load_answer, []

    def load_counted(path: Path | str) -> object:
        reads.append(path)
        return load(path)

    monkeypatch.setattr(store, "load_answer", load_counted)
    flags = [f"--policy.path={checkpoint}", f"--dataset.root={swapped_cameras}", f"--rollout={GOLDEN}", "--seconds=4"]
    _, result = run(tmp_path, *flags)
    assert reads == [GOLDEN]
    shown = [result["wiring"]["lag"]["run"], result["wiring"]["timing"]["call"]["run"]]
    assert [*shown, result["open_loop"]["first_jump"]["run"]] == [str(GOLDEN)] * 3


def test_files_alone_are_read_where_that_is_asked_for(checkpoint: Path, swapped_cameras: Path, tmp_path: Path) -> None:
    code, result = run(tmp_path, f"--policy.path={checkpoint}", f"--dataset.root={swapped_cameras}", "--read_only")
    assert code == 0
    assert result["open_loop"] is None
    assert result["hypotheses"] == []


def test_files_are_read_without_torch(checkpoint: Path, swapped_cameras: Path, tmp_path: Path) -> None:
    flags = [
        f"--policy.path={checkpoint}",
        f"--dataset.root={swapped_cameras}",
        "--read_only",
        f"--output_dir={tmp_path}",
    ]
    script = f"import sys; from strobe.core.cli.main import main; main(['preflight', *{flags}])"
    script += "; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_episode_that_is_not_there_is_said(checkpoint: Path, swapped_cameras: Path, tmp_path: Path) -> None:
    _, result = run(
        tmp_path, f"--policy.path={checkpoint}", f"--dataset.root={swapped_cameras}", "--dataset.episodes=[0,99]"
    )
    assert "no episode 99" in result["open_loop"]["unjudged"]


def copy_with_weights(policy: Path, folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> Path:
    """Return a copy of a checkpoint with changed weights."""
    shutil.copytree(policy, folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def save_act(dataset: Path, folder: Path) -> Path:
    """Save an ACT of random weights for a data set in ``folder``."""
    source = InputOptions(dataset=DatasetConfig(repo_id="local/data", root=str(dataset)))
    subject = load_tiny_subject("act", inputs=source)
    for part in (subject.policy, subject.loaded.preprocessor, subject.loaded.postprocessor):
        part.save_pretrained(folder)
    return folder


@pytest.mark.slow("a policy loaded three times")
def test_weights_that_are_not_read_are_named(swapped_cameras: Path, tmp_path: Path) -> None:
    policy = save_act(swapped_cameras, tmp_path / "policy")
    flags = [f"--dataset.root={swapped_cameras}", "--seconds=1"]

    def names(kind: str, change: Callable[[dict[str, np.ndarray]], object]) -> dict[str, dict]:
        changed = copy_with_weights(policy, tmp_path / kind, change)
        _, result = run(tmp_path / f"{kind}-runs", f"--policy.path={changed}", *flags)
        assert result["wiring"]["weights"]["missing"] is not None
        return {each["rule"]: each for each in result["findings"] if each["rule"].startswith("weights")}

    head = "model.action_head.weight"
    assert names("sound", lambda weights: None) == {}
    missing = names("missing", lambda weights: weights.pop(head))
    assert missing["weights-missing"]["level"] == "warning"
    assert f"1 weights are missing, such as {head}" in missing["weights-missing"]["found"]
    reshaped = names("reshaped", lambda weights: weights.update({head: np.zeros((2, 2), np.float32)}))
    assert f"1 weights have another shape, such as {head}" in reshaped["weights-missing"]["found"]
    more = names("more", lambda weights: weights.update({"model.of_nobody": np.zeros(2, np.float32)}))
    assert more["weights-unused"]["level"] == "info"
    assert "model.of_nobody" in more["weights-unused"]["found"]


def narrow(ticks: dict) -> dict:
    """A part of the motion alone: its statistics are not those of the training, and the policy acts well in it."""
    first = ticks[STATE][:, 0]
    inside = first > first.min() + 0.75 * np.ptp(first)
    begin = int(np.argmax(inside))
    end = begin + int(np.argmin(np.append(inside[begin:], False)))
    return {key: values[begin:end] for key, values in ticks.items()}


@pytest.mark.slow("a policy and its fixed copy on recorded frames, twice")
def test_a_fixed_copy_that_explains_less_is_not_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics of other frames would be put in the place of those of the training; those that lack are filled in."""
    other = write_dataset(tmp_path / "other", recording(narrow, episodes=6))
    new = tmp_path / "new"
    _, result = run(tmp_path / "a", f"--policy.path={checkpoint}", f"--dataset.root={other}", f"--fix={new}")
    assert "statistics-of-other-data" in {each["rule"] for each in result["findings"]}
    assert result["fixed"] == []
    assert ", the checkpoint with R² = " in result["unfixed"]
    assert not new.exists()

    sound = write_dataset(tmp_path / "sound", recording(episodes=6))
    lacking = tmp_path / "lacking"
    shutil.copytree(checkpoint, lacking)
    (file,) = lacking.glob("policy_preprocessor*.safetensors")
    save_file({name: each for name, each in load_file(file).items() if not name.startswith(STATE)}, file)
    _, result = run(tmp_path / "b", f"--policy.path={lacking}", f"--dataset.root={sound}", f"--fix={new}")
    assert result["unfixed"] is None
    assert any("It predicts the recorded actions" in line and "the checkpoint with" in line for line in result["fixed"])
    assert (new / "config.json").exists()

    def raise_interrupt(*_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr("strobe.open_loop.run.explained_share", raise_interrupt)
    newer = tmp_path / "newer"
    _, result = run(tmp_path / "c", f"--policy.path={lacking}", f"--dataset.root={sound}", f"--fix={newer}")
    assert (result["status"], result["fixed"]) == ("interrupted", [])
    assert "Ctrl-C" in result["unfixed"]
    assert not newer.exists(), "a copy that is not proven does not stay"
