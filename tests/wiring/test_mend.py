"""`strobe preflight --mend`: a copy without the planted fault, which LeRobot loads, beside an untouched original."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.wired import Tensors, Wired

from strobe.errors import UserError
from strobe.policies.loading import load_subject
from strobe.policies.options import PolicyOptions
from strobe.results.preflight import PreflightResult
from strobe.studies.preflight.run import Preflight, preflight
from strobe.wiring.checkpoint import read_checkpoint


def inert(stage: Wired) -> None:
    def renamed(tensors: Tensors) -> Tensors:
        return {name.replace("observation.state", "observation.joints"): values for name, values in tensors.items()}

    stage.change_statistics("pre", renamed)


def missing(stage: Wired) -> None:
    def without(tensors: Tensors) -> Tensors:
        return {name: values for name, values in tensors.items() if not name.startswith("action")}

    stage.change_statistics("post", without)


def not_numbers(stage: Wired) -> None:
    nan = np.full(6, np.nan, np.float32)
    stage.change_statistics("pre", lambda tensors: tensors | {"observation.state.std": nan})


def of_other_data(stage: Wired) -> None:
    far = np.full(6, 90.0, np.float32)
    stage.change_statistics("pre", lambda tensors: tensors | {"observation.state.mean": far})


def in_weights(stage: Wired) -> None:
    """As LeRobot before 0.4 saved them: the same statistics as buffers, and no processors."""
    checkpoint = read_checkpoint(stage.policy)
    assert checkpoint.preprocessor is not None
    buffers: Tensors = {}
    for feature, statistics in checkpoint.preprocessor.normalisers[0].statistics.items():
        module = "unnormalize_outputs" if feature == "action" else "normalize_inputs"
        shape = (-1, 1, 1) if "images" in feature else (-1,)
        for name in ("mean", "std"):
            values = np.array(statistics[name], np.float32).reshape(shape)
            buffers[f"{module}.buffer_{feature.replace('.', '_')}.{name}"] = values
    for file in stage.policy.glob("policy_p*"):
        file.unlink()
    stage.change_weights(lambda tensors: tensors | buffers)


def compiled(stage: Wired) -> None:
    stage.change_weights(lambda tensors: {f"_orig_mod.{name}": values for name, values in tensors.items()})


def another_version(stage: Wired) -> None:
    stage.configure(use_magic=True)


def checksum(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.parametrize("plant", [inert, missing, not_numbers, of_other_data, in_weights, compiled, another_version])
def test_the_mended_copy_acts_as_the_sound_policy_does(
    plant: Callable[[Wired], None], policy: Path, stage: Wired, tmp_path: Path
):
    plant(stage)
    before = checksum(stage.policy)
    look = Preflight(stage.policy, stage.dataset, stage.robot, mend=tmp_path / "mended")
    result = preflight(look)
    assert isinstance(result, PreflightResult)
    assert result.mended
    assert checksum(stage.policy) == before
    stage.policy = tmp_path / "mended"
    assert stage.findings() == []
    sound, mended = (
        load_subject(PolicyOptions(path=str(folder), overrides=["--device=cpu"])) for folder in (policy, stage.policy)
    )
    torch.testing.assert_close(mended.policy.state_dict(), sound.policy.state_dict(), rtol=0, atol=0)
    observation = {"observation.state": torch.full((1, 6), 3.0)} | {
        f"observation.images.{name}": torch.full((1, 3, 64, 64), 0.5) for name in ("front", "wrist")
    }
    actions = []
    for subject in (sound, mended):
        subject.policy.reset()
        with torch.inference_mode():
            batch = subject.loaded.preprocessor(dict(observation))
            actions.append(subject.loaded.postprocessor(subject.policy.select_action(batch)))
    torch.testing.assert_close(actions[1], actions[0], rtol=1e-5, atol=1e-5)


def test_a_copy_is_not_written_over_a_folder_that_is_there(stage: Wired):
    another_version(stage)
    with pytest.raises(UserError, match="exists already"):
        preflight(Preflight(stage.policy, mend=stage.policy))


def test_nothing_to_mend_leaves_no_folder(stage: Wired, tmp_path: Path):
    with pytest.raises(UserError, match="nothing in"):
        preflight(Preflight(stage.policy, mend=tmp_path / "mended"))
    assert not (tmp_path / "mended").exists()


def test_a_field_of_the_command_line_is_no_fault_of_the_file(stage: Wired):
    result = preflight(Preflight(stage.policy, settings={"no_such_field": 1}))
    assert isinstance(result, PreflightResult)
    assert result.wiring.unknown_fields == []


def test_a_copy_that_cannot_be_finished_leaves_no_folder(stage: Wired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    compiled(stage)
    monkeypatch.setattr("strobe.wiring.mend.rename_weights", full)
    with pytest.raises(OSError, match="No space"):
        preflight(Preflight(stage.policy, mend=tmp_path / "mended"))
    assert not (tmp_path / "mended").exists()
