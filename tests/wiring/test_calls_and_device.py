"""A device that is asked for and is not there; calls that take longer than their actions last (lerobot #4580)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from support.wired import Wired

from strobe.findings.wiring import findings_of
from strobe.results.finding import Finding
from strobe.results.wiring import CallTime, DeviceHere, Wiring
from strobe.wiring import device
from strobe.wiring.read import read_wiring


def called(stage: Wired, ms: float, **fields: Any) -> Wiring:
    wiring = stage.read()
    wiring.timing.call = CallTime(ms=ms, **fields)
    return wiring


def late(wiring: Wiring) -> Finding | None:
    return next((each for each in findings_of(wiring) if each.rule == "call-longer-than-chunk"), None)


def test_a_call_of_36_ticks_is_too_long_for_10_actions(stage: Wired):
    finding = late(called(stage, 1200.0))
    assert finding is not None
    assert finding.level == "warning"
    assert finding.seen == (
        "A call takes 1.2 s = 36.0 ticks at 30 Hz, on recorded frames on this machine; n_action_steps is 10."
    )
    assert "stands still for 35 ticks in each chunk, and moves for 10" in finding.why
    assert "--policy.n_action_steps=30, of a chunk of 30, which shortens the halts and does not end them" in finding.do
    assert "strobe optimize --policy.path=" in finding.do
    assert "--fps=8" in finding.do


@pytest.mark.parametrize("ms", [0.0, 5.0, 330.0])
def test_a_call_that_is_over_in_time_is_none(ms: float, stage: Wired):
    assert late(called(stage, ms)) is None


def test_no_call_was_measured_and_nothing_is_claimed(stage: Wired):
    assert stage.read().timing.call is None
    assert late(stage.read()) is None


def test_the_longer_chunk_that_is_named_mends_it(stage: Wired):
    finding = late(called(stage, 600.0))
    assert finding is not None
    assert "--policy.n_action_steps=18, of a chunk of 30. Or" in finding.do
    wiring = read_wiring(stage.policy, stage.dataset, stage.robot, settings={"n_action_steps": 18})
    wiring.timing.call = CallTime(ms=600.0)
    assert late(wiring) is None


def test_the_lower_rate_that_is_named_mends_it(stage: Wired):
    finding = late(called(stage, 600.0))
    assert finding is not None
    assert "--fps=16, at which 10 ticks cover a call, with data that was recorded at that rate" in finding.do
    stage.robot = replace(stage.robot, fps=16.0)
    assert late(called(stage, 600.0)) is None


def test_real_time_chunking_needs_a_chunk_for_two_calls(stage: Wired):
    stage.robot = replace(stage.robot, engine="rtc", execution_horizon=10)
    assert late(called(stage, 500.0)) is None
    finding = late(called(stage, 600.0))  # 18 ticks
    assert finding is not None
    assert "12 actions of each chunk are still due when it arrives" in finding.why
    assert "has no action for 6 ticks in each" in finding.why
    assert "--fps=25, at which 15 ticks cover a call" in finding.do
    never = late(called(stage, 1000.0))
    assert never is not None
    assert never.title.endswith("every chunk is over before it arrives")


def test_without_a_rollout_here_it_is_no_fault_of_the_robot(stage: Wired):
    wiring = read_wiring(stage.policy, stage.dataset)
    wiring.timing.call = CallTime(ms=1200.0)
    finding = late(wiring)
    assert finding is not None
    assert finding.level == "info"
    wiring.timing.call = CallTime(ms=1200.0, run="runs/rehearsal", fps=30.0, engine="rtc")
    finding = late(wiring)
    assert finding is not None
    assert finding.level == "warning"
    assert "in runs/rehearsal" in finding.seen


def test_a_flow_policy_is_told_its_other_ways(saved: Any, stage: Wired):
    wiring = read_wiring(saved["smolvla"][0], None, None)
    assert wiring.guidable
    assert wiring.timing.steps == 2
    wiring.timing.data_fps = 30.0
    wiring.timing.executed, wiring.timing.chunk = 10, 50
    wiring.timing.call = CallTime(ms=700.0)  # 21 ticks
    finding = late(wiring)
    assert finding is not None
    assert "inference.type=rtc predicts while the arm moves" in finding.do
    assert "--policy.num_steps, now 2" in finding.do


def absent(wiring: Wiring) -> Finding | None:
    return next((each for each in findings_of(wiring) if each.rule == "device-absent"), None)


def test_a_device_that_is_there_is_no_finding(stage: Wired):
    wiring = stage.read()
    assert wiring.device == "cpu"
    assert wiring.device_here is not None
    assert wiring.device_here.there is True
    assert absent(wiring) is None


@pytest.mark.parametrize(
    ("asked", "by", "flag"),
    [
        ({"configured": "mps"}, "config.json", "--policy.device=cpu"),
        ({"setting": "mps"}, "--policy.device", "--policy.device=cpu"),
        ({"flag": "mps"}, "--device", "--device=cpu"),
    ],
)
def test_a_device_that_is_not_there_is_named_with_its_flag(
    asked: dict[str, str], by: str, flag: str, stage: Wired, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(device, "_of_torch", lambda name: (name == "cpu", f"torch has no {name} here"))
    stage.configure(device=asked.get("configured", "cpu"))
    stage.robot = replace(stage.robot, device="cpu", device_flag=asked.get("flag", ""))
    settings = {"device": asked["setting"]} if "setting" in asked else {}
    finding = absent(read_wiring(stage.policy, stage.dataset, stage.robot, settings=settings))
    assert finding is not None
    assert finding.level == "info"
    assert finding.seen.startswith(f"{by} asks for mps; ")
    assert "takes cpu" in finding.why
    assert flag in finding.do


def test_a_device_that_is_not_known_is_not_judged(stage: Wired):
    wiring = stage.read()
    wiring.device, wiring.device_here = "cuda", DeviceHere(asked_by="config.json", there=None, why="it is not known")
    assert absent(wiring) is None


@pytest.mark.parametrize(
    ("system", "kind", "files", "torch", "there"),
    [
        ("Linux", "cuda", [], "2.9", False),
        ("Linux", "cuda", ["nvme0", "nvram"], "2.9", False),
        ("Linux", "cuda", ["nvidia0"], "2.9", None),
        ("Linux", "cuda", ["dxg"], "2.9", None),
        ("Linux", "cuda", ["nvidia0"], "2.9+cpu", False),
        ("Linux", "xpu", ["dri"], None, None),
        ("Darwin", "cuda", [], "2.9", False),
        ("Darwin", "mps", [], "2.9", None),
        ("Linux", "mps", [], "2.9", False),
        ("Windows", "cuda", [], "2.9", None),
        ("Linux", "cpu", [], None, True),
        ("Linux", "hpu", [], "2.9", None),
    ],
)
def test_without_torch_only_an_absence_is_known(
    system: str, kind: str, files: list[str], torch: str | None, there: bool | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    def version(_: str) -> str:
        if torch is None:
            raise PackageNotFoundError
        return torch

    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(device.platform, "system", lambda: system)
    monkeypatch.setattr(device, "version", version)
    monkeypatch.setattr(device, "_DEV", tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert device.device_here(kind, "config.json").there is there


def test_torch_is_not_imported_for_it():
    code = "import sys; from strobe.wiring.device import device_here; device_here('cuda', 'x'); "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
