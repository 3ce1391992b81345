"""Faults planted in a tiny V-JEPA 2 are found, each by its own rule and no other; a healthy one has none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.examples.findings_results import approve_findings, make_measurement, result
from support.fakes.clocked_backbone import DECODE, PREPROCESSING, pace, pause, retime_trace

from strobe.core import slices
from strobe.core.cli.main import main
from strobe.core.findings import Thresholds
from strobe.core.kinds import advise
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.measurement import Blocks, Memory
from strobe.core.runs import store
from strobe.core.studies.breakdown import breakdown
from strobe.core.studies.shared.measuring import Options
from strobe.core.timeline.trace import export_trace
from strobe.lerobot.policies.options import ModelOptions
from strobe.traces import operators
from strobe.traces.results import GapCause, Gaps, OperatorProfile
from strobe.vision import findings as backbone
from strobe.vision.model_subject import load_model

FAULTS = {
    "block-variance", "memory-high", "device-idle", "host-bound", "host-delay", "many-small-operators",
    "precision-bf16-slow", "precision-bf16-inaccurate",
}  # fmt: skip
TINY = ["--model.type=vjepa2", "--model.size=tiny"]
PRECISIONS = ["compare", "--precision=fp32,bf16", "--iterations=8"]


@pytest.fixture
def subject(clock):
    made = load_model(ModelOptions(type="vjepa2", size="tiny"))
    pace(made, clock)
    return made


def check_findings(subject, expected: set[str], depth: int = 1) -> dict:
    """The findings, with the faults among them that are expected and no others."""
    options = Options(SamplingBudget(iterations=15), depth=depth, batch_size=1, counted=False)
    answer, _ = breakdown(subject, ["inference"], options)
    findings = {finding.rule: finding for finding in advise(answer)}
    assert faults(findings) == expected
    return findings


def faults(findings: dict) -> set[str]:
    limits = findings.get("frame-rate-limit")
    return FAULTS & findings.keys() | ({"frame-rate-limit"} if limits and limits.level == "warning" else set())


def test_a_healthy_model_has_no_fault(subject):
    check_findings(subject, set())


def test_a_slowed_block(subject, clock):
    # A module's own hooks run around its forward, and a probe is on that; so the fault is put one deeper.
    subject.module.encoder.layer[3].mlp.register_forward_pre_hook(pause(clock, 6))
    findings = check_findings(subject, {"block-variance"})
    assert findings["block-variance"].evidence["slowest"] == "block 3"
    assert "block 3" in findings["block-variance"].found


@pytest.mark.parametrize("part", ["decode", "preprocessing"])
def test_what_is_around_the_model_limits_the_frame_rate(subject, clock, part):
    read, prepare = subject.clips.read, subject._prepare
    wait = pause(clock, 100)
    if part == "decode":
        subject.clips.decoding = True
        subject.clips.read = lambda index: (wait(), read(index))[1]
    else:
        subject._prepare = lambda frames: (wait(), prepare(frames))[1]
    findings = check_findings(subject, {"frame-rate-limit"})
    limits = findings["frame-rate-limit"]
    assert limits.evidence["part"] == part
    overlapped = 4000 / limits.evidence["part_ms"]  # a clip has four frames
    assert limits.evidence["overlapped_frames_per_s"] == pytest.approx(overlapped)
    assert limits.evidence["part_ms"] == pytest.approx(100 + (DECODE if part == "decode" else PREPROCESSING), rel=0.02)
    assert limits.evidence["frames_per_s"] < overlapped


def test_the_part_that_limits_a_video_is_named_also_where_all_is_well(subject):
    subject.clips.decoding = True
    findings = check_findings(subject, set())
    assert findings["frame-rate-limit"].level == "info"
    assert findings["frame-rate-limit"].evidence["part"] == "model"
    for words in ("frames/s", "clips/s", "Each by itself: decode", "Overlapped, at most"):
        assert words in findings["frame-rate-limit"].found


def run(monkeypatch, clock, folder, argv: list[str], plant, expected: set[str]) -> dict:
    """The findings of a command on a model that ``plant`` has done something to."""
    command = slices.load(slices.commands()[argv[0]].module)
    load = command.load_subject

    def load_planted_subject(*args):
        subject = load(*args)
        pace(subject, clock)
        plant(subject.module)
        return subject

    monkeypatch.setattr(command, "load_subject", load_planted_subject)
    assert main([*argv, *TINY, "--skip_counting", "--threads=1", f"--output_dir={folder}"]) == 0
    (answer,) = folder.rglob("result.json")
    findings = {finding.rule: finding for finding in store.load(answer.parent).findings}
    assert faults(findings) == expected
    return findings


@pytest.mark.parametrize(("ms", "expected"), [(0, set()), (10, {"host-delay"})])
def test_a_host_that_is_held_up_between_operators(monkeypatch, clock, tmp_path, ms, expected):
    def plant(module):
        for block in module.encoder.layer if ms else ():  # in all alike: no block is slower than the others
            block.mlp.register_forward_pre_hook(pause(clock, ms))

    monkeypatch.setattr(operators, "export_trace", lambda profiler: retime_trace(export_trace(profiler)))
    findings = run(monkeypatch, clock, tmp_path, ["breakdown", "--operators", "--iterations=12"], plant, expected)
    if expected:
        assert findings["host-delay"].evidence["long_ms"] == pytest.approx(6 * ms, rel=0.01)
        assert "after aten::layer_norm and before aten::linear" in findings["host-delay"].found


def test_a_precision_that_gains_little_where_the_arithmetic_is_not_the_limit(monkeypatch, clock, tmp_path):
    def plant(module):
        module.encoder.layernorm.register_forward_pre_hook(pause(clock, 300))

    findings = run(monkeypatch, clock, tmp_path, PRECISIONS, plant, {"precision-bf16-slow"})
    assert findings["precision-bf16-slow"].evidence["speed_up"] == pytest.approx(1, abs=0.02)
    assert "precision-bf16-fast" not in findings


def test_a_precision_that_gains_as_it_should(monkeypatch, clock, tmp_path):
    def plant(module):  # stands in for arithmetic units that are three times as fast at half the width
        ms = {torch.float32: 300, torch.bfloat16: 100}
        module.encoder.layernorm.register_forward_pre_hook(pause(clock, lambda norm: ms[norm.weight.dtype]))

    findings = run(monkeypatch, clock, tmp_path, PRECISIONS, plant, set())
    assert findings["precision-bf16-fast"].evidence["speed_up"] > 2


def make_starved_timeline(host: float, idle: float) -> Any:
    """Planted by hand, since there is no device here: a backbone as events and torch.profiler would see it."""
    parts = {"preprocessing": 1.0, "model": 99.0, "model/encoder": 98.0, "model/encoder/block 0": 95.0}
    more = {path: {"host_ms": host} for path in parts if path != "preprocessing"}
    causes = [GapCause(cause="nothing was launched yet", gaps=40, ms=idle)]
    seen = Gaps(span_ms=100, busy_ms=100 - idle, idle_ms=idle, threshold_us=10, gaps=40, gaps_ms=idle, causes=causes)
    profile = OperatorProfile(
        measurement="inference", iteration_ms=100, operator_calls=900, kernels=[], kernel_calls=900,
        kernel_median_us=40.0, host=seen, device=seen,
    )  # fmt: skip
    return result(make_measurement(parts, clock="device", more=more), device="cuda:0", operators=profile, kind="vjepa2")


def model(ms: float, spread: float = 0.0, differ: bool = False, gib: float = 0.0, parameters: float = 52e6) -> Any:
    """Two blocks of a hundred milliseconds' model that take ``ms``, and the most that its device held."""
    parts = {"model": 100.0, "model/encoder": 99.0, "model/encoder/block 0": ms}
    held = Memory(weights=10**9, peak_device=int(gib * 2**30)) if gib else Memory()
    measurement = make_measurement(parts, memory=held)
    measurement.blocks = [
        Blocks(path=["model", "encoder"], names=["block 0", "block 1"], medians=[ms / 2] * 2, average=ms / 2,
               total=measurement.components[2].summary, share=ms / 100, spread=spread, p=0.001, differ=differ)
    ]  # fmt: skip
    answer = result(measurement)
    answer.subject.parameters = int(parameters)
    return answer


