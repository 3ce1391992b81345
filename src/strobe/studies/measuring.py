"""Measure variants: run them in turn, and turn the timeline into a measurement of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from torch import Tensor

from strobe.measure.accounting import weight_bytes
from strobe.measure.ceiling import raise_to_now
from strobe.measure.components import Iteration, blocks, components, iterations, spans
from strobe.measure.memory import kernel_use, median_use
from strobe.measure.roofline import limits
from strobe.measure.sampling import Collected, Progress, SamplingBudget, collect
from strobe.measure.statistics import summarise
from strobe.measure.verdicts import WITHIN
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import ITERATION, Phase, Subject
from strobe.results.agreement import ActionScale
from strobe.results.data import Samples
from strobe.results.machine import Ceiling
from strobe.results.measurement import Measurement, Memory
from strobe.results.traits import Traits
from strobe.studies.cadence import Spacing, ticks_between_calls
from strobe.studies.counting import Counted, count, lacking
from strobe.studies.outputs import Outputs
from strobe.studies.rounds import Round, attribute, recorded
from strobe.timeline import Section, Timeline
from strobe.timeline.probe import Attached, Hook
from strobe.timeline.sections import unseen
from strobe.treatments.numbers.tf32 import convolutions_in_tf32
from strobe.treatments.room import noted
from strobe.treatments.treatment import Variant

ABOVE_CEILING = (
    "a part above 100 % of the ceiling: convolutions whose algorithm (Winograd's) saves part of the arithmetic that is "
    "counted, or a machine that was slower while its ceiling was measured than while the policy ran"
)
ABOVE_WITH_TF32 = (
    "a part above 100 % of the ceiling is convolutions of float32, which cuDNN computes in TF32 unless told otherwise "
    "(torch.backends.cudnn.allow_tf32); the ceiling is that of products without TF32"
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

    budget: SamplingBudget
    depth: int = 1
    batch_size: int = 8
    serialised: bool = False
    counted: bool = True
    probed: bool = True
    checked: bool = True  # whether a comparison also looks at the actions on observations that find faults
    within: float = WITHIN  # of the time: a variant is called as fast as another where its interval lies in there
    pace_hz: float | None = None  # control rate at which inference is called, in ticks per second; None: back to back


@dataclass
class Measured:
    """Measurements of one phase, one per variant, and what they were made from."""

    measurements: list[Measurement]
    collected: Collected
    outputs: Outputs
    sections: list[Section] = field(default_factory=list)
    interrupted: bool = False
    first_s: dict[str, float] = field(default_factory=dict)  # of putting a variant on, with its first call
    variants: dict[str, Variant] = field(default_factory=dict)  # by name
    counts: dict[str, Counted] = field(default_factory=dict)  # by name
    scale: ActionScale | None = None  # of a policy's actions
    executed: int | None = None  # actions of a chunk
    features: bool = False  # whether the outputs are a backbone's features and not actions

    @property
    def actions(self) -> dict[str, list[Tensor]]:
        """Actions or features of an inference, aligned over the variants."""
        return self.outputs.aligned(self.collected.warmup_rounds)

    @property
    def pooled(self) -> dict[str, list[Tensor]]:
        """A backbone's features as their mean over the tokens, which every clip has, whatever its size."""
        return self.outputs.pooled(self.collected.warmup_rounds)


