"""What the benchmarks of attribution share: our parts against torch.profiler's operators, and probed against bare."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile, record_function

from strobe.core.measure.components import components, iterations
from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.results.measurement import Component
from strobe.core.subjects.subject import ITERATION
from strobe.core.timeline import Timeline, section
from strobe.core.timeline.probe import Attached, Hook
from strobe.core.timeline.sections import recording

AGREE, DISTURB = 0.05, 1.01
EMPTY, EMPTY_RANGES = "nothing", 100


@dataclass
class Operators:
    """Per part, milliseconds of one iteration.

    Attributes:
        inside: inside its operators.
        extent: from each call's first operator to its last.
        ranges: in the profiler's own ranges of `record_function`, less what one around nothing takes.
    """

    inside: defaultdict[tuple[str, ...], float]
    extent: defaultdict[tuple[str, ...], float]
    ranges: defaultdict[tuple[str, ...], float]


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


def seen_by_both(call: Callable[[int], Any], hooks: Sequence[Hook]) -> tuple[list[Component], Operators]:
    """One iteration: our components of it, and what torch.profiler saw of the operators in each part."""
    seen = Operators(defaultdict(float), defaultdict(float), defaultdict(float))

    def measure_below(event: Any, path: tuple[str, ...]) -> tuple[float, float, float]:
        if not event.is_user_annotation:
            return event.cpu_time_total, event.time_range.start, event.time_range.end
        inner = (*path, event.name)
        found = [measure_below(child, inner) for child in event.cpu_children]
        total = sum(took for took, _, _ in found)
        start = min((start for _, start, _ in found), default=event.time_range.start)
        end = max((end for _, _, end in found), default=start)
        seen.inside[inner[1:]] += total / 1e3
        seen.extent[inner[1:]] += (end - start) / 1e3
        seen.ranges[inner[1:]] += event.time_range.elapsed_us() / 1e3 - empty_ms
        return total, start, end

    timeline = Timeline()
    opener = recording(lambda name: Both(timeline, name))
    with profile(activities=[ProfilerActivity.CPU]) as profiler, Attached(hooks), opener:
        call(0)
        for _ in range(EMPTY_RANGES):
            with section(EMPTY):
                pass
    events = profiler.events() or []
    # A range is around its section, so that it holds some 20 µs more, which show where a part takes 300.
    empty_ms = median(event.time_range.elapsed_us() / 1e3 for event in events if event.name == EMPTY)
    for event in events:
        if event.cpu_parent is None and event.name == ITERATION:
            measure_below(event, ())
    return components(iterations(timeline.sections(), ITERATION)), seen


@dataclass(frozen=True)
class Plan:
    """How one subject is attributed.

    Attributes:
        seconds: of sampling.
        profiled: iterations under the profiler.
        outer: parts that hold nearly all: what is in none of their own parts is 'other', and they are not judged.
        big: share of the whole from which a part is compared with the profiler.
    """

    title: str
    seconds: float
    profiled: int
    quick: bool
    outer: Sequence[tuple[str, ...]]
    big: float


def study(
    call: Callable[[int], Any], hooks: Sequence[Hook], console: Console, plan: Plan
) -> tuple[dict[str, Any], list[Component]]:
    """The figures of one subject, with its parts; prints its table."""
    timeline = Timeline()
    rounds = Counter[str]()

    def run(name: str) -> float:
        rounds[name] += 1
        start = time.perf_counter()
        if name == "bare":
            call(rounds[name])
            return (time.perf_counter() - start) * 1e3
        with Attached(hooks), timeline:
            start = time.perf_counter()
            call(rounds[name])
            return (time.perf_counter() - start) * 1e3

    budget = (
        SamplingBudget(iterations=10, seconds=plan.seconds)
        if plan.quick
        else SamplingBudget(seconds=plan.seconds, precision=0.002)
    )
    collected = collect({name: (lambda name=name: run(name)) for name in ("bare", "probed")}, budget)
    bare, probed = (collected.samples[name].values for name in ("bare", "probed"))
    verdict = paired_verdict(bare, probed, baseline_name="bare", candidate_name="probed")

    runs = iterations(timeline.sections(), ITERATION)[collected.warmup_rounds :]
    parts = components(runs)
    other = sum(part.share for part in parts if part.other and tuple(part.path[:-1]) in ((), *plan.outer))
    pairs = [seen_by_both(call, hooks) for _ in range(plan.profiled + 1)][1:]  # the profiler's first start is slow
    ours = {tuple(part.path): [] for part in pairs[0][0] if not part.other and tuple(part.path) in pairs[0][1].inside}
    for rows, _ in pairs:
        for part in rows:
            if tuple(part.path) in ours:
                ours[tuple(part.path)].append(part.values[0])

    table = Table("part", "% of whole", "ms", "in operators", "first to last operator", "difference", title=plan.title)
    worst, gaps = 0.0, {}
    shares = {tuple(part.path): part.share for part in parts}
    for path, values in ours.items():
        if path in plan.outer or shares[path] < plan.big:
            continue
        theirs = [seen.extent[path] for _, seen in pairs]
        inside = median(seen.inside[path] for _, seen in pairs)
        difference = median(a / b - 1 for a, b in zip(values, theirs, strict=True))
        worst = max(worst, abs(difference))
        took = (f"{median(values):.2f}", f"{inside:.2f}", f"{median(theirs):.2f}")
        gaps["/".join(path)] = 1 - inside / median(theirs)
        table.add_row("/".join(path), f"{shares[path]:.1%}", *took, f"{difference:+.1%}")
    console.print(table)
    console.print(f"  outside every part {other:.2%}; probed / bare {verdict.ratio:.4f} ({verdict.text})")
    figures = {
        "other": other,
        "profiler_difference": worst,
        "between_operators": gaps,
        "probed_over_bare": verdict.ratio,
        "probed_over_bare_interval": [verdict.interval.low, verdict.interval.high],
        "pairs": len(bare),
        # A quick run has too few pairs for 1 %: there, what the interval does not contradict holds.
        "holds": worst <= AGREE and (verdict.interval.low if plan.quick else verdict.ratio) <= DISTURB,
    }
    return figures, parts
