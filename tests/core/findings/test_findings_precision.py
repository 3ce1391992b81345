"""Findings on a lower precision: the speed it buys and how far it moves the actions."""

from typing import Any

from support.examples.findings_results import (
    N,
    approve_findings,
    make_applied_treatment,
    make_measurement,
    make_treated_traits,
    result,
)

from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison, Verdict
from strobe.core.results.data import Interval
from strobe.core.results.traits import Traits


def run(ratio: float, *names: str, width: float = 0.01, kind: Any = "faster", part: str = "", others: Any = (),
        dtypes: Any = None, **more: Any) -> Any:  # fmt: skip
    """A comparison of precisions: ``names`` of candidate and baseline, else bf16 and fp32.

    With ``dtypes`` the baseline is the baseline, with such weights. ``more`` is how the outputs agree, and how
    ``fast`` the machine is at large products in half.
    """
    name, baseline = (*names, *("bf16", "fp32")[len(names) :])
    fast = more.pop("fast", 400.0)
    verdict = Verdict(kind=kind, ratio=ratio, pairs=N, sentence="",
                      interval=Interval(low=ratio - width, high=ratio + width, level=0.99))  # fmt: skip
    same = Agreement(**{"cosine": 1.0, "note": ""} | more, largest_error=0.5, mean_error=0.1, observations=N)
    first = Traits() if dtypes else make_treated_traits(make_applied_treatment("precision", baseline))
    traits = make_treated_traits(make_applied_treatment("precision", name, part=part), *others)
    judged = Comparison(baseline=baseline, candidate=name, verdict=verdict, difference_ms=1.0, agreement=same)
    return result(
        make_measurement({"policy": 100.0}, name=baseline, traits=first),
        make_measurement({"policy": 100.0 * ratio}, name=name, whole=100.0 * ratio, traits=traits),
        of=CompareResult, comparisons=[judged], **{"dtypes": dtypes} if dtypes else {},
        gflops={"float32": 100.0, "bfloat16": fast, "float16": fast},
    )  # fmt: skip


def test_what_is_found() -> None:
    fast, slow = "precision-bf16-fast", "precision-bf16-slow"
    approve_findings("precision", {"precision.*": {
        "half as fast": (slow, run(1 / 0.5)),
        "1.4 times as fast": (slow, run(1 / 1.4)),
        "1.7 times as fast": (fast, run(1 / 1.7)),
        "2.5 times as fast": (fast, run(1 / 2.5)),
        "only part of the interval lies above 2": (fast, run(1 / 2.01, width=0.02)),
        "no difference is shown": (slow, run(1.0, kind="no difference shown")),
        # Nothing is said that the samples do not show.
        "on the limit": ("", run(1 / 1.5, width=0.02)),
        "inconclusive": ("", run(0.4, kind="inconclusive")),
        "a wide interval": ("", run(0.7, width=0.2)),
        "a machine whose product is no faster": (slow, run(1.0, fast=90.0)),
        "a machine whose product is four times as fast": (slow, run(1.0, fast=400.0)),
        "a part": (slow, run(1.0, part="model.backbone")),
        # Only lower precisions are judged, and only alone.
        "a higher precision": ("", run(0.3, "fp32", "bf16")),
        "another half": ("", run(0.3, "fp16", "bf16")),
        "compiled too": ("", run(0.3, others=[make_applied_treatment("compile", "default")])),
        "tf32": ("precision-tf32-fast", run(0.3, "tf32")),
        "as it is in float32": (fast, run(0.3, dtypes={"float32": 52_000_000})),
        "as it is mostly in bfloat16": ("", run(0.3, dtypes={"bfloat16": 2, "float32": 1})),
        "outputs that moved": (f"precision-bf16-inaccurate {fast}", run(0.55, cosine=0.9989)),
        "outputs that hardly moved": (fast, run(0.55, cosine=0.999)),
        "overflow": ("precision-fp16-inaccurate precision-fp16-fast",
                     run(0.55, "fp16", cosine=0.0, note="3 numbers of 9 are infinite")),
    }})  # fmt: skip