def measure(
    subject: Subject,
    phase: Phase,
    variants: Sequence[Variant],
    options: Options,
    ceiling: Ceiling | None = None,
    reporter: Reporter | None = None,
    afterwards: Callable[[Collected], None] = lambda _: None,
    back_to_back: Set[str] = frozenset(),
    known: Mapping[str, Counted] = MappingProxyType({}),
) -> Measured:
    """Run ``variants`` of one phase in alternation until the budget is spent; Ctrl-C keeps the complete rounds.

    A round in which the timeline has not exactly one iteration of each variant is left out of all of them, with a note.

    Args:
        ceiling: of this machine; it is raised where a part ran above it and the machine reaches more by then.
        afterwards: called after the last round, while the probes are still attached: without them, code that was
            compiled with them would be compiled again. Not called after Ctrl-C.
        back_to_back: names of variants that are called without gaps, though ``options`` has a pace.
        known: what an earlier run counted of variants, by name: they are not counted again.

    Raises:
        UserError: a treatment does not apply, or is not for ``phase``; a probe does not fit.
        RuntimeError: the timeline has no round with one iteration of each variant.
    """
    for variant in variants:
        variant.require(phase)
    reporter = reporter or Silent()
    call = subject.call(phase, options.batch_size)
    hooks = subject.hooks(phase, options.depth) if options.probed else []
    timeline = Timeline(subject.device, serialised=options.serialised)
    outputs = Outputs([variant.name for variant in variants])
    seen = {variant.name: _Seen(variant) for variant in variants}
    spacing = Spacing(options.pace_hz, back_to_back) if options.pace_hz and phase == "inference" else None

    def runner(one: _Seen) -> Callable[[], float]:
        def run() -> float:
            begun = time.perf_counter()
            undo = one.variant.apply(subject)
            try:
                index = len(one.rounds)  # every variant sees the same observation and noise in a round
                if not index:
                    one.weights = weight_bytes(subject.module, *subject.family.outside(subject.module))
                if spacing is not None:
                    spacing.before(one.variant.name, ticks_between_calls(subject), lambda: call(index + 1))
                before, start_ns = kernel_use(), timeline.now_ns()
                with nullcontext() if index else noted(subject):  # the first call is warm-up
                    output = call(index)
                round = Round(index, start_ns, timeline.now_ns(), kernel_use() - before)
                if not index and not one.variant.builds:
                    one.first_s = time.perf_counter() - begun
                one.rounds.append(round)
                outputs.add(one.variant.name, output, getattr(subject, "pooled", None))
                if not index:
                    one.traits = _traits(subject, phase, options)
                    one.tensor_float = convolutions_in_tf32(subject.device)
                return round.took_ms
            finally:
                undo()

        return run

    stage = f"{phase}: {', '.join(seen)}"
    reporter.stage(stage)
    with Attached(hooks):
        building = [one for one in seen.values() if one.variant.builds]
        for one in building:  # building can take longer than all the sampling, whose time it is not
            reporter.stage(f"{'compiling' if 'compiled' in one.variant.builds else 'building'} {one.variant.name}")
            one.first_s = _build(subject, one.variant, call)
        if building:
            reporter.stage(stage)
        with timeline:
            collected = collect({name: runner(one) for name, one in seen.items()}, options.budget, reporter.progress)
        if not collected.interrupted:
            afterwards(collected)
    sections = timeline.sections()
    attribute([round for one in seen.values() for round in one.rounds], iterations(sections, ITERATION))
    kept, lost = recorded([one.rounds[: collected.rounds] for one in seen.values()], collected.warmup_rounds)
    if not kept:
        raise RuntimeError(f"no round of {', '.join(seen)} was recorded as one '{ITERATION}' of each")

    interrupted = collected.interrupted
    counts: dict[str, Counted] = {}
    for name, one in seen.items():
        counted = known.get(name) if options.counted else None
        if options.counted and counted is None and not interrupted:
            reporter.stage(f"{phase}: counting FLOP and memory of {name}")
            try:
                counted = count(subject, one.variant, call, hooks)
            except KeyboardInterrupt:
                interrupted = True
        if counted is not None:
            counts[name] = counted

    def described() -> list[Measurement]:
        warmup = collected.warmup_rounds
        return [_measurement(one, phase, kept, warmup, counts.get(name), ceiling) for name, one in seen.items()]

    measurements = described()
    if ceiling is not None and not interrupted and any(map(_above, measurements)):
        reporter.stage("a part ran above the ceiling: measuring once more what this machine can do")
        try:
            raise_to_now(ceiling, subject.device)
        except KeyboardInterrupt:
            interrupted = True
        measurements = described()
    for measurement, (name, one) in zip(measurements, seen.items(), strict=True):
        runs = one.runs(kept)
        measurement.unseen = _unseen(hooks, runs)
        measurement.samples.notes = collected.samples[name].notes
        measurement.samples.longest_state_s = collected.samples[name].longest_state_s
        measurement.cadence = spacing.of(name, kept) if spacing is not None else None
        if _above(measurement):
            measurement.notes.append(ABOVE_WITH_TF32 if one.tensor_float else ABOVE_CEILING)
        if not measurement.unseen and options.depth == 1:
            measurement.notes += _never_ran(hooks, runs)
        if options.serialised:
            measurement.notes.append("serialised: the device was synchronised around every part, nothing overlapped")
        measurement.notes += [lost] if lost else []
        if name in counts and counts[name].uncounted:
            measurement.notes.append(lacking(counts[name].uncounted))
    if ceiling is not None and phase == "inference":
        for measurement, limit in zip(measurements, limits(measurements, ceiling), strict=True):
            measurement.limit = None if "tf32" in seen[measurement.name].variant.dtypes else limit
    first_s = {name: one.first_s for name, one in seen.items()}
    by_name = {name: one.variant for name, one in seen.items()}
    acting = subject if isinstance(subject, PolicySubject) and phase == "inference" and outputs.whole else None
    return Measured(
        measurements,
        collected,
        outputs,
        sections,
        interrupted,
        first_s,
        by_name,
        counts,
        scale=acting.scale(outputs.first(variants[0].name)) if acting is not None else None,
        executed=acting.executed if acting is not None else None,
        features=not isinstance(subject, PolicySubject),
    )


