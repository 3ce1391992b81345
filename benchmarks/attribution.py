"""Do the parts add up, do they agree with torch.profiler, and do the probes disturb what they measure?

On full-size policies with random weights, bars for each: time outside every named part ≤ 5 % of the chunk; every part
over 5 % agrees within 5 % with what torch.profiler sees of its operators, from the first one's start to the last one's
end in each call, in the same run (the median of several chunks; the sum inside operators is shown beside it: it lacks
the host's time between them, which pi0.5's ten thousand small operators make 5 to 10 % of its denoising); chunk
time with probes over chunk time without, from one interleaved run, ≤ 1.01.

On Linux it starts itself again with an allocator that keeps its memory: otherwise large tensors are given back to the
kernel between operators, which is time of the part (and counted as such by us) but of none of its operators.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common.attribution_study import Plan, study
from common.shared import finish, keep_memory, need
from rich.console import Console

from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions

OTHER, BIG = 0.05, 0.05

# policy type → overrides, seconds of sampling, iterations under the profiler
SUBJECTS: dict[str, tuple[list[str], float, int]] = {
    "act": ([], 35, 12),
    "diffusion": (["--num_inference_steps=10"], 45, 6),
    "pi05": (["--dtype=bfloat16"], 140, 3),
}
QUICK: dict[str, tuple[list[str], float, int]] = {
    "act": ([], 12, 4),
    "diffusion": (["--num_inference_steps=2"], 15, 4),
}


def attribute(
    kind: str, overrides: list[str], seconds: float, profiled: int, quick: bool, console: Console
) -> dict[str, Any]:
    """One policy's figures; prints its table."""
    subject = load_subject(PolicyOptions(type=kind, overrides=[*overrides, "--device=cpu"]))
    figures, _ = study(
        subject.chunk,
        subject.hooks("inference", 1),
        console,
        Plan(
            title=f"{kind} {' '.join(overrides)}",
            seconds=seconds,
            profiled=profiled,
            quick=quick,
            outer=[("policy",)],
            big=BIG,
        ),
    )
    figures["holds"] = figures["holds"] and figures["other"] <= OTHER
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ACT and Diffusion only: under a minute")
    parser.add_argument("--only", choices=SUBJECTS, help="one policy only")
    arguments = parser.parse_args()
    need("diffusion", "pi", memory_gib=0 if arguments.quick else 10)
    keep_memory(KINETO_LOG_LEVEL="5")
    torch.manual_seed(0)
    console = Console()
    chosen = QUICK if arguments.quick else SUBJECTS
    if arguments.only:
        chosen = {arguments.only: SUBJECTS[arguments.only]}
    figures = {kind: attribute(kind, *settings, arguments.quick, console) for kind, settings in chosen.items()}
    finish(figures, all(figure["holds"] for figure in figures.values()))


if __name__ == "__main__":
    main()
