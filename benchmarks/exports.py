"""Is an export as fast as it is right? The policy as LeRobot runs it against its export, in alternation.

Each policy is exported by `strobe export` and held against itself by the guard of rounding, with the same noise. Then
LeRobot's policy and the export's own program, which runs without torch, take turns on the same observations.

Bars: the guard holds; the export is not slower than the policy by more than 5 %.

--quick: the tiny sizes. Without it ACT and Diffusion (10 DDIM steps) at full size, with random weights.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _shared import finish

from strobe.cli.verify import VerifyConfig, verify_export
from strobe.exports import folder
from strobe.exports.exported import ExportedPolicy
from strobe.measure.sampling import SamplingBudget, collect
from strobe.measure.verdicts import paired_verdict
from strobe.policies.loading import load_subject
from strobe.policies.options import PolicyOptions
from strobe.studies.shared.progress import Silent

POLICIES = {
    "act": [],
    "diffusion": ["--noise_scheduler_type=DDIM", "--num_inference_steps=10"],
}
SECONDS = 40.0
SLOWER = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny sizes")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(POLICIES), help="act, diffusion")
    asked = parser.parse_args()
    figures: dict[str, Any] = {}
    for kind in asked.only:
        figures[kind] = exported(kind, "tiny" if asked.quick else "full")
        print(f"{kind}: {figures[kind]}", flush=True)
    held = all(one["outcome"] == "held" for one in figures.values())
    fast = all(one["high"] <= SLOWER for one in figures.values())
    finish({"quick": asked.quick, "threads": torch.get_num_threads(), **figures}, holds=held and fast)


def exported(kind: str, size: Any) -> dict[str, Any]:
    options = PolicyOptions(type=kind, size=size, overrides=["--device=cpu", *POLICIES[kind]])
    subject: Any = load_subject(options)
    with tempfile.TemporaryDirectory() as made:
        place = Path(made) / kind
        began = time.perf_counter()
        folder.write(subject, place, "fp32", lambda _: None)
        build_s = time.perf_counter() - began
        # The check uses the policy, so the timing has a program of its own.
        result = verify_export(subject, VerifyConfig(observations=8, passes=1), place, Silent())  # type: ignore[arg-type]
        agreement = result.checks[0].agreement
        undo = ExportedPolicy(place).apply(subject)
        run = subject.answer
        undo()
        took = collect(
            {"policy": timed(subject, subject.answer), "export": timed(subject, run)}, SamplingBudget(seconds=SECONDS)
        )
        verdict = paired_verdict(took.samples["policy"].values, took.samples["export"].values)
    return {
        "outcome": result.outcome,
        "rms_sigma": agreement.rms if agreement else None,
        "worst_sigma": agreement.worst if agreement else None,
        "build_s": round(build_s, 1),
        "policy_ms": took.samples["policy"].summary.median,
        "export_ms": took.samples["export"].summary.median,
        "export_over_policy": verdict.ratio,
        "low": verdict.interval.low,
        "high": verdict.interval.high,
        "pairs": verdict.pairs,
    }


def timed(subject: Any, answer: Callable[[dict[str, Any], int], Any]) -> Callable[[], float]:
    """Return a call that answers the next observation, in milliseconds."""
    index = 0

    def call() -> float:
        nonlocal index
        index += 1
        observation = subject.observation(index)
        began = time.perf_counter()
        answer(observation, index)
        return 1e3 * (time.perf_counter() - began)

    return call


if __name__ == "__main__":
    main()