@dataclass
class _Seen:
    """One variant and what was seen of it while it was on."""

    variant: Variant
    rounds: list[Round] = field(default_factory=list)
    # A variant may hold the weights in another dtype, or work on something else.
    weights: int = 0
    traits: Traits = field(default_factory=Traits)
    first_s: float = 0.0  # of putting it on, with its first call
    tensor_float: bool = False  # whether convolutions of float32 were computed in TF32

    def runs(self, rounds: Sequence[int]) -> list[Iteration]:
        """The iterations of these rounds, all of which were recorded."""
        return [run for index in rounds if (run := self.rounds[index].iteration) is not None]


def _build(subject: Subject, variant: Variant, call: Callable[[int], Any]) -> float:
    """Put ``variant`` on and run it once; how long that took, in seconds."""
    begun = time.perf_counter()
    undo = variant.apply(subject)
    try:
        call(0)
        return time.perf_counter() - begun
    finally:
        undo()


def _measurement(
    one: _Seen, phase: Phase, kept: Sequence[int], warmup: int, counted: Counted | None, ceiling: Ceiling | None
) -> Measurement:
    """The measurement of a variant in the rounds ``kept``, of which there is one at least."""
    runs = one.runs(kept)
    values = [run.ms for run in runs]
    accounts = None
    if counted is not None and counted.accounts is not None:
        accounts = {path[1:]: account for path, account in counted.accounts.items()}
    # The ceiling of float32 was measured without TF32, and FLOP are counted by the weights' dtype.
    if "tf32" in one.variant.dtypes:
        ceiling = None
    summary = summarise(values)
    parts = components(runs, accounts, ceiling, counted.weights.of if counted is not None else lambda _: None)
    nearest = min(runs, key=lambda run: abs(run.ms - summary.median))
    put_on = one.variant.traits()
    traits = one.traits.model_copy(update={"recipe": put_on.recipe, "treatments": put_on.treatments})
    if one.variant.builds:
        traits.build_s = round(max(0.0, one.first_s - summary.median / 1e3), 3)
    memory = counted.memory.model_copy() if counted is not None else Memory()
    memory.weights = one.weights
    memory.stays = one.variant.stays() or None
    used = median_use([one.rounds[index].kernel for index in kept])
    if used is not None:
        memory.kernel_ms, memory.page_faults = used
    return Measurement(
        name=one.variant.name,
        phase=phase,
        clock="host" if runs[0].whole.device_ms is None else "device",
        samples=Samples(warmup=[run.ms for run in one.runs(range(warmup))], values=values, summary=summary),
        components=parts,
        blocks=blocks(parts),
        memory=memory,
        spans=spans(nearest),
        traits=traits,
    )


def _above(measurement: Measurement) -> bool:
    """Return whether a part ran above the ceiling that was measured."""
    return any((part.ceiling_share or 0) > 1 for part in measurement.components)


def _traits(subject: Subject, phase: Phase, options: Options) -> Traits:
    traits = subject.traits(phase, options.batch_size)
    traits.device = str(subject.device)
    return traits


def _unseen(hooks: Sequence[Hook], runs: Sequence[Iteration]) -> dict[str, str]:
    # Variants share the timeline: a part that is hidden in this one may have been seen in another.
    fired = {part.name for run in runs for part in run.parts}
    reasons = unseen()
    return {hook.name: reasons[hook.name] for hook in hooks if hook.name in reasons and hook.name not in fired}


def _never_ran(hooks: Sequence[Hook], runs: Sequence[Iteration]) -> list[str]:
    fired = {part.name for run in runs for part in run.parts}
    silent = [hook.name for hook in hooks if hook.name not in fired and not hook.optional]
    return [f"probes that never fired in this phase: {', '.join(dict.fromkeys(silent))}"] if silent else []
