"""Rules on the levers of training, on planted comparisons."""

from __future__ import annotations

from typing import Any

from support.examples.findings_results import (
    N,
    approve_findings,
    make_applied_treatment,
    make_measurement,
    make_treated_traits,
    result,
)

from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison, GradientAgreement, Verdict
from strobe.core.results.data import Interval
from strobe.core.results.measurement import Memory
from strobe.core.results.traits import Traits, TreatmentTraits
from strobe.core.treatments.words import BATCH_NORM

PARTS = {"forward": 40.0, "backward": 50.0, "optimizer": 5.0}
BF16, FP16, COMPILED = (
    make_applied_treatment("amp", "bf16"),
    make_applied_treatment("amp", "fp16"),
    make_applied_treatment("compile", "default"),
)


def run(ratio: float, *levers: TreatmentTraits, kind: Any = "faster", held: float = 1.0, phase: str = "training step",
        **same: Any) -> CompareResult:  # fmt: skip
    """``levers`` against nothing, with their share of the memory, and how the gradient agrees."""
    verdict = Verdict(kind=kind, ratio=ratio, pairs=N, sentence="",
                      interval=Interval(low=ratio - 0.01, high=ratio + 0.01, level=0.99))  # fmt: skip
    gradient: dict[str, Any] = {"cosine": 0.9999, "seed_cosine": 0.995, "loss": 1.01, "baseline_loss": 1.0,
                                "loss_error": 0.01, "error": 0.01}  # fmt: skip
    judged = Comparison(baseline="baseline", candidate="it", verdict=verdict, difference_ms=1.0,
                        gradient=GradientAgreement(**(gradient | same)))  # fmt: skip
    memory = [Memory(peak_activations=round(share * 2**30)) for share in (1.0, held)]
    return result(
        make_measurement(PARTS, name="baseline", phase=phase, traits=Traits(batch_size=8), memory=memory[0]),
        make_measurement(PARTS, name="it", phase=phase, whole=100 * ratio, memory=memory[1],
                 traits=make_treated_traits(*levers or [BF16], batch_size=8, build_s=1.0)),
        of=CompareResult, comparisons=[judged],
    )  # fmt: skip


def test_what_is_found() -> None:
    spelt = ("use_amp", "compile_model", "gradient_checkpointing")
    flagged = [{"lerobot_flag": f"--policy.{name}=true"} for name in spelt]
    none, amp = "levers-without-effect", "lever-amp-pays"
    noisy: dict[str, Any] = {"seed_cosine": 0.5}
    approve_findings("levers", {"lever.*|accumulation.*|checkpointing.*|float16.*": {
        # In lerobot-train's spelling.
        "amp with a flag": (amp, run(0.7, make_applied_treatment("amp", "bf16", **flagged[0]))),
        "amp without a flag": (amp, run(0.7, FP16)),
        "tf32": ("lever-tf32-pays", run(0.7, make_applied_treatment("tf32"))),
        "compile": ("lever-compile-pays", run(0.7, make_applied_treatment("compile", "default", **flagged[1]))),
        "fused": ("lever-fused-pays", run(0.7, make_applied_treatment("fused"))),
        "three together": ("lever-amp-tf32-fused-pays",
                           run(0.6, BF16, make_applied_treatment("tf32"), make_applied_treatment("fused"))),
        "no effect": (none, run(1.0, make_applied_treatment("channels_last"), kind="no difference shown")),
        "slower": (none, run(1.3, kind="slower")),
        "noise": ("", run(0.7, kind="inconclusive")),
        "fast, and another gradient": ("lever-amp-turns-gradient", run(0.5, cosine=0.4)),
        # What other noise does anyway is no warning.
        "a gradient as other seeds turn it": (amp, run(0.5, cosine=0.9, **noisy)),
        "a lever with noise of its own": (
            "lever-compile-pays", run(0.5, COMPILED, cosine=0.45, own_noise=True, **noisy)),
        "where there is no noise": (
            "lever-compile-turns-gradient", run(0.5, COMPILED, cosine=0.9, seed_cosine=1.0, own_noise=True)),
        "float16 that loses small gradients": (
            "float16-needs-scaler lever-amp-pays", run(0.9, FP16, underflow=0.3, overflow=0)),
        "float16 that overflows": ("float16-needs-scaler lever-amp-pays", run(0.9, FP16, underflow=0.0, overflow=7)),
        "float16 that loses hardly any": (amp, run(0.9, FP16, underflow=0.001, overflow=0)),
        "accumulation that saves": ("accumulation-saves",
                                    run(1.2, make_applied_treatment("accumulate", 4), kind="slower", held=0.25)),
        "accumulation of BatchNorm that does not": (
            "lever-accumulate-turns-gradient accumulation-saves-nothing",
            run(1.2, make_applied_treatment("accumulate", 4, notes={BATCH_NORM: 20}), kind="slower", cosine=0.1)),
        "checkpoints that save": (
            "checkpointing-saves",
            run(1.2, make_applied_treatment("checkpointing", **flagged[2]), kind="slower", held=0.5)),
        "a lever that has no flag": ("lever-tf32-pays", run(0.9, make_applied_treatment("tf32", value=False))),
        "a forward": ("", run(0.7, phase="training forward")),
        "a setting that differs too": ("",
            run(0.7, BF16, make_applied_treatment("policy", None, settings={"num_steps": 2}))),
    }})  # fmt: skip
