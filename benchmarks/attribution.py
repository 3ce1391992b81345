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
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from _shared import finish
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile, record_function

from strobe.measure.components import components, iterations
from strobe.measure.sampling import Budget, collect
from strobe.measure.verdicts import paired_verdict
from strobe.results.schema import Component
from strobe.subjects.loading import load_subject
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import ITERATION
from strobe.timeline import Timeline
from strobe.timeline.probe import Attached
from strobe.timeline.sections import recording

OTHER, AGREE, DISTURB, BIG = 0.05, 0.05, 1.01, 0.05

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


@dataclass
class Operators:
    """Per part, milliseconds of one chunk: inside its operators, and from each call's first operator to its last."""

    inside: Counter[tuple[str, ...]]
    extent: Counter[tuple[str, ...]]


class Both:
    """A section and a profiler annotation around the same code."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.pair = (record_function(name), timeline.section(name))

    def __enter__(self) -> None:
        for one in self.pair:
            one.__enter__()

    def __exit__(self, *exception: Any) -> None:
        for one in reversed(self.pair):
            one.__exit__(*exception)


def seen_by_both(subject: PolicySubject, hooks: list[Any]) -> tuple[list[Component], Operators]:
    """One chunk: our components of it, and what torch.profiler saw of the operators in each part."""
    seen = Operators(Counter(), Counter())

    def below(event: Any, path: tuple[str, ...]) -> tuple[float, float, float]:
        if not event.is_user_annotation:
            return event.cpu_time_total, event.time_range.start, event.time_range.end
        inner = (*path, event.name)
        found = [below(child, inner) for child in event.cpu_children]
        total = sum(took for took, _, _ in found)
        start = min((start for _, start, _ in found), default=event.time_range.start)
        end = max((end for _, _, end in found), default=start)
        seen.inside[inner[1:]] += total / 1e3
        seen.extent[inner[1:]] += (end - start) / 1e3
        return total, start, end

    timeline = Timeline()
    opener = recording(lambda name: Both(timeline, name))
    with profile(activities=[ProfilerActivity.CPU]) as profiler, Attached(hooks), opener:
        subject.chunk(0)
    for event in profiler.events() or []:
        if event.cpu_parent is None and event.name == ITERATION:
            below(event, ())
    return components(iterations(timeline.sections(), ITERATION)), seen


def study(
    kind: str, overrides: list[str], seconds: float, profiled: int, quick: bool, console: Console
) -> dict[str, Any]:
    """One policy's figures; prints its table."""
    subject = load_subject(policy_type=kind, overrides=[*overrides, "--device=cpu"])
    hooks = subject.hooks("inference", 1)
    timeline = Timeline()
    rounds = Counter[str]()

    def run(name: str) -> float:
        rounds[name] += 1
        start = time.perf_counter()
        if name == "bare":
            subject.chunk(rounds[name])
            return (time.perf_counter() - start) * 1e3
        with Attached(hooks), timeline:
            start = time.perf_counter()
            subject.chunk(rounds[name])
            return (time.perf_counter() - start) * 1e3

    budget = Budget(iterations=10, seconds=seconds) if quick else Budget(seconds=seconds, precision=0.002)
    collected = collect({name: (lambda name=name: run(name)) for name in ("bare", "probed")}, budget)
    bare, probed = (collected.samples[name].values for name in ("bare", "probed"))
    verdict = paired_verdict(bare, probed, baseline_name="bare", candidate_name="probed")

    runs = iterations(timeline.sections(), ITERATION)[collected.warmup_rounds :]
    parts = components(runs)
    other = sum(part.share for part in parts if part.other and part.path[:-1] in ([], ["policy"]))
    pairs = [seen_by_both(subject, hooks) for _ in range(profiled + 1)][1:]  # the profiler's first start is slow
    ours = {tuple(part.path): [] for part in pairs[0][0] if not part.other and tuple(part.path) in pairs[0][1].inside}
    for rows, _ in pairs:
        for part in rows:
            if tuple(part.path) in ours:
                ours[tuple(part.path)].append(part.values[0])

    columns = ("part", "% of chunk", "ms", "in operators", "first to last operator", "difference")
    table = Table(*columns, title=f"{kind} {' '.join(overrides)}")
    worst, gaps = 0.0, {}
    shares = {tuple(part.path): part.share for part in parts}
    for path, values in ours.items():
        if path == ("policy",) or shares[path] < BIG:
            continue
        theirs = [seen.extent[path] for _, seen in pairs]
        inside = median(seen.inside[path] for _, seen in pairs)
        difference = median(a / b - 1 for a, b in zip(values, theirs, strict=True))
        worst = max(worst, abs(difference))
        took = (f"{median(values):.2f}", f"{inside:.2f}", f"{median(theirs):.2f}")
        figures = (f"{shares[path]:.1%}", *took, f"{difference:+.1%}")
        gaps["/".join(path)] = 1 - inside / median(theirs)
        table.add_row("/".join(path), *figures)
    console.print(table)
    console.print(f"  outside every part {other:.2%}; probed / bare {verdict.ratio:.4f} ({verdict.sentence})")
    return {
        "other": other,
        "profiler_difference": worst,
        "between_operators": gaps,
        "probed_over_bare": verdict.ratio,
        "probed_over_bare_interval": [verdict.interval.low, verdict.interval.high],
        "pairs": len(bare),
        # A quick run has too few pairs for 1 %: there, what the interval does not contradict holds.
        "holds": other <= OTHER and worst <= AGREE and (verdict.interval.low if quick else verdict.ratio) <= DISTURB,
    }


KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36), "MALLOC_TOP_PAD_": str(2**28)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ACT and Diffusion only: under a minute")
    parser.add_argument("--only", choices=SUBJECTS, help="one policy only")
    arguments = parser.parse_args()
    if sys.platform == "linux" and not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY, "KINETO_LOG_LEVEL": "5"})
    torch.manual_seed(0)
    console = Console()
    chosen = QUICK if arguments.quick else SUBJECTS
    if arguments.only:
        chosen = {arguments.only: SUBJECTS[arguments.only]}
    figures = {kind: study(kind, *settings, arguments.quick, console) for kind, settings in chosen.items()}
    finish(figures, all(figure["holds"] for figure in figures.values()))


if __name__ == "__main__":
    main()
