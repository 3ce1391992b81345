"""The rounds of a measurement, one call of each variant in each; its outputs; and the measurement made of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from strobe.core.measure.agreement import Values
from strobe.core.measure.compilations import summarize_compilation
from strobe.core.measure.components import Iteration, blocks, components, spans
from strobe.core.measure.memory import KernelUse, median_use
from strobe.core.measure.statistics import summarise
from strobe.core.results.data import Samples
from strobe.core.results.measurement import Measurement, Memory
from strobe.core.results.subject import Ceiling
from strobe.core.results.traits import Traits
from strobe.core.subjects.subject import Phase
from strobe.core.timeline.probe import Hook
from strobe.core.timeline.sections import unseen
from strobe.core.torch_there import is_tensor
from strobe.core.treatments.treatment import Variant

if TYPE_CHECKING:
    from strobe.core.studies.shared.counting import Counted


@dataclass
class Round:
    """One call of one variant.

    Args:
        index: of the round, from 0, the warm-up included; all variants have the same input in it.
        start_ns: when the call began, on the timeline's clock; no other call overlaps it.
        end_ns: when it returned.
        kernel: used by the process meanwhile.
        iteration: recorded by the timeline during the call; None if there is none, or more than one.
    """

    index: int
    start_ns: int
    end_ns: int
    kernel: KernelUse
    iteration: Iteration | None = None

    @property
    def took_ms(self) -> float:
        """Milliseconds of the call, on the host."""
        return (self.end_ns - self.start_ns) / 1e6


def attribute(rounds: Sequence[Round], recorded: Sequence[Iteration]) -> None:
    """Give each round the one iteration that lies within its call.

    They are matched by time, not by counting: where an iteration is missing, or is there twice, the others stay where
    they belong.
    """
    in_time = sorted(rounds, key=lambda round: round.start_ns)
    starts = [round.start_ns for round in in_time]
    within: list[list[Iteration]] = [[] for _ in in_time]
    for iteration in recorded:
        at = bisect_right(starts, iteration.whole.start_ns) - 1
        if at >= 0 and iteration.whole.end_ns <= in_time[at].end_ns:
            within[at].append(iteration)
    for round, inside in zip(in_time, within, strict=True):
        round.iteration = inside[0] if len(inside) == 1 else None


def complete_rounds(of_variants: Sequence[Sequence[Round]], warmup: int) -> tuple[list[int], str | None]:
    """Return the indices of the rounds after ``warmup`` in which every variant has its iteration.

    Samples are compared in pairs, so a round that one variant lacks is lost for all. Also returned: a note on those.
    """
    ended = min(map(len, of_variants), default=0)
    lost = [index for index in range(ended) if any(rounds[index].iteration is None for rounds in of_variants)]
    complete = [index for index in range(warmup, ended) if index not in set(lost)]
    if not lost:
        return complete, None
    return complete, (
        f"{len(lost)} of {ended} rounds left out (the first is round {lost[0] + 1}): not recorded as exactly one "
        "iteration of each variant"
    )


class Outputs:
    """The outputs of every variant in every round, to be compared, as much of them as fits.

    A backbone's features can be millions of numbers.
    """

    PER_OUTPUT = 2**20  # elements held of one output: whole rows, others in each round
    TOGETHER = 2**26  # elements held of all outputs: 256 MiB

    def __init__(self, names: Sequence[str]) -> None:
        self.rounds = dict.fromkeys(names, 0)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._held: dict[str, list[Values]] = {name: [] for name in names}
        self._pooled: dict[str, list[Values]] = {name: [] for name in names}
        self._rows: tuple[int, int] | None = None  # of an output: those compared, and all, where not all are
        self._most: int | None = None

    def add(self, name: str, output: Values, pooled: Values | None = None) -> None:
        """Hold the output of ``name``, or some of it, and its ``pooled`` form where it has one."""
        number = self.rounds[name]
        self.rounds[name] += 1
        self.shapes[name] = tuple(output.shape)
        if self._most is None:
            elements = min(math.prod(output.shape), self.PER_OUTPUT)
            self._most = max(1, self.TOGETHER // max(1, elements * len(self._held)))
        if len(self._held[name]) < self._most:
            self._held[name].append(_copy_to_cpu(self._sample(output, number)))
            if pooled is not None:
                self._pooled[name].append(_copy_to_cpu(pooled))

    def first(self, name: str) -> list[Values]:
        """Return the outputs of ``name`` in rounds 0, 1, 2 …, warm-up included, as far as they are held."""
        return list(self._held[name])

    def count_not_finite(self, name: str) -> int:
        """Return how many outputs of ``name``, of those held, have an infinite number or NaN."""
        return sum(not np.isfinite(np.asarray(output)).all() for output in self._held[name])

    def aligned_values(self, warmup: int, *, pooled: bool = False) -> dict[str, list[Values]]:
        """Return the outputs of complete rounds after ``warmup``; of the warm-up too where nothing else is held."""
        return _align_rounds(self._pooled if pooled else self._held, warmup)

    @property
    def whole(self) -> bool:
        """Whether all outputs are held whole, in the shape that they had."""
        return self._rows is None

    @property
    def note(self) -> str | None:
        """Return in words how much of each output was left out; None if it is held whole."""
        if self._rows is None:
            return None
        drawn, of = self._rows
        return f"compared on {drawn:,} of {of:,} rows of each output, others in each round"

    def _sample(self, output: Values, number: int) -> Values:
        """Return some rows of the output of round ``number``, the same of all variants.

        Rows are whole, so that they can be compared by channel.
        """
        if math.prod(output.shape) <= self.PER_OUTPUT:
            return output
        rows = output.reshape(-1, output.shape[-1])
        count = max(1, self.PER_OUTPUT // rows.shape[-1])
        # Others in each round, so that every row has its turn.
        drawn = np.sort(np.random.default_rng(number).permutation(len(rows))[:count])
        self._rows = (count, len(rows))
        return rows[drawn][:, : self.PER_OUTPUT]


def _copy_to_cpu(values: Values) -> Values:
    """Return a tensor's copy on the CPU. What is computed in float64 may differ by less than float32 can hold."""
    if not is_tensor(values):
        return values
    values = values.detach()
    return (values if str(values.dtype) == "torch.float64" else values.float()).cpu()