def test_what_is_found():
    policy = result(make_measurement({"preprocessing": 10.0, "policy": 90.0, "policy/block 0": 80.0}))
    high = "memory-high"
    approve_findings("backbone", {
        "|".join(sorted(FAULTS)): {
            "a device that computes": ("", make_starved_timeline(40.0, 5.0)),
            "a device that is starved": ("device-idle host-bound", make_starved_timeline(99.0, 60.0)),
        },
        "block-variance": {
            "51 % apart": ("block-variance", model(95, 0.51, True)),
            "50 % apart": ("", model(95, 0.5, True)),
            "apart by what the samples do not show": ("", model(95, 5.0, False)),
        },
        high: {  # judged by the size of the model
            "8.1 GiB of 304M": (high, model(95, gib=8.1, parameters=304e6)),
            "7.9 GiB of 304M": ("", model(95, gib=7.9, parameters=304e6)),
            "20 GiB of 1013M": ("", model(95, gib=20, parameters=1013e6)),
            "30 GiB of 1013M": (high, model(95, gib=30, parameters=1013e6)),
            "9 GiB with another limit": ("", model(95, gib=9), Thresholds(model_memory_gib=10)),
        },
    })  # fmt: skip
    assert not any(list(rule(policy, Thresholds())) for rule in backbone.RULES), "policies are left alone"
