"""Do the parts add up, do they agree with torch.profiler, and do the probes disturb what they measure?

On full-size policies with random weights, bars for each: time outside every named part ≤ 5 % of the chunk; every part
over 5 % agrees within 5 % with the time that torch.profiler saw in operators inside it, in the same run; chunk time
with probes over chunk time without, from one interleaved run, ≤ 1.01.
"""

from __future__ import annotations

import argparse
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
from strobe.measure.statistics import paired_verdict
from strobe.results.schema import Component
from strobe.subjects.loading import load_subject
from strobe.subjects.subject import ITERATION, Subject
from strobe.timeline import Timeline
from strobe.timeline.probe import Attached
from strobe.timeline.sections import recording

OTHER, AGREE, DISTURB, BIG = 0.05, 0.05, 1.01, 0.05

# policy type → overrides, seconds of sampling
SUBJECTS: dict[str, tuple[list[str], float]] = {
    "act": ([], 60),
    "diffusion": (["--num_inference_steps=10"], 60),
    "pi05": (["--dtype=bfloat16"], 240),
}
QUICK: dict[str, tuple[list[str], float]] = {"act": ([], 12), "diffusion": (["--num_inference_steps=10"], 12)}


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


def in_operators(subject: Subject, hooks: list[Any]) -> tuple[dict[tuple[str, ...], float], list[Component]]:
    """Per part, milliseconds that the profiler saw in its operators, and our components of the same iteration."""
    timeline = Timeline()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, Attached(hooks):
        with recording(lambda name: Both(timeline.section, name)):
            subject.chunk(0)
    seen: Counter[tuple[str, ...]] = Counter()

    def operators_below(event: Any, path: tuple[str, ...]) -> float:
        if event.is_user_annotation:
            inner = (*path, event.name)
            total = sum(operators_below(child, inner) for child in event.cpu_children)
            seen[inner] += total / 1e3
            return total
        return event.cpu_time_total

    for event in profiler.events() or []:
        if event.cpu_parent is None and event.name == ITERATION:
            operators_below(event, ())
    runs = iterations(timeline.sections(), ITERATION)
    return {path[1:]: ms for path, ms in seen.items()}, components(runs)


def study(kind: str, overrides: list[str], seconds: float, console: Console) -> dict[str, Any]:
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

    budget = Budget(seconds=seconds, precision=0.002)
    collected = collect({name: (lambda name=name: run(name)) for name in ("bare", "probed")}, budget)
    bare, probed = (collected.samples[name].values for name in ("bare", "probed"))
    verdict = paired_verdict(bare, probed, baseline_name="bare", candidate_name="probed")

    runs = iterations(timeline.sections(), ITERATION)[collected.warmup_rounds :]
    parts = components(runs)
    other = sum(part.share for part in parts if part.other and part.path[:-1] in ([], ["policy"]))
    seen, ours = in_operators(subject, hooks)

    table = Table("part", "% of chunk", "ms", "ms in operators", "difference", title=f"{kind} {' '.join(overrides)}")
    worst = 0.0
    for part in ours:
        path = tuple(part.path)
        if part.other or path not in seen or path == ("policy",) or part.share < BIG:
            continue
        ms = part.values[0]
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
        "holds": other <= OTHER and worst <= AGREE and verdict.ratio <= DISTURB,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ACT and Diffusion only: under a minute")
    parser.add_argument("--only", choices=SUBJECTS, help="one policy only")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    console = Console()
    chosen = QUICK if arguments.quick else SUBJECTS
    if arguments.only:
        chosen = {arguments.only: SUBJECTS[arguments.only]}
    figures = {kind: study(kind, *settings, console) for kind, settings in chosen.items()}
    finish(figures, all(figure["holds"] for figure in figures.values()))


if __name__ == "__main__":
    main()
