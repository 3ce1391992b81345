"""Rules on a training: each planted cause fires its rule alone, a healthy one none, at the thresholds."""

from __future__ import annotations

from typing import Any

import pytest
from support.findings_results import measured, result

from strobe.findings import Thresholds
from strobe.kinds import advise
from strobe.results.answer import TrainResult
from strobe.results.training import LoaderPart, LoaderWorker, Rank, Stall, Training

HEALTHY = {"data": 2.0, "images to floats": 1.0, "preprocessing": 1.0, "forward": 30.0, "forward/backbone": 20.0,
           "forward/encoder": 9.0, "backward": 55.0, "backward/backbone": 36.0, "backward/encoder": 17.0,
           "optimizer": 9.0, "logging": 1.0, "other": 1.0}  # fmt: skip


def trained(parts: dict[str, float] | None = None, share: float = 1.0, **more: Any) -> TrainResult:
    """100 ms a step, two workers that decode, unless said otherwise."""
    step = measured(HEALTHY | (parts or {}), name="training step", phase="training step")
    step.traits.trained_share = share
    figures: dict[str, Any] = {
        "batch_size": 8, "workers": 2, "steps": 20, "run_steps": 20, "planned_steps": 100_000, "samples_per_s": 80.0,
        "planned_hours": 2.8, "bound": "compute", "sentence": "", "data_share": 0.02, "overhead": 0.0,
        "shares": {"data": 0.02, "compute": 0.94, "host": 0.04, "interruptions": 0.0}, "machine_cpu": 0.5,
        "loader": [worker(0), worker(1)],
        "loader_parts": [LoaderPart(name="video decoding", ms=60, share=0.7, waiting=0.1),
                         LoaderPart(name="row reads", ms=20, share=0.3, waiting=0.1)],
    }  # fmt: skip
    return result(step, of=TrainResult, training=Training.model_validate(figures | more))


def worker(index: int, ms: float = 80.0, fastest: float | None = None) -> LoaderWorker:
    return LoaderWorker(name=f"worker {index}", batches=10, batch_ms=ms, fastest_ms=fastest, busy=0.5, cpu=0.9)


def part(name: str, share: float, waiting: float | None = 0.1) -> LoaderPart:
    return LoaderPart(name=name, ms=100 * share, share=share, waiting=waiting)


def rank(index: int, own: float, waits: float = 1.0, **parts: float) -> Rank:
    return Rank(rank=index, steps=20, step_ms=100, own_ms=own, communication_ms=waits, exposed_ms=waits, parts=parts)


def checkpoint(hours: float) -> Stall:
    return Stall(cause="checkpoint", steps=2, each_ms=500, share=0.1, planned_hours=hours, sentence="")


STARVED: dict[str, Any] = {"data_share": 0.5, "bound": "data"}
SLOW_RANK = [rank(0, 60, 40, forward=30, backward=60), rank(1, 99, 1, forward=70, backward=25)]
PLANTED = {
    "slow-decoding": STARVED,
    "slow-storage": STARVED | {"loader_parts": [part("video decoding", 0.9, 0.8), part("collate", 0.1)]},
    "slow-transforms": STARVED | {"loader_parts": [part("image transforms", 0.6), part("video decoding", 0.4)]},
    "slow-rows": STARVED | {"loader_parts": [part("delta timestamps", 0.6), part("video decoding", 0.4)]},
    "slow-collate": STARVED | {"loader_parts": [part("collate", 0.6), part("video decoding", 0.4)]},
    "slow-worker": STARVED | {"loader": [worker(0), worker(1, 200.0)]},
    "loads-itself": STARVED | {"workers": 0, "loader": []},
    "slow-forward": {"parts": {"forward": 70.0, "forward/encoder": 50.0, "backward": 30.0, "backward/backbone": 15.0}},
    "slow-optimizer": {"parts": {"optimizer": 45.0}},
    "frequent-checkpoints": {"stalls": [checkpoint(0.5)]},
    "slow-epochs": {"stalls": [Stall(cause="start of an epoch", steps=3, each_ms=900, share=0.2, sentence="")]},
    "host-work": {"shares": {"data": 0.02, "compute": 0.6, "host": 0.38, "interruptions": 0.0}},
    "memory-churn": {"bound": "memory", "kernel_share": 0.4},
    "straggler": {"processes": 2, "ranks": SLOW_RANK},
    "communication": {"processes": 2, "ranks": [rank(0, 70, 30), rank(1, 71, 29)]},
    "other-large": {"parts": {"other": 12.0}},
}


@pytest.mark.parametrize("rule", PLANTED)
def test_each_cause_fires_its_rule_and_no_other(rule):
    assert [finding.rule for finding in advise(trained(**PLANTED[rule]))] == [rule]


def test_a_healthy_training_fires_none():
    assert advise(trained()) == []
    assert advise(trained(ranks=[rank(0, 98), rank(1, 96)], processes=2)) == []


def test_what_waits_while_all_cores_are_busy_is_not_blamed_on_storage():
    parts = [part("video decoding", 0.9, 0.8), part("collate", 0.1)]
    assert [f.rule for f in advise(trained(**STARVED, loader_parts=parts, machine_cpu=0.95))] == ["slow-decoding"]


def test_a_worker_that_others_hold_up_now_and_then_is_not_the_cause():
    held_up = [worker(0, fastest=70), worker(1, 200.0, fastest=80)]
    assert [f.rule for f in advise(trained(**STARVED, loader=held_up))] == ["slow-decoding"]
    slow = [worker(0, fastest=70), worker(1, 200.0, fastest=190)]
    assert [f.rule for f in advise(trained(**STARVED, loader=slow))] == ["slow-worker"]


def test_a_part_that_is_frozen_may_take_longer_forward():
    planted = PLANTED["slow-forward"]
    assert advise(trained(**planted, share=0.3)) == []


def test_the_slow_rank_is_named_with_the_part_that_differs():
    (found,) = advise(trained(**PLANTED["straggler"]))
    assert found.evidence["rank"] == 1
    assert found.evidence["part"] == "forward"


def test_thresholds_move_the_limits():
    assert advise(trained(data_share=0.05), Thresholds(data_bound=0.04))
    assert not advise(trained(**STARVED), Thresholds(data_bound=0.6))


@pytest.mark.parametrize(("hours", "fires"), [(0.1, False), (0.2, True)])
def test_checkpoints_are_judged_by_what_is_planned(hours, fires):
    assert bool(advise(trained(stalls=[checkpoint(hours)]))) == fires
