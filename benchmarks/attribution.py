"""Do the parts add up, do they agree with torch.profiler, and do the probes disturb what they measure?

On full-size policies with random weights, bars for each: time outside every named part ≤ 5 % of the chunk; every part
over 5 % agrees within 5 % with the time that torch.profiler saw in operators inside it, in the same run; chunk time
with probes over chunk time without, from one interleaved run, ≤ 1.01.

On Linux it starts itself again with an allocator that keeps its memory: otherwise large tensors are given back to the
kernel between operators, which is time of the part (and counted as such by us) but of none of its operators.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
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
from strobe.subjects.subject import ITERATION, Subject
from strobe.timeline import Timeline
from strobe.timeline.probe import Attached
from strobe.timeline.sections import recording

OTHER, AGREE, DISTURB, BIG = 0.05, 0.05, 1.01, 0.05

# policy type → overrides, seconds of sampling, iterations under the profiler
SUBJECTS: dict[str, tuple[list[str], float, int]] = {
    "act": ([], 60, 8),
    "diffusion": (["--num_inference_steps=10"], 90, 3),
    "pi05": (["--dtype=bfloat16"], 240, 2),
}
QUICK: dict[str, tuple[list[str], float, int]] = {
    "act": ([], 12, 4),
    "diffusion": (["--num_inference_steps=2"], 15, 4),
}


class Both:
    """A section and a profiler annotation around the same code."""

    def __init__(self, opener: Callable[[str], Any], name: str) -> None:
        self.pair = (record_function(name), opener(name))

    def __enter__(self) -> None:
        for one in self.pair:
            one.__enter__()

    def __exit__(self, *exception: Any) -> None:
        for one in reversed(self.pair):
            one.__exit__(*exception)


def in_operators(
    subject: Subject, hooks: list[Any], count: int
) -> tuple[dict[tuple[str, ...], float], list[Component]]:
    """Per part, milliseconds that the profiler saw in its operators, and our components of the same iterations.

    One iteration more is run than counted: the profiler's first takes its own time between operators.
    """
    timeline = Timeline()
    opener = recording(lambda name: Both(timeline.section, name))
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler, Attached(hooks), opener:
        for _ in range(count + 1):
            subject.chunk(0)
    seen: Counter[tuple[str, ...]] = Counter()

    def operators_below(event: Any, path: tuple[str, ...]) -> float:
        if event.is_user_annotation:
            inner = (*path, event.name)
            total = sum(operators_below(child, inner) for child in event.cpu_children)
            seen[inner] += total / 1e3
            return total
        return event.cpu_time_total

    whole = [event for event in profiler.events() or [] if event.cpu_parent is None and event.name == ITERATION]
    for event in sorted(whole, key=lambda event: event.time_range.start)[1:]:
        operators_below(event, ())
    runs = iterations(timeline.sections(), ITERATION)[1:]
    return {path[1:]: ms / count for path, ms in seen.items()}, components(runs)


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
    seen, ours = in_operators(subject, hooks, profiled)

    table = Table("part", "% of chunk", "ms", "ms in operators", "difference", title=f"{kind} {' '.join(overrides)}")
    worst = 0.0
    for part in ours:
        path = tuple(part.path)
        if part.other or path not in seen or path == ("policy",) or part.share < BIG:
            continue
        ms = sum(part.values) / len(part.values)
        difference = ms / seen[path] - 1
        worst = max(worst, abs(difference))
        table.add_row("/".join(path), f"{part.share:.1%}", f"{ms:.2f}", f"{seen[path]:.2f}", f"{difference:+.1%}")
    console.print(table)
    console.print(f"  outside every part {other:.2%}; probed / bare {verdict.ratio:.4f} ({verdict.sentence})")
    return {
        "other": other,
        "profiler_difference": worst,
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
