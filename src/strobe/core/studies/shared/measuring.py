"""Measure variants: run them in turn, count FLOP and memory, compare them with the machine's limits, note the rest.

`Session.measure` is the sequence, one method for each step; `rounds` makes a measurement of what was recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strobe.core.devices.accelerators import convolutions_in_tf32
from strobe.core.errors import UserError
from strobe.core.families.capabilities import Unregistered
from strobe.core.measure.agreement import Values
from strobe.core.measure.compilations import CompileWatch
from strobe.core.measure.components import iterations
from strobe.core.measure.energy import EnergyOfRounds
from strobe.core.measure.guard import Of
from strobe.core.measure.memory import kernel_use, weight_bytes
from strobe.core.measure.other_work import MachinePace
from strobe.core.measure.roofline import limits
from strobe.core.measure.sampling import Collected, Progress, SamplingBudget, collect
from strobe.core.measure.time_limit import TimeLimit, WorkLimit
from strobe.core.measure.verdicts import WITHIN
from strobe.core.results.agreement import ActionScale
from strobe.core.results.data import Samples
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Ceiling
from strobe.core.studies.shared.cadence import Spacing, ticks_between_calls
from strobe.core.studies.shared.progress import Reporter, Silent, Steps
from strobe.core.studies.shared.rounds import (
    Outputs,
    Round,
    Seen,
    attribute,
    complete_rounds,
    exceeds_ceiling,
    make_measurement,
    silent_probes,
    unseen_parts,
)
from strobe.core.subjects.outputs import Numbers
from strobe.core.subjects.subject import ITERATION, Phase, Subject
from strobe.core.timeline import Section, Timeline
from strobe.core.timeline.probe import Attached
from strobe.core.torch_there import is_tensor
from strobe.core.treatments.room import record_call_memory
from strobe.core.treatments.treatment import Variant

if TYPE_CHECKING:
    from strobe.core.studies.shared.counting import Counted

COUNTED_CALLS = 2.0  # approximate cost of a counted call, in calls
AGAIN_S = 3.0  # time to measure the ceiling once more
COUNTING_S = 20.0  # longest time for counting, however short the rounds were
LATE = (
    "FLOP and memory were not counted: counting the variants before took as long as the rounds. --skip_counting leaves "
    "all counting out"
)
ABOVE_CEILING = (
    "a part above 100 % of the ceiling: convolutions whose algorithm (Winograd's) saves part of the arithmetic that is "
    "counted, or a machine that was slower while its ceiling was measured than while the policy ran"
)
ABOVE_WITH_TF32 = (
    "a part above 100 % of the ceiling is convolutions of float32, which cuDNN computes in TF32 unless told otherwise "
    "(torch.backends.cudnn.allow_tf32); the ceiling is that of products without TF32"
)


@dataclass
class Options:
    """How to measure, whatever is measured."""

    budget: SamplingBudget
    depth: int = 1
    batch_size: int = 8
    serialised: bool = False
    energy: bool = False  # whether to read the device's energy; only rounds of one variant can be read
    nvtx: bool = False  # whether a range of NVTX is put around every section
    counted: bool = True
    probed: bool = True
    checked: bool = True  # whether a comparison also looks at the actions on observations that find faults
    in_spread: bool = True  # whether the outputs of a call in Python are compared in their own spread (σ)
    within: float = WITHIN  # of the time: a variant is called as fast as another where its interval lies in there
    pace_hz: float | None = None  # control rate at which inference is called, in ticks per second; None: back to back
    back_to_back: frozenset[str] = frozenset()  # names of variants that are called without gaps in spite of a pace
    limit: WorkLimit = field(default_factory=WorkLimit)  # of all that the command measures


@dataclass
class Measured:
    """Measurements of one phase, one per variant, and what they were made from.

    Args:
        first_s: variant → seconds of putting it on, with its first call.
        variants: by name.
        counts: variant → its FLOP and memory; without those that were not counted.
        scale: of a policy's actions; None for other subjects, or where outputs were not kept whole.
        executed: actions of a chunk that the robot executes.
        returns: what the subject returns.
        forms: variant → input's place → numbers without values, of outputs whose meaning is not known.
        in_spread: whether such outputs are compared in their own spread.
    """

    measurements: list[Measurement]
    collected: Collected
    outputs: Outputs
    sections: list[Section] = field(default_factory=list)
    interrupted: bool = False
    first_s: dict[str, float] = field(default_factory=dict)
    variants: dict[str, Variant] = field(default_factory=dict)
    counts: dict[str, Counted] = field(default_factory=dict)
    scale: ActionScale | None = None
    executed: int | None = None
    returns: Of = "actions"
    forms: Mapping[str, Mapping[int, Numbers]] = field(default_factory=dict)
    in_spread: bool = True

    @property
    def actions(self) -> dict[str, list[Values]]:
        """Return the actions or features of an inference, aligned over the variants."""
        return self.outputs.aligned_values(self.collected.warmup_rounds)

    @property
    def pooled_outputs(self) -> dict[str, list[Values]]:
        """Return a backbone's features as their mean over the tokens, which every clip has, whatever its size."""
        return self.outputs.aligned_values(self.collected.warmup_rounds, pooled=True)


