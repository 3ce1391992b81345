"""Faults planted in a tiny V-JEPA 2 are found, each by its own rule and no other; a healthy one has none."""

from __future__ import annotations

import importlib

import pytest
import torch
from support.findings_results import measured, result, rules
from support.paced import DECODE, EMBEDDING, PREPROCESSING, pace, pause, retimed
from support.sleeper import Clock

from strobe.cli.main import main
from strobe.findings import Thresholds, backbone
from strobe.kinds import advise
from strobe.measure.sampling import SamplingBudget
from strobe.policies.loading import load_model
from strobe.policies.options import ModelOptions
from strobe.results.measurement import Blocks, Memory
from strobe.results.profiles import GapCause, Gaps, OperatorProfile
from strobe.runs import store
from strobe.studies.breakdown import breakdown
from strobe.studies.shared import operators
from strobe.studies.shared.measuring import Options
from strobe.timeline.trace import exported

FAULTS = {
    "block-variance",
    "patch-embedding-slow",
    "attention-heavy",
    "memory-high",
    "device-idle",
    "host-bound",
    "host-delay",
    "many-small-operators",
    "precision-bf16-slow",
    "precision-bf16-inaccurate",
}
TINY = ["--model.type=vjepa2", "--model.size=tiny"]
PRECISIONS = ["compare", "--precision=fp32,bf16", "--iterations=8"]


@pytest.fixture
def clock(monkeypatch):
    return Clock().wind(monkeypatch)


@pytest.fixture
def subject(clock):
    made = load_model(ModelOptions(type="vjepa2", size="tiny"))
    pace(made, clock)
    return made


def found(subject, expected: set[str], depth: int = 1) -> dict:
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
    assert "transformer-dominates" in found(subject, set())


def test_a_slowed_block(subject, clock):
    # A module's own hooks run around its forward, and a probe is on that; so the fault is put one deeper.
    subject.module.encoder.layer[3].mlp.register_forward_pre_hook(pause(clock, 6))
    findings = found(subject, {"block-variance"})
    assert findings["block-variance"].evidence["slowest"] == "block 3"
    assert "block 3" in findings["block-variance"].seen


def test_a_slow_patch_embedding(subject, clock):
    subject.module.encoder.embeddings.patch_embeddings.register_forward_pre_hook(pause(clock, 12))
    findings = found(subject, {"patch-embedding-slow"})
    assert findings["patch-embedding-slow"].evidence["part_ms"] == pytest.approx(12 + EMBEDDING, rel=0.02)


def test_slow_attention(subject, clock):
    for block in subject.module.encoder.layer:
        block.attention.query.register_forward_pre_hook(pause(clock, 10))
    found(subject, {"attention-heavy"}, depth=2)


@pytest.mark.parametrize("part", ["decode", "preprocessing"])
def test_what_is_around_the_model_limits_the_frame_rate(subject, clock, part):
    read, prepare = subject.clips.read, subject._prepare
    wait = pause(clock, 100)
    if part == "decode":
        subject.clips.decoding = True
        subject.clips.read = lambda index: (wait(), read(index))[1]
    else:
        subject._prepare = lambda frames: (wait(), prepare(frames))[1]
    findings = found(subject, {"frame-rate-limit"})
    limits = findings["frame-rate-limit"]
    assert limits.evidence["part"] == part
    overlapped = 4000 / limits.evidence["part_ms"]  # a clip has four frames
    assert limits.evidence["overlapped_frames_per_s"] == pytest.approx(overlapped)
    assert limits.evidence["part_ms"] == pytest.approx(100 + (DECODE if part == "decode" else PREPROCESSING), rel=0.02)
    assert limits.evidence["frames_per_s"] < overlapped


def test_the_part_that_limits_a_video_is_named_also_where_all_is_well(subject):
    subject.clips.decoding = True
    findings = found(subject, set())
    assert findings["frame-rate-limit"].level == "info"
    assert findings["frame-rate-limit"].evidence["part"] == "model"
    for words in ("frames/s", "clips/s", "Each by itself: decode", "Overlapped, at most"):
        assert words in findings["frame-rate-limit"].seen


