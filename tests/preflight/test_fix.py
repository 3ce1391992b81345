"""`strobe preflight --fix`: a copy without the planted fault, which LeRobot loads, beside a baseline original."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from support.builders.stage import (
    INERT,
    MISSING,
    NOT_NUMBERS,
    OF_OTHER_DATA,
    Plant,
    Tensors,
    Wired,
    another_version,
    remove_normaliser,
    weights_called,
)  # fmt: skip

from strobe.core.errors import UserError
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.preflight.results.wiring import PreflightResult
from strobe.preflight.run import Preflight, preflight
from strobe.preflight.wiring.checkpoint import read_checkpoint


def move_statistics_to_weights(stage: Wired) -> None:
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


PLANTED: dict[str, Plant] = {
    "inert": INERT, "missing": MISSING, "not numbers": NOT_NUMBERS, "of other data": OF_OTHER_DATA,
    "in the weights": move_statistics_to_weights, "compiled": weights_called("_orig_mod."),
    "another version": another_version, "no normaliser": remove_normaliser,
}  # fmt: skip


def checksum(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.parametrize("name", PLANTED)
def test_the_fixed_copy_acts_as_the_sound_policy_does(name: str, policy: Path, stage: Wired, tmp_path: Path):
    PLANTED[name](stage)
    before = checksum(stage.policy)
    look = Preflight(stage.policy, stage.dataset, stage.robot, fix=tmp_path / "fixed")
    result = preflight(look)
    assert isinstance(result, PreflightResult)
    assert result.fixed
    assert checksum(stage.policy) == before
    stage.policy = tmp_path / "fixed"
    assert stage.findings() == []
    sound, fixed = (
        load_subject(PolicyOptions(path=str(folder), overrides=["--device=cpu"])) for folder in (policy, stage.policy)
    )
    torch.testing.assert_close(fixed.policy.state_dict(), sound.policy.state_dict(), rtol=0, atol=0)
    observation = {"observation.state": torch.full((1, 6), 3.0)} | {
        f"observation.images.{name}": torch.full((1, 3, 64, 64), 0.5) for name in ("front", "wrist")
    }
    actions = []
    for subject in (sound, fixed):
        subject.policy.reset()
        with torch.inference_mode():
            batch = subject.loaded.preprocessor(dict(observation))
            actions.append(subject.loaded.postprocessor(subject.policy.select_action(batch)))
    torch.testing.assert_close(actions[1], actions[0], rtol=1e-5, atol=1e-5)


def test_a_copy_is_not_written_over_a_folder_that_is_there(stage: Wired):
    another_version(stage)
    with pytest.raises(UserError, match="this folder exists"):
        preflight(Preflight(stage.policy, fix=stage.policy))


def test_nothing_to_fix_leaves_no_folder(stage: Wired, tmp_path: Path):
    with pytest.raises(UserError, match="nothing to fix"):
        preflight(Preflight(stage.policy, fix=tmp_path / "fixed"))
    assert not (tmp_path / "fixed").exists()


def test_a_field_of_the_command_line_is_no_fault_of_the_file(stage: Wired):
    result = preflight(Preflight(stage.policy, settings={"no_such_field": 1}))
    assert isinstance(result, PreflightResult)
    assert result.wiring.unknown_fields == []


def test_a_copy_that_cannot_be_finished_leaves_no_folder(stage: Wired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    PLANTED["compiled"](stage)
    monkeypatch.setattr("strobe.preflight.wiring.fix.rename_weights", full)
    with pytest.raises(OSError, match="No space"):
        preflight(Preflight(stage.policy, fix=tmp_path / "fixed"))
    assert not (tmp_path / "fixed").exists()
