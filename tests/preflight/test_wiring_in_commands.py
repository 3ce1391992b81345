"""Commands that run a checkpoint show what is serious in its wiring, beside their own findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.builders import broken_datasets as broken
from support.builders.arm_policy import save_act
from support.builders.checkpoints import pusht_checkpoint

from strobe.core.cli.main import main
from strobe.core.results.answer import BreakdownResult, VerifyResult
from strobe.core.results.recipe import Recipe
from strobe.core.runs import store
from strobe.core.runs.recipe_file import dump
from strobe.evaluate.results import EvaluateResult
from strobe.preflight.findings.wiring import wiring_findings
from strobe.preflight.wiring.of_run import wiring_of_run


def plant_inert_normaliser(policy: Path) -> Path:
    """Put the state's statistics under another name."""
    from safetensors.numpy import load_file, save_file

    (file,) = policy.glob("policy_preprocessor*.safetensors")
    renamed = {name.replace("observation.state", "observation.joints"): t for name, t in load_file(file).items()}
    save_file(renamed, file)
    return policy


def answer(folder: Path) -> Any:
    (run,) = folder.iterdir()
    return store.load_answer(run)


def breakdown(policy: Path, runs: Path) -> Any:
    flags = ["--iterations=2", "--skip_counting", "--skip_detailed", "--policy.device=cpu", f"--output_dir={runs}"]
    assert main(["breakdown", f"--policy.path={policy}", *flags]) == 0
    return answer(runs)


def test_a_breakdown_shows_serious_faults_alone(tmp_path: Path):
    save_act(tmp_path / "policy", 64, 64)
    result = breakdown(plant_inert_normaliser(tmp_path / "policy"), tmp_path / "runs")
    assert isinstance(result, BreakdownResult)
    assert result.wiring is not None
    found = {finding.rule: finding for finding in result.findings}
    assert found["statistics-absent"].level == "warning"
    assert "acts-long-unseen" not in found


@pytest.mark.parametrize("fault", [True, False])
def test_a_breakdown_shows_the_faults_of_the_data_set_that_is_named(fault: bool, tmp_path: Path):
    """As findings, of random weights too; nothing of a sound data set."""
    root = broken.write_dataset(tmp_path / "data", episodes=3)
    if fault:
        broken.lose_frames(root, 1, 2)
    source = ["--policy.type=act", "--policy.size=tiny", f"--dataset.root={root}", "--dataset.repo_id=local/data"]
    flags = ["--iterations=1", "--skip_counting", "--skip_detailed", f"--output_dir={tmp_path / 'runs'}"]
    assert main(["breakdown", *source, *flags]) == 0
    result = answer(tmp_path / "runs")
    found = {finding.rule: finding.level for finding in result.findings if finding.rule.startswith("data-")}
    assert found == ({"data-lost": "warning"} if fault else {})


def test_a_glance_at_the_data_set_is_added_to_the_wiring_of_a_checkpoint(tmp_path: Path):
    root = broken.write_dataset(tmp_path / "data", episodes=3)
    save_act(tmp_path / "policy", 64, 64)
    look = wiring_of_run(tmp_path / "policy", root)
    assert look.wiring is not None
    assert look.wiring.truth is None
    broken.lose_frames(root, 1, 2)
    look = wiring_of_run(tmp_path / "policy", root)
    assert look.wiring is not None
    assert look.wiring.policy == "act"
    assert [finding.rule for finding in wiring_findings(look.wiring) if finding.rule.startswith("data-")] == [
        "data-lost"
    ]
    others = wiring_of_run(tmp_path / "policy", root, episodes=[0, 2]).wiring
    assert others is not None
    assert others.truth is None


def test_a_data_set_that_cannot_be_read_hides_no_fault_of_the_policy(tmp_path: Path):
    save_act(tmp_path / "policy", 64, 64)
    (tmp_path / "data" / "meta").mkdir(parents=True)
    (tmp_path / "data" / "meta" / "info.json").write_text("{}")
    look = wiring_of_run(plant_inert_normaliser(tmp_path / "policy"), tmp_path / "data")
    assert look.wiring is not None
    assert "statistics-absent" in {finding.rule for finding in wiring_findings(look.wiring)}
    assert any("not judged: whether policy, data and robot match" in note for note in look.notes)