def run(monkeypatch, clock, folder, argv: list[str], plant, expected: set[str]) -> dict:
    """The findings of a command on a model that ``plant`` has done something to."""
    command = importlib.import_module(f"strobe.cli.{argv[0]}")
    load = command.load_subject

    def planted(*args):
        subject = load(*args)
        pace(subject, clock)
        plant(subject.module)
        return subject

    monkeypatch.setattr(command, "load_subject", planted)
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

    monkeypatch.setattr(operators, "exported", lambda profiler: retimed(exported(profiler)))
    findings = run(monkeypatch, clock, tmp_path, ["breakdown", "--operators", "--iterations=12"], plant, expected)
    if expected:
        assert findings["host-delay"].evidence["long_ms"] == pytest.approx(6 * ms, rel=0.01)
        assert "after aten::layer_norm and before aten::linear" in findings["host-delay"].seen


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


@pytest.mark.parametrize(
    ("host", "idle", "expected"), [(40.0, 5.0, set()), (99.0, 60.0, {"host-bound", "device-idle"})]
)
def test_a_starved_device(host, idle, expected):
    """Planted by hand, since there is no device here: a backbone as events and torch.profiler would see it."""
    parts = {"preprocessing": 1.0, "model": 99.0, "model/encoder": 98.0, "model/encoder/block 0": 95.0}
    more = {path: {"host_ms": host} for path in parts if path != "preprocessing"}
    causes = [GapCause(cause="nothing was launched yet", gaps=40, ms=idle)]
    seen = Gaps(span_ms=100, busy_ms=100 - idle, idle_ms=idle, threshold_us=10, gaps=40, gaps_ms=idle, causes=causes)
    profile = OperatorProfile(
        measurement="inference", iteration_ms=100, operator_calls=900, kernels=[], kernel_calls=900,
        kernel_median_us=40.0, host=seen, device=seen,
    )  # fmt: skip
    answer = result(measured(parts, clock="device", more=more), device="cuda:0", operators=profile, kind="vjepa2")
    assert faults(rules(answer)) == expected


def model(blocks_ms: float, *, spread: float = 0.0, differ: bool = False, **more):
    parts = {"model": 100.0, "model/encoder": 99.0, "model/encoder/block 0": blocks_ms}
    measurement = measured(parts, **more)
    total = measurement.components[2].summary
    measurement.blocks = [
        Blocks(path=["model", "encoder"], names=["block 0", "block 1"], medians=[blocks_ms / 2] * 2, total=total,
               share=blocks_ms / 100, average=blocks_ms / 2, spread=spread, p=0.001, differ=differ)
    ]  # fmt: skip
    return measurement


@pytest.mark.parametrize(("ms", "fires"), [(90.0, True), (89.9, False)])
def test_blocks_as_expected_is_good_news(ms, fires):
    good = rules(result(model(ms))).get("transformer-dominates")
    assert (good is not None) == fires
    assert good is None or good.level == "good"


@pytest.mark.parametrize(
    ("spread", "differ", "fires"), [(0.51, True, True), (0.5, True, False), (5.0, False, False)]
)  # what the samples do not show is not said, however large
def test_block_variance_needs_a_shown_difference(spread, differ, fires):
    assert ("block-variance" in rules(result(model(95, spread=spread, differ=differ)))) == fires


@pytest.mark.parametrize(
    ("gib", "parameters", "fires"), [(8.1, 304e6, True), (7.9, 304e6, False), (20, 1013e6, False), (30, 1013e6, True)]
)
def test_memory_is_judged_by_the_size_of_the_model(gib, parameters, fires):
    held = result(model(95, memory=Memory(weights=10**9, peak_device=int(gib * 2**30))))
    held.subject.parameters = int(parameters)
    assert ("memory-high" in rules(held)) == fires


def test_limits_can_be_set_and_policies_are_left_alone():
    held = result(model(95, memory=Memory(weights=10**9, peak_device=9 * 2**30)))
    assert "memory-high" not in rules(held, Thresholds(model_memory_gib=10))
    policy = result(measured({"preprocessing": 10.0, "policy": 90.0, "policy/block 0": 80.0}))
    assert not any(list(rule(policy, Thresholds())) for rule in backbone.RULES)
