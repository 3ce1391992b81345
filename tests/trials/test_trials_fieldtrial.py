"""A plan as a study of fieldtrial and back, where that is installed; one line where it is not."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from strobe.core.errors import UserError
from strobe.trials.judge import judge_trials
from strobe.trials.plan import Drawn, Setting, draw, write
from strobe.trials.sheet import write_study

installed = importlib.util.find_spec("fieldtrial") is not None
SETTINGS = (
    Setting(name="default", flags=["--policy.n_action_steps=50"]),
    Setting(name="tuned", flags=["--policy.n_action_steps=10"]),
)


def write_plan(folder: Path) -> Drawn:
    drawn = draw(SETTINGS, 14, margin=0.1, limit_s=60, seed=2)
    write(drawn, folder)
    return drawn


def test_without_fieldtrial_there_is_one_line_and_no_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = write_study(write_plan(tmp_path), tmp_path)
    assert said == "none: fieldtrial is not installed (pip install fieldtrial)"
    assert not (tmp_path / "study.yaml").exists()
    (tmp_path / "study.yaml").write_text("fieldtrial: 1\n")
    with pytest.raises(UserError, match="is a study of fieldtrial, which is not installed: pip install fieldtrial"):
        judge_trials(tmp_path / "study.yaml")


@pytest.mark.skipif(not installed, reason="needs fieldtrial")
def test_a_study_of_fieldtrial_is_written_and_judged_with_the_plans_key(tmp_path: Path) -> None:
    services: Any = importlib.import_module("fieldtrial.services.study")
    transfer: Any = importlib.import_module("fieldtrial.services.transfer")
    drawn = write_plan(tmp_path)
    assert "fieldtrial lock" in write_study(drawn, tmp_path)
    study = (tmp_path / "study.yaml").read_text()
    assert "tuned" not in study
    assert "n_action_steps" not in study
    assert yaml.safe_load(study)["limits"] == {"timeout_s": 60}
    with pytest.raises(UserError, match="fieldtrial cannot read"):
        judge_trials(tmp_path / "study.yaml")
    services.lock_study(tmp_path)
    default = json.loads((tmp_path / "key.json").read_text())["default"]
    table = tmp_path / "from-elsewhere.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["condition", "arm", "success", "duration_s"])
        for pair in range(1, 13):
            rows.writerows([[f"pair={pair}", code, "no" if code == default else "yes", "12.5"] for code in "AB"])
    transfer.import_trials(tmp_path, table)
    with pytest.raises(UserError, match="is still blinded: fieldtrial unblind"):
        judge_trials(tmp_path / "study.yaml")
    look = judge_trials(tmp_path / "study.yaml", blind=True)
    assert (look.decided, look.settings, look.counted) == (["success", "time"], [], 12)
    services.unblind_study(tmp_path)
    result = judge_trials(tmp_path / "study.yaml")
    assert [setting.name for setting in result.settings] == ["default", "tuned"]
    assert result.rates is not None
    assert (result.rates.decision.kind, result.rates.won) == ("better", 12)
    assert (result.half_run, result.passed_over, result.other_order) == ([], [], [])
