"""What breakdown and compare share: run a subject's variants in turn, and turn the timeline into measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from strobe.measure.accounting import Accounting, CudaAllocator
from strobe.measure.blocks import blocks
from strobe.measure.components import Iteration, components, iterations, spans
from strobe.measure.kernel import KernelUse, kernel_use, median_use
from strobe.measure.memory import peak_process
from strobe.measure.sampling import Budget, Collected, Progress, collect
from strobe.measure.statistics import summarise
from strobe.measure.weights import Weights, weight_bytes
from strobe.results.data import Samples
from strobe.results.machine import Ceiling
from strobe.results.measurement import Measurement, Memory
from strobe.subjects.subject import ITERATION, Facts, Phase, Subject
from strobe.timeline import Section, Timeline
from strobe.timeline.probe import Attached, Hook
from strobe.timeline.sections import unseen
from strobe.treatments.treatment import Variant

ABOVE_CEILING = (
    "a part above 100 % of the ceiling is convolutions whose algorithm (Winograd's) saves part of the arithmetic that "
    "is counted"
)


class Reporter(Protocol):
    """Where a study says what it is doing."""

    def stage(self, what: str) -> None:
        """A new piece of work begins."""

    def progress(self, progress: Progress) -> None:
        """How far the sampling in this stage has come."""


class Silent:
    """Says nothing."""

    def stage(self, what: str) -> None: ...

    def progress(self, progress: Progress) -> None: ...


@dataclass
class Options:
    """How to measure, whatever is measured."""

    budget: Budget
    depth: int = 1
    batch_size: int = 8
    serialised: bool = False
    counted: bool = True
    probed: bool = True


@dataclass
class Measured:
    """Measurements of one phase, one per variant, and what they were made from."""

    measurements: list[Measurement]
    collected: Collected
    outputs: Outputs
    sections: list[Section] = field(default_factory=list)
    interrupted: bool = False
    first_s: dict[str, float] = field(default_factory=dict)  # of putting a variant on, with its first call

    @property
    def actions(self) -> dict[str, list[Tensor]]:
        """Inference: what came out (actions, or features), aligned over the variants."""
        return self.outputs.aligned(self.collected.warmup_rounds)

    @property
    def pooled(self) -> dict[str, list[Tensor]]:
        """A backbone's features as their mean over the tokens, which every clip has, whatever its size."""
        return self.outputs.pooled(self.collected.warmup_rounds)


