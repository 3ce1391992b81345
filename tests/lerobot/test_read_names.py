"""Names of weights that a checkpoint lacks, has too many of, or has in another shape, for every type of policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.builders.checkpoints import tiny_checkpoint
from support.suite.matrix import matrix

from strobe.core.errors import UserError
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.policies.checkpoints import ReadNames, UnreadWeightsError
from strobe.lerobot.policies.inputs import Inputs

TYPES = (
    "act", "pi0", "smolvla", "diffusion", "eo1", "evo1", "fastwam", "gaussian_actor", "groot", "lingbot_va",
    "molmoact2", "multi_task_dit", "pi0_fast", "pi05", "tdmpc", "vla_jepa", "vqbet", "wall_x", "xvla",
)  # fmt: skip
STRICT = ("evo1", "groot")  # LeRobot's own loading refuses a name that it does not know
Weights = dict[str, torch.Tensor]


def read(folder: Path, inputs: Inputs) -> ReadNames | None:
    config = lerobot_policies.config_from_path(folder, ["--device=cpu"])
    return lerobot_policies.load(config, inputs, size="tiny").read


def change(folder: Path, with_weights: Callable[[Weights], object]) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    with_weights(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("kind", matrix(TYPES, keep=3))
def test_every_type_is_read_whole_and_a_layer_too_many_is_named(kind: str, tmp_path: Path) -> None:
    inputs = tiny_checkpoint(kind, tmp_path).inputs
    names = read(tmp_path, inputs)
    assert names == ReadNames()
    change(tmp_path, lambda weights: weights.update({"model.of_nobody.weight": torch.zeros(2)}))
    if kind in STRICT:
        with pytest.raises(UserError, match="RuntimeError"):
            read(tmp_path, inputs)
        return
    names = read(tmp_path, inputs)
    assert names is not None
    assert names.missing == []
    assert [name.endswith("of_nobody.weight") for name in names.unexpected] == [True]


@pytest.fixture(scope="module", params=["act", "pi05"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Inputs]:
    folder = tmp_path_factory.mktemp(request.param)
    return folder, tiny_checkpoint(request.param, folder).inputs


def test_what_is_missing_and_what_has_another_shape_is_named(checkpoint: tuple[Path, Inputs]) -> None:
    folder, inputs = checkpoint
    names: list[str] = []

    def drop(weights: Weights) -> None:
        names.extend(sorted(weights)[:2])
        del weights[names[0]]

    change(folder, drop)
    with pytest.raises(UnreadWeightsError) as caught:
        read(folder, inputs)
    assert caught.value.names == ReadNames(missing=names[:1])
    change(folder, lambda weights: weights.update({names[1]: torch.zeros(3)}))
    with pytest.raises(UnreadWeightsError) as caught:
        read(folder, inputs)
    assert caught.value.names == ReadNames(missing=names[:1], reshaped=names[1:])


def test_random_weights_are_read_from_no_file(tmp_path: Path) -> None:
    assert tiny_checkpoint("act", tmp_path).loaded.read is None
