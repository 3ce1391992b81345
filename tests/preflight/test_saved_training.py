"""A training, read from its files and from the log that it printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strobe.core.errors import UserError
from strobe.preflight.pages.open_loop import training_sections
from strobe.preflight.results.wiring import SavedTraining
from strobe.preflight.wiring.checkpoint import Checkpoint, read_training

LINE = "INFO 2026-11-30 10:00:{:02d} rain.py:1 step:{} smpl:2K ep:3 epch:{} loss:{} lr:1e-04 updt_s:{} data_s:0.010"


def read(folder: Path, training: dict[str, Any], log: str | None = None) -> SavedTraining | None:
    file = folder / "log.txt"
    file.write_text(log or "")
    policy = folder / "pretrained_model"
    return read_training(Checkpoint(policy, {}, None, None, None, training=training), log=file if log else None)


def test_a_log_gives_its_losses_and_the_seconds_of_a_step(tmp_path: Path):
    lines = [LINE.format(20 * n, 100 * n, 0.5 * n, loss, 0.1 * n) for n, loss in enumerate(("0.9", "nan", "0.5"))]
    found = read(tmp_path, {"steps": 300, "log_freq": 100}, "\n".join(lines))
    assert found is not None
    assert found.log is not None
    assert found.log.losses == [0.9, None, 0.5]
    assert found.log.seconds == pytest.approx({"data_s": 0.01, "updt_s": 0.15})  # without the first line
    assert (found.log.wall_s, found.log.epochs, found.log.learning_rate) == pytest.approx((0.2, 1.0, 1e-4))
    assert read(tmp_path, {}) is None


@pytest.mark.parametrize("log", ["", "Loading", LINE.format(0, 1, 2, 3, 4).replace("-11-", "-13-")])
def test_a_log_without_lines_of_a_training_ends_with_its_name(log: str, tmp_path: Path):
    with pytest.raises(UserError, match=r"--training_log=.*log\.txt"):
        read(tmp_path, {}, log or "\n")


def test_transforms_that_no_file_tells_are_not_called_off(tmp_path: Path):
    log = LINE.format(0, 100, 1, 0.5, 0.1)
    chosen = {"enable": True, "tfs": {"blur": {}}}
    for training, transforms in (({}, None), ({"steps": 9}, []), ({"dataset": {"image_transforms": chosen}}, ["blur"])):
        found = read(tmp_path, training, log)
        assert found is not None
        assert found.transforms == transforms
        assert ("image transforms" in str(training_sections(found)[0].table)) == (transforms is not None)


@pytest.mark.parametrize("training", [{"dataset": 3}, {"steps": "many"}, {"dataset": {"image_transforms": [1]}}])
def test_a_config_of_another_form_ends_with_its_name(training: dict[str, Any], tmp_path: Path):
    with pytest.raises(UserError, match=r"train_config\.json"):
        read(tmp_path, training)