def measure(
    subject: Subject,
    phase: Phase,
    variants: Sequence[Variant],
    options: Options,
    ceiling: Ceiling | None = None,
    reporter: Reporter | None = None,
) -> Measured:
    """Run ``variants`` of one phase in alternation until the budget is spent. See `Session`."""
    return Session(subject, phase, variants, options, ceiling, reporter or Silent()).measure()


@dataclass
class Session:
    """One run of variants of one phase, in alternation.

    Args:
        ceiling: of this machine; it is raised where a part ran above it and the machine reaches more by then.
        afterwards: called after the last round, while the probes are still attached: without them, code that was
            compiled with them would be compiled again. Not called after Ctrl-C.
        known: what an earlier run counted of variants, by name: they are not counted again.

    Raises:
        UserError: a treatment does not apply, or is not for ``phase``; a probe does not fit.
    """

    subject: Subject
    phase: Phase
    variants: Sequence[Variant]
    options: Options
    ceiling: Ceiling | None = None
    reporter: Reporter = field(default_factory=Silent)
    afterwards: Callable[[Collected], None] = lambda _: None
    known: Mapping[str, Counted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for variant in self.variants:
            variant.require(self.phase)
        subject, options = self.subject, self.options
        self._call = subject.call(self.phase, options.batch_size)
        self._hooks = subject.hooks(self.phase, options.depth) if options.probed else []
        self._timeline = Timeline(subject.device, serialised=options.serialised, nvtx=options.nvtx)
        self._outputs = Outputs([variant.name for variant in self.variants])
        self._seen = {variant.name: Seen(variant) for variant in self.variants}
        pace_hz = options.pace_hz if self.phase == "inference" else None
        self._spacing = Spacing(pace_hz, options.back_to_back) if pace_hz else None
        self._compiling = CompileWatch()
        self._pace = MachinePace()
        self._energy = EnergyOfRounds(subject.device) if options.energy and len(self.variants) == 1 else None
        for variant in self.variants:
            variant.compiles.begin(subject.compiled_before(variant.name))
        self._interrupted = False
        self._uncounted: dict[str, str] = {}  # variants that were not counted, with the note that says why
        self._forms: dict[str, dict[int, Numbers]] = {}  # of what a call in Python returns: variant → input → shapes

    def measure(self) -> Measured:
        """Sample until the budget is spent, then count, compare with the machine's limits, and note.

        Ctrl-C keeps the complete rounds. A round in which the timeline has not exactly one iteration of each variant is
        left out of all of them, with a note.

        Raises:
            RuntimeError: the timeline has no round with one iteration of each variant.
        """
        collected = self._sample()
        sections = self._timeline.sections()
        rounds = [seen.rounds for seen in self._seen.values()]
        attribute([round for each in rounds for round in each], iterations(sections, ITERATION))
        complete, lost = complete_rounds([each[: collected.rounds] for each in rounds], collected.warmup_rounds)
        if not complete:
            raise RuntimeError(f"no round of {', '.join(self._seen)} was recorded as one '{ITERATION}' of each")
        counts = self._count(collected)
        measurements = self._measure_below_ceiling(complete, collected.warmup_rounds, counts)
        for measurement in measurements:
            divided = self._hooks or (self.options.probed and any(not part.other for part in measurement.components))
            if self.subject.returns == "outputs" and not divided:
                measurement.components = []  # a whole that nothing divides has no rest
            if measurement.phase in ("training forward", "training step"):
                measurement.losses_not_finite = self._outputs.count_not_finite(measurement.name)
            self._annotate(measurement, collected.samples[measurement.name], complete, lost)
            if self._energy is not None:
                measurement.energy = self._energy.energy_per_call(collected.warmup_rounds)
            if measurement.name in counts:
                measurement.notes += counts[measurement.name].notes
            if measurement.name in self._uncounted:
                measurement.notes.append(self._uncounted[measurement.name])
        self._add_limits(measurements)
        outputs, first = self._outputs, self.variants[0].name
        acting = self.subject.acting if self.phase == "inference" and outputs.whole else None
        return Measured(
            measurements,
            collected,
            outputs,
            sections,
            self._interrupted,
            first_s={name: seen.first_s for name, seen in self._seen.items()},
            variants={variant.name: variant for variant in self.variants},
            counts=counts,
            scale=acting.scale(list(filter(is_tensor, outputs.first(first)))) if acting is not None else None,
            executed=acting.executed_actions if acting is not None else None,
            returns=self.subject.returns,
            forms=self._forms,
            in_spread=self.options.in_spread,
        )

    def _sample(self) -> Collected:
        stage = f"{self.phase}: {', '.join(self._seen)}"
        self.reporter.stage(stage)
        with Attached(self._hooks):
            building = [seen for seen in self._seen.values() if seen.variant.builds]
            for seen in building:  # building can take longer than all the sampling, whose time it is not
                verb = "compiling" if "compiled" in seen.variant.builds else "building"
                self.reporter.stage(f"{verb} {seen.variant.name}")
                seen.first_s = _build(self.subject, seen.variant, self._call)
                self._compiling.look(seen.variant.compiles, -1)
                self.options.limit.exclude(seen.first_s)
            if building:
                self.reporter.stage(stage)
            with self._timeline, nullcontext() if self._energy is None else closing(self._energy):
                runners = {name: self._runner(seen) for name, seen in self._seen.items()}
                collected = collect(runners, self.options.budget, self._finish_round)
            self._interrupted = collected.interrupted
            self.options.limit.extend(2 * (collected.seconds - self.options.budget.seconds))
            if not collected.interrupted:
                self.afterwards(collected)
        return collected

    def _finish_round(self, progress: Progress) -> None:
        self._pace.look_if_due()
        if self._energy is not None:
            self._energy.read_due_counter()
        self.reporter.progress(progress)

    def _runner(self, seen: Seen) -> Callable[[], float]:
        """Return what makes the next call of a variant, and returns its milliseconds."""
        subject, call, timeline, spacing = self.subject, self._call, self._timeline, self._spacing

        def run() -> float:
            begun = time.perf_counter()
            undo = seen.variant.apply(subject)
            try:
                index = len(seen.rounds)  # every variant sees the same observation and noise in a round
                if not index:
                    seen.weights = weight_bytes(
                        subject.module, *Unregistered.from_family(subject.family).outside(subject.module)
                    )
                if spacing is not None:
                    spacing.wait_for_start(seen.variant.name, ticks_between_calls(subject), lambda: call(index + 1))
                before, start_ns = kernel_use(), timeline.now_ns()
                with nullcontext() if index else record_call_memory(subject):  # the first call is warm-up
                    output = call(index)
                round = Round(index, start_ns, timeline.now_ns(), kernel_use() - before)
                self._compiling.look(seen.variant.compiles, index)
                if not index and not seen.variant.builds:
                    seen.first_s = time.perf_counter() - begun
                seen.rounds.append(round)
                latest = subject.latest
                self._outputs.add(seen.variant.name, output, latest.pooled)
                if latest.form is not None:
                    self._forms.setdefault(seen.variant.name, {})[latest.place] = latest.form
                if not index:
                    seen.traits = subject.traits(self.phase, self.options.batch_size)
                    seen.traits.device = str(subject.device)
                    seen.tensor_float = convolutions_in_tf32(subject.device)
                # What a target in Python returns is copied after its time is taken.
                return round.took_ms if latest.took_ms is None else latest.took_ms
            finally:
                undo()

        return run

    def _count(self, collected: Collected) -> dict[str, Counted]:
        """Return the FLOP and memory of each variant: as they are known, else counted, until Ctrl-C.

        Counting may take as long as the rounds took, and the first variant's longer; none begins that would not end
        within the command's limit.
        """
        if not self.options.counted:
            return {}
        counts = {name: self.known[name] for name in self._seen if name in self.known}
        unknown = [name for name in self._seen if name not in counts]
        limit = TimeLimit(max(collected.seconds, COUNTING_S))
        steps = Steps(self.reporter, "variants")
        for done, name in enumerate(unknown, 1):
            if self._interrupted:
                break
            if done > 1 and limit.is_work_over:
                self._uncounted[name] = LATE
                continue
            estimate_s = COUNTED_CALLS * collected.samples[name].summary.median / 1e3
            if not self.options.limit.fits(estimate_s):
                self.options.limit.leave_out(f"FLOP and memory of {name} were not counted", estimate_s)
                continue
            self.reporter.stage(f"{self.phase}: counting FLOP and memory of {name}")
            try:
                from strobe.core.studies.shared.counting import count  # needs torch

                counts[name] = count(self.subject, self._seen[name].variant, self._call, self._hooks)
            except KeyboardInterrupt:
                self._interrupted = True
            except UserError as error:  # what was timed must not be lost for it
                self._uncounted[name] = f"FLOP and memory were not counted: {error}"
            else:
                steps(done, len(unknown))
        return counts

    def _measure_below_ceiling(
        self, rounds: Sequence[int], warmup: int, counts: Mapping[str, Counted]
    ) -> list[Measurement]:
        """Return a measurement of each variant; where a part ran above the ceiling, after measuring that once more."""

        def describe_variants() -> list[Measurement]:
            return [
                make_measurement(seen, self.phase, rounds, warmup, counts.get(name), self.ceiling)
                for name, seen in self._seen.items()
            ]

        measurements = describe_variants()
        if self.ceiling is None or self._interrupted or not any(map(exceeds_ceiling, measurements)):
            return measurements
        if not self.options.limit.fits(AGAIN_S):
            self.options.limit.leave_out("a part ran above the ceiling, which was not measured once more", AGAIN_S)
            return measurements
        self.reporter.stage("a part ran above the ceiling: measuring once more what this machine can do")
        from strobe.core.measure.ceiling import raise_to_now  # needs torch

        try:
            raise_to_now(self.ceiling, self.subject.device, Steps(self.reporter, "figures"))
        except KeyboardInterrupt:
            self._interrupted = True
        return describe_variants()

    def _annotate(self, measurement: Measurement, samples: Samples, rounds: Sequence[int], lost: str | None) -> None:
        seen = self._seen[measurement.name]
        runs = seen.runs(rounds)
        measurement.unseen = unseen_parts(self._hooks, runs) | self._timeline.stopped_sections
        measurement.samples.notes = samples.notes
        measurement.samples.longest_state_s = samples.longest_state_s
        measurement.samples.machine_change = self._pace.change() if measurement.clock == "host" else None
        measurement.cadence = (
            self._spacing.find_cadence(measurement.name, rounds) if self._spacing is not None else None
        )
        if exceeds_ceiling(measurement):
            measurement.notes.append(ABOVE_WITH_TF32 if seen.tensor_float else ABOVE_CEILING)
        if not measurement.unseen and self.options.depth == 1:
            measurement.notes += silent_probes(self._hooks, runs)
        if self.options.serialised:
            measurement.notes.append("serialised: the device was synchronised around every part, nothing overlapped")
        if self.options.nvtx:
            measurement.notes.append("NVTX ranges stood around the parts: take times from a run without --nvtx")
        policy = measurement.traits.policy
        measurement.notes += filter(None, (lost, policy.settings if policy is not None else None))

    def _add_limits(self, measurements: Sequence[Measurement]) -> None:
        """Add the least time by the roofline to inferences, but for those in TF32, whose ceiling is not known."""
        if self.ceiling is None or self.phase != "inference":
            return
        for measurement, limit in zip(measurements, limits(measurements, self.ceiling), strict=True):
            in_tf32 = "tf32" in self._seen[measurement.name].variant.dtypes
            measurement.limit = None if in_tf32 else limit


def _build(subject: Subject, variant: Variant, call: Callable[[int], object]) -> float:
    """Put ``variant`` on and run it once. Return the seconds of both."""
    begun = time.perf_counter()
    undo = variant.apply(subject)
    try:
        call(0)
        return time.perf_counter() - begun
    finally:
        undo()