def _align_rounds(held: Mapping[str, list[Values]], warmup: int) -> dict[str, list[Values]]:
    rounds = min(map(len, held.values()), default=0)
    start = warmup if warmup < rounds else 0
    return {name: values[start:rounds] for name, values in held.items()}


@dataclass
class Seen:
    """One variant and what was seen of it while it was on.

    Args:
        weights: bytes; a variant may hold them in another dtype.
        traits: of the subject with the variant on, which may work on something else.
        first_s: seconds of putting it on, with its first call.
        tensor_float: whether convolutions of float32 were computed in TF32.
    """

    variant: Variant
    rounds: list[Round] = field(default_factory=list)
    weights: int = 0
    traits: Traits = field(default_factory=Traits)
    first_s: float = 0.0
    tensor_float: bool = False

    def runs(self, rounds: Sequence[int]) -> list[Iteration]:
        """Return the iterations of these rounds, all of which were recorded."""
        return [run for index in rounds if (run := self.rounds[index].iteration) is not None]


def make_measurement(
    seen: Seen, phase: Phase, rounds: Sequence[int], warmup: int, counted: Counted | None, ceiling: Ceiling | None
) -> Measurement:
    """Return the measurement of a variant in ``rounds``, of which there is one at least."""
    runs = seen.runs(rounds)
    values = [run.ms for run in runs]
    accounts = None
    if counted is not None and counted.accounts is not None:
        accounts = {path[1:]: account for path, account in counted.accounts.items()}
    # The ceiling of float32 was measured without TF32, and FLOP are counted by the weights' dtype.
    if ceiling is not None and ("tf32" in seen.variant.dtypes or seen.traits.tensor_float):
        wide = {dtype: rate for dtype, rate in ceiling.gflops.items() if dtype != "float32"}
        ceiling = ceiling.model_copy(update={"gflops": wide})
    summary = summarise(values)
    parts = components(runs, accounts, ceiling, counted.weights.module_bytes if counted is not None else lambda _: None)
    nearest = min(runs, key=lambda run: abs(run.ms - summary.median))
    applied = seen.variant.traits()
    traits = seen.traits.model_copy(update={"recipe": applied.recipe, "treatments": applied.treatments})
    if seen.variant.builds:
        traits.build_s = round(max(0.0, seen.first_s - summary.median / 1e3), 3)
    memory = counted.memory.model_copy() if counted is not None else Memory()
    memory.weights = seen.weights
    memory.stays = seen.variant.retained_bytes() or None
    used = median_use([seen.rounds[index].kernel for index in rounds])
    if used is not None:
        memory.kernel_ms, memory.page_faults = used
    return Measurement(
        name=seen.variant.name,
        phase=phase,
        clock="host" if runs[0].whole.device_ms is None else "device",
        samples=Samples(warmup=[run.ms for run in seen.runs(range(warmup))], values=values, summary=summary),
        components=parts,
        blocks=blocks(parts),
        memory=memory,
        spans=spans(nearest),
        traits=traits,
        compilation=summarize_compilation(seen.variant.compiles, [round.took_ms for round in seen.rounds[:warmup]]),
    )


def exceeds_ceiling(measurement: Measurement) -> bool:
    """Return whether a part ran above the ceiling that was measured."""
    return any((part.ceiling_share or 0) > 1 for part in measurement.components)


def unseen_parts(hooks: Sequence[Hook], runs: Sequence[Iteration]) -> dict[str, str]:
    """Return the parts that could not be seen in ``runs``, each with the reason."""
    # Variants share the timeline: a part that is hidden in this one may have been seen in another.
    fired = {part.name for run in runs for part in run.parts}
    reasons = unseen()
    return {hook.name: reasons[hook.name] for hook in hooks if hook.name in reasons and hook.name not in fired}


def silent_probes(hooks: Sequence[Hook], runs: Sequence[Iteration]) -> list[str]:
    """Return a note on the probes that never fired in ``runs``, if there are any."""
    fired = {part.name for run in runs for part in run.parts}
    silent = [hook.name for hook in hooks if hook.name not in fired and not hook.optional]
    return [f"probes that never fired in this phase: {', '.join(dict.fromkeys(silent))}"] if silent else []
