"""The cost of Real-Time Chunking with LeRobot's autograd, and with its guidance in closed form.

Bars: the closed form's overhead over no RTC is at most 2 %, and its chunks have the same bits as autograd's.

Full-size SmolVLA (random weights, its usual ten steps) by default; no RTC, RTC as LeRobot computes it, and RTC in
closed form take turns in one run, on the same observations with the same noise.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch
from common.shared import finish, need
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from rich.console import Console
from rich.table import Table

from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments.flow.rtc import ClosedFormGuidance, RealTimeChunking, WithoutRealTimeChunking

BAR = 1.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="smolvla", choices=("smolvla", "pi0", "pi05"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", help="of pi0 and pi05, e.g. bfloat16")
    parser.add_argument("--seconds", type=float, default=300.0, help="of sampling")
    parser.add_argument("--quick", action="store_true", help="a tiny policy, under a minute")
    arguments = parser.parse_args()
    need("pi")
    overrides = [f"--device={arguments.device}", *([f"--dtype={arguments.dtype}"] if arguments.dtype else [])]
    subject = load_subject(
        PolicyOptions(type=arguments.policy, size="tiny" if arguments.quick else "full", overrides=overrides)
    )
    rtc = RealTimeChunking(RTCConfig(enabled=True, execution_horizon=20), 4)
    variants = {
        "without RTC": Variant("without RTC", (WithoutRealTimeChunking(),)),
        "autograd": Variant("autograd", (rtc,)),
        "closed form": Variant("closed form", (rtc, ClosedFormGuidance())),
    }
    chunks: dict[str, list[torch.Tensor]] = {name: [] for name in variants}

    def run(name: str) -> float:
        undo = variants[name].apply(subject)
        try:
            index = len(chunks[name])
            start = time.perf_counter()
            chunk = subject.chunk(index)
            took = (time.perf_counter() - start) * 1e3
            chunks[name].append(chunk)
            return took
        finally:
            undo()

    budget = SamplingBudget(seconds=20.0 if arguments.quick else arguments.seconds, precision=0.002)
    collected = collect({name: (lambda name=name: run(name)) for name in variants}, budget)
    samples = {name: collected.samples[name].values for name in variants}
    table = Table("", "ms per chunk", "over no RTC", title=f"{arguments.policy}, {arguments.device}")
    figures: dict[str, object] = {"policy": arguments.policy, "device": arguments.device, "quick": arguments.quick}
    ratios = {}
    for name, values in samples.items():
        shown = ""
        if name != "without RTC":
            verdict = paired_verdict(samples["without RTC"], values, baseline_name="no RTC", candidate_name=name)
            ratios[name] = verdict
            shown = f"{verdict.ratio:.4f} [{verdict.interval.low:.4f}, {verdict.interval.high:.4f}]"
            figures[name.replace(" ", "_")] = {
                "ratio": verdict.ratio,
                "interval": [verdict.interval.low, verdict.interval.high],
                "pairs": verdict.pairs,
            }
        table.add_row(name, f"{median(values):.1f}", shown)
    pairs = list(zip(chunks["autograd"], chunks["closed form"], strict=False))
    equal = all(torch.equal(a, b) for a, b in pairs)
    figures |= {"equal_bits": equal, "chunks_compared": len(pairs)}
    Console().print(table)
    print(f"autograd and closed form: {len(pairs)} chunks, {'equal bits' if equal else 'different bits'}")
    closed = ratios["closed form"]
    # On a tiny policy the few operations of the guidance are a larger share: there only the bits are judged.
    figures["judged"] = not arguments.quick
    finish(figures, equal and (arguments.quick or closed.ratio <= BAR))


if __name__ == "__main__":
    main()
