"""A ladder by hand: pi0.5 in two rungs, one treatment that breaks its guard, and one that was not tried."""

from __future__ import annotations

from typing import Any

from strobe.core.measure.components import common_parts
from strobe.core.results.agreement import Agreement
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Measurement
from strobe.ladder.results import Ladder, Need, OptimizeResult, Rung, Try
from support.examples.runs import MACHINE, SUBJECT, judge, measurement

PARTS = {"policy": (0.96, {"vision tower": 0.35, "prefix KV cache": 0.4, "denoise step": 0.2}), "preprocessing": 0.02}
VISION = "precision=bf16, precision.part=model.paligemma_with_expert.paligemma.model.vision_tower"


def rung(name: str, treatment: str, m: Measurement, **more: Any) -> Rung:
    return Rung(name=name, treatment=treatment, parts=common_parts([m])[0], **more)


def make_climb(target_hz: float = 8.0, **more: Any) -> OptimizeResult:
    took = {"baseline": 200, "step 1": 150, "step 2": 120}
    measured = [measurement(name, PARTS, ms, seed=ms) for name, ms in took.items()]
    comparisons = [
        Comparison(
            baseline=a.name,
            candidate=b.name,
            verdict=judge(a.samples.values, b.samples.values, baseline_name=a.name, candidate_name=b.name),
            difference_ms=b.samples.summary.median - a.samples.summary.median,
            agreement=Agreement(cosine=0.99987, largest_error=0.012, mean_error=0.001, observations=30),
        )
        for a, b in ((measured[0], measured[1]), (measured[0], measured[2]), (measured[1], measured[2]))
    ]
    rungs = [
        rung("baseline", "", measured[0]),
        rung("step 1", "cameras=batched", measured[1], part="vision tower", build_s=0.01),
        rung("step 2", VISION, measured[2], part="vision tower", effect="rounding", build_s=3.24),
    ]
    tries = [
        Try(treatment="cameras=batched", rung=1, parts=["vision tower"], before_ms=200, outcome="kept"),
        Try(treatment=VISION, rung=2, parts=["vision tower"], before_ms=150, outcome="kept"),
        Try(treatment="int8=true", rung=3, before_ms=120, outcome="guard", reason="guard: cosine 0.9971 < 0.999",
            agreement=Agreement(cosine=0.9971, largest_error=0.3, mean_error=0.01, observations=16)),
        Try(treatment="compile=true", rung=3, before_ms=120, outcome="not tried", reason="12 s were left"),
    ]  # fmt: skip
    result = OptimizeResult(
        strobe_version="0.1.0", title="pi05: a ladder", subject=SUBJECT, machine=MACHINE,
        measurements=measured, comparisons=comparisons,
    )  # fmt: skip
    last = measured[2].samples.summary.median
    met = last <= 1e3 / target_hz
    missing = [] if met else Need.list_needs(rungs[2].parts, last, 1e3 / target_hz)
    for need in missing:
        need.treatments = ["int8=true: guard: cosine 0.9971 < 0.999"]
    result.ladder = Ladder(
        **{"target_hz": target_hz, "target_ms": 1e3 / target_hz, "guard": "cosine>=0.999", "met": met,
           "ended": "the target was reached" if met else "no treatment remained to try", "chosen": "step 2",
           "rungs": rungs, "tries": tries, "needs": missing} | more
    )  # fmt: skip
    return result