def test_wiring_that_cannot_be_read_costs_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def raise_planted_error(*_: object, **__: object) -> None:
        raise OSError("as planted")

    monkeypatch.setattr("strobe.preflight.wiring.of_run.read_wiring", raise_planted_error)
    save_act(tmp_path / "policy", 64, 64)
    result = breakdown(tmp_path / "policy", tmp_path / "runs")
    assert result.wiring is None
    assert any("policy, data and robot match: OSError: as planted" in note for note in result.notes)


def test_random_weights_have_no_wiring(tmp_path: Path):
    flags = ["--policy.type=act", "--policy.size=tiny", "--policy.device=cpu", "--iterations=2", "--skip_counting"]
    assert main(["breakdown", *flags, "--skip_detailed", f"--output_dir={tmp_path}"]) == 0
    assert answer(tmp_path).wiring is None


def test_an_evaluation_shows_them_and_what_the_policy_has_learnt(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("gym_pusht")
    monkeypatch.setattr("strobe.preflight.wiring.of_run.FRAMES_S", 3.0)
    pusht_checkpoint(tmp_path / "policy")
    plant_inert_normaliser(tmp_path / "policy")
    flags = ["--env.type=pusht", "--env.episode_length=3", "--episodes=1", "--videos=0", "--latency_iterations=0"]
    flags += [f"--dataset.root={recording}", f"--output_dir={tmp_path / 'runs'}"]
    assert main(["evaluate", f"--policy.path={tmp_path / 'policy'}", *flags]) == 0
    result = answer(tmp_path / "runs")
    assert isinstance(result, EvaluateResult)
    assert "statistics-absent" in {finding.rule for finding in result.findings}
    assert result.wiring.on_frames.open_loop.learnt.spread > 0
    assert "WHAT DID IT LEARN?" in capsys.readouterr().out


@pytest.mark.slow("episodes of a simulator, and a policy loaded four times")
def test_what_the_frames_cannot_show_costs_the_episodes_nothing(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("gym_pusht")
    pusht_checkpoint(tmp_path / "policy")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("strobe.open_loop.run.open_loop", stop)
    flags = ["--env.type=pusht", "--env.episode_length=3", "--episodes=1", "--videos=0", "--latency_iterations=0"]
    flags += [f"--dataset.root={recording}", f"--output_dir={tmp_path / 'runs'}"]
    assert main(["evaluate", f"--policy.path={tmp_path / 'policy'}", *flags]) == 130
    result = answer(tmp_path / "runs")
    assert len(result.variants) == 1
    assert "not judged: what the policy has learnt: Ctrl-C came first" in result.caveats
    monkeypatch.undo()
    flags[-1:] = [f"--output_dir={tmp_path / 'again'}", "--dataset.episodes=[0,9]"]
    assert main(["evaluate", f"--policy.path={tmp_path / 'policy'}", *flags]) == 0
    assert any("the data set has no episode 9" in caveat for caveat in answer(tmp_path / "again").caveats)


def test_a_verification_shows_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The recipe passes: the policy is as wrong with it as without. The finding says that both are (lerobot #4446)."""
    policy = tmp_path / "policy"
    save_act(policy, 64, 64)
    recipe = tmp_path / "recipe.yaml"
    dump(Recipe(policy="act", treatments=[{"precision": "bf16"}], guard="rms<=9"), recipe)
    flags = [f"--policy.path={policy}", f"--recipe={recipe}", "--policy.device=cpu", "--observations=2", "--passes=1"]
    assert main(["verify", *flags, f"--output_dir={tmp_path / 'sound'}"]) == 0
    assert answer(tmp_path / "sound").wiring is not None
    assert "statistics-absent" not in {finding.rule for finding in answer(tmp_path / "sound").findings}
    plant_inert_normaliser(policy)
    capsys.readouterr()
    assert main(["verify", *flags, f"--output_dir={tmp_path / 'runs'}"]) == 0
    result = answer(tmp_path / "runs")
    assert isinstance(result, VerifyResult)
    found = {finding.rule: finding for finding in result.findings}
    assert found["statistics-absent"].level == "warning"
    assert "acts-long-unseen" not in found
    assert "! Nothing normalises observation.state" in capsys.readouterr().out
