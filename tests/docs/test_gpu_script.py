"""`make gpu`: its steps, and the figures that it takes from a run that is kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.places import ROOT
from support.scripts import load_script


@pytest.fixture(scope="module")
def gpu() -> Any:
    return load_script("gpu")


def test_a_ladder_is_told_by_its_ends_and_their_share_of_the_roofline(gpu: Any) -> None:
    result = json.loads((ROOT / "docs" / "examples" / "optimize-act" / "result.json").read_text())
    figures = gpu.of_ladder(result, gpu.Ceilings({"float32": 100.0, "bfloat16": 800.0}, 10.0))
    assert figures["faster"] == pytest.approx(figures["foot_ms"] / figures["top_ms"])
    assert figures["faster"] > 1.5
    # The same work in less time: the share grows as the time falls.
    assert 0 < figures["foot_roofline"] < figures["top_roofline"] < 1
    assert "roofline" in gpu.in_words(figures)


def test_a_run_without_a_ladder_has_no_figures(gpu: Any) -> None:
    assert gpu.of_ladder({"ladder": None, "measurements": [], "machine": {}}, gpu.Ceilings({}, None)) == {}


def test_every_step_runs_on_the_device_that_was_asked_for(gpu: Any) -> None:
    for quick in (False, True):
        steps = gpu.planned("cuda:1", quick)
        assert [step.name for step in steps] == ["tests", "doctor", "pi05", "smolvla", "act", "diffusion", "vjepa2"]
        assert all("--device=cuda:1" in step.command for step in steps[1:])
        sizes = [[flag for flag in step.command if "size=" in flag] for step in steps[2:]]
        assert all(len(size) <= 1 for size in sizes)
        assert all(size == ["--policy.size=tiny"] for size in sizes[:4]) == quick


def test_what_takes_too_long_is_left_out_and_said_so(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []
    monkeypatch.setattr(gpu, "measured_ceilings", lambda _: gpu.Ceilings({}, None))
    monkeypatch.setattr(gpu, "run", lambda step, *_: (ran.append(step.name), setattr(step, "outcome", "done")))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device=cpu", f"--output_dir={tmp_path}", "--minutes=0"])
    assert gpu.main() == 1
    assert ran == []
    assert "left out: 0 minutes were over" in (tmp_path / "summary.md").read_text()
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device=cpu", f"--output_dir={tmp_path}"])
    assert gpu.main() == 0
    assert json.loads((tmp_path / "summary.json").read_text())["steps"][0]["outcome"] == "done"