class Outputs:
    """What every variant returned in every round, as much of it as fits: features can be millions of numbers."""

    PER_OUTPUT = 2**20  # elements kept of one output, drawn once and for all
    TOGETHER = 2**26  # elements kept of all outputs: 256 MiB

    def __init__(self, names: Sequence[str]) -> None:
        self.rounds = dict.fromkeys(names, 0)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._kept: dict[str, list[Tensor]] = {name: [] for name in names}
        self._pooled: dict[str, list[Tensor]] = {name: [] for name in names}
        self._drawn: dict[int, Tensor] = {}
        self._most: int | None = None

    def add(self, name: str, output: Tensor, pooled: Tensor | None = None) -> None:
        """Keep what ``name`` returned, or some of it, and what it comes to when it is ``pooled``."""
        self.rounds[name] += 1
        self.shapes[name] = tuple(output.shape)
        if self._most is None:
            elements = min(output.numel(), self.PER_OUTPUT)
            self._most = max(1, self.TOGETHER // max(1, elements * len(self._kept)))
        if len(self._kept[name]) < self._most:
            self._kept[name].append(self._sample(output.detach()).float().cpu())
            if pooled is not None:
                self._pooled[name].append(pooled.detach().float().cpu())

    def first(self, name: str) -> list[Tensor]:
        """What ``name`` returned in rounds 0, 1, 2 …, warm-up included, as far as it was kept."""
        return list(self._kept[name])

    def aligned(self, warmup: int) -> dict[str, list[Tensor]]:
        """The outputs of complete rounds after ``warmup``, or of those too where nothing else was kept."""
        return _aligned(self._kept, warmup)

    def pooled(self, warmup: int) -> dict[str, list[Tensor]]:
        """The pooled outputs of the same rounds; none where the subject has none."""
        return _aligned(self._pooled, warmup)

    @property
    def note(self) -> str:
        """What was left out, in words."""
        if not self._drawn:
            return ""
        return f"compared on {self.PER_OUTPUT:,} of {next(iter(self._drawn)):,} numbers of each output, drawn at random"

    def _sample(self, output: Tensor) -> Tensor:
        count = output.numel()
        if count <= self.PER_OUTPUT:
            return output
        if count not in self._drawn:
            # At random, not evenly: a stride would meet the same few channels over and over.
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(count, (self.PER_OUTPUT,), generator=generator).sort().values
            self._drawn[count] = drawn.to(output.device)
        return output.flatten()[self._drawn[count]]


def _aligned(kept: Mapping[str, list[Tensor]], warmup: int) -> dict[str, list[Tensor]]:
    rounds = min(map(len, kept.values()), default=0)
    start = warmup if warmup < rounds else 0
    return {name: values[start:rounds] for name, values in kept.items()}


def measure(
    subject: Subject,
    phase: Phase,
    variants: Sequence[Variant],
    options: Options,
    ceiling: Ceiling | None = None,
    reporter: Reporter | None = None,
) -> Measured:
    """Run ``variants`` of one phase in alternation until the budget is spent; Ctrl-C keeps the complete rounds.

    Raises:
        UserError: a treatment does not apply; a probe does not fit.
    """
    reporter = reporter or Silent()
    call = subject.call(phase, options.batch_size)
    hooks = subject.hooks(phase, options.depth) if options.probed else []
    order: list[str] = []
    outputs = Outputs([variant.name for variant in variants])
    kernel: dict[str, list[KernelUse]] = {variant.name: [] for variant in variants}
    # A variant may hold the weights in another dtype, or work on something else.
    weights: dict[str, int] = {}
    facts: dict[str, Facts] = {}
    first_s: dict[str, float] = {}  # of putting a variant on, with its first call
    timeline = Timeline(subject.device, serialised=options.serialised)

    def runner(variant: Variant) -> Callable[[], float]:
        def run() -> float:
            begun = time.perf_counter()
            undo = variant.apply(subject)
            try:
                order.append(variant.name)
                if variant.name not in weights:
                    weights[variant.name] = weight_bytes(subject.module)
                index = outputs.rounds[variant.name]  # every variant sees the same observation and noise in a round
                before = kernel_use()
                start = time.perf_counter()
                output = call(index)
                end = time.perf_counter()
                took = (end - start) * 1e3
                first_s.setdefault(variant.name, end - begun)
                kernel[variant.name].append(kernel_use() - before)
                outputs.add(variant.name, output, getattr(subject, "pooled", None))
                if variant.name not in facts:
                    facts[variant.name] = _facts(subject, phase, options)
                return took
            finally:
                undo()

        return run

    reporter.stage(f"{phase}: {', '.join(variant.name for variant in variants)}")
    with Attached(hooks):
        built = [variant for variant in variants if variant.built]
        for variant in built:  # building can take longer than all the sampling, whose time it is not
            reporter.stage(f"{'compiling' if variant.facts().get('compiled') else 'building'} {variant.name}")
            first_s[variant.name] = _build(subject, variant, call)
        if built:
            reporter.stage(f"{phase}: {', '.join(variant.name for variant in variants)}")
        with timeline:
            collected = collect({v.name: runner(v) for v in variants}, options.budget, reporter.progress)
    runs = _by_variant(iterations(timeline.sections(), ITERATION), order)
    skip, interrupted = collected.warmup_rounds, collected.interrupted
    kept = {name: runs.get(name, [])[skip : skip + len(s.values)] for name, s in collected.samples.items()}

    measurements: list[Measurement] = []
    for variant in variants:
        if not kept.get(variant.name):
            continue
        counted: _Counted | None = None
        if options.counted and not interrupted:
            reporter.stage(f"{phase}: counting FLOP and memory of {variant.name}")
            try:
                counted = _count(subject, variant, call, hooks)
            except KeyboardInterrupt:
                interrupted = True
        warmup = [run.ms for run in runs[variant.name][:skip]]
        # The ceiling of float32 was measured without TF32, and FLOP are counted by the weights' dtype.
        held_against = None if variant.facts().get("precision") == "tf32" else ceiling
        measurement = _measurement(subject, variant, phase, kept[variant.name], warmup, counted, held_against)
        measurement.memory.weights = weights[variant.name]
        measurement.unseen = _unseen(hooks, kept[variant.name])
        measurement.facts |= facts[variant.name]
        if variant.built:
            took = first_s[variant.name] - measurement.samples.summary.median / 1e3
            measurement.facts["build s"] = round(max(0.0, took), 3)
        used = median_use(kernel[variant.name][skip : skip + len(kept[variant.name])])
        if used is not None:
            measurement.memory.kernel_ms, measurement.memory.page_faults = used
        measurement.samples.notes = collected.samples[variant.name].notes
        if any((part.ceiling_share or 0) > 1 for part in measurement.components):
            measurement.notes.append(ABOVE_CEILING)
        if not measurement.unseen and options.depth == 1:
            measurement.notes += _never_ran(hooks, kept[variant.name])
        if options.serialised:
            measurement.notes.append("serialised: the device was synchronised around every part, nothing overlapped")
        measurements.append(measurement)
    return Measured(measurements, collected, outputs, timeline.sections(), interrupted, first_s)


def _build(subject: Subject, variant: Variant, call: Callable[[int], Any]) -> float:
    """Put ``variant`` on and run it once; how long that took, in seconds."""
    begun = time.perf_counter()
    undo = variant.apply(subject)
    try:
        call(0)
        return time.perf_counter() - begun
    finally:
        undo()


@dataclass
class _Counted:
    accounting: Accounting | None
    memory: Memory
    weights: Weights


def _count(subject: Subject, variant: Variant, call: Callable[[int], Any], hooks: Sequence[Hook]) -> _Counted:
    undo = variant.apply(subject)
    accounting, on_device = None, None
    allocator = CudaAllocator(subject.device) if subject.device.type == "cuda" else None
    try:
        weights = Weights(hooks)
        with peak_process() as process:
            if variant.built:  # operators inside a compiled region or an engine cannot be counted
                call(0)
                on_device = allocator.peak() if allocator is not None else None
            else:
                accounting = Accounting(allocator)
                with Attached(hooks):
                    accounting.run(lambda: call(0))
                on_device = accounting.peak if allocator is not None else None
    finally:
        undo()
    memory = Memory(peak_process=process.bytes, peak_device=on_device)
    if accounting is not None:
        memory.source = accounting.meter.source
        memory.peak_activations = accounting.total.peak_bytes
    return _Counted(accounting, memory, weights)


def _measurement(
    subject: Subject,
    variant: Variant,
    phase: Phase,
    runs: Sequence[Iteration],
    warmup: list[float],
    counted: _Counted | None,
    ceiling: Ceiling | None,
) -> Measurement:
    values = [run.ms for run in runs]
    accounts = None
    if counted is not None and counted.accounting is not None:
        accounts = {path[1:]: account for path, account in counted.accounting.accounts.items()}
    summary = summarise(values)
    parts = components(runs, accounts, ceiling, counted.weights.of if counted is not None else lambda _: None)
    nearest = min(runs, key=lambda run: abs(run.ms - summary.median))
    return Measurement(
        name=variant.name,
        phase=phase,
        clock="host" if runs[0].whole.device_ms is None else "device",
        samples=Samples(warmup=warmup, values=values, summary=summary),
        components=parts,
        blocks=blocks(parts),
        memory=counted.memory if counted is not None else Memory(),
        spans=spans(nearest),
        facts=variant.facts(),
    )


def _facts(subject: Subject, phase: Phase, options: Options) -> Facts:
    facts = {"device": str(subject.device), **subject.facts(phase, options.batch_size)}
    return {name: value for name, value in facts.items() if value is not None}


def _unseen(hooks: Sequence[Hook], runs: Sequence[Iteration]) -> dict[str, str]:
    # Variants share the timeline: a part that is hidden in this one may have been seen in another.
    fired = {part.name for run in runs for part in run.parts}
    reasons = unseen()
    return {hook.name: reasons[hook.name] for hook in hooks if hook.name in reasons and hook.name not in fired}


def _never_ran(hooks: Sequence[Hook], runs: Sequence[Iteration]) -> list[str]:
    fired = {part.name for run in runs for part in run.parts}
    silent = [hook.name for hook in hooks if hook.name not in fired and not hook.optional]
    return [f"probes that never fired in this phase: {', '.join(dict.fromkeys(silent))}"] if silent else []


def _by_variant(runs: Sequence[Iteration], order: Sequence[str]) -> Mapping[str, list[Iteration]]:
    found: dict[str, list[Iteration]] = {}
    for run, name in zip(runs, order, strict=False):
        found.setdefault(name, []).append(run)
    return found
