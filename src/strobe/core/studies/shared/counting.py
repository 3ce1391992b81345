"""Count FLOP and memory of a variant: one call under a mode that sees every operator, which no time is taken of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strobe.core.measure.accounting import Account, Accounting, Weights, find_allocator
from strobe.core.measure.memory import peak_process
from strobe.core.results.measurement import Memory
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.probe import Attached, Hook
from strobe.core.treatments.treatment import Variant


@dataclass(frozen=True)
class Counted:
    """The counted call of a variant: its parts' FLOP and memory, and those of the whole."""

    accounts: dict[tuple[str, ...], Account] | None
    memory: Memory
    weights: Weights
    uncounted: Mapping[str, int] = field(default_factory=dict)  # operator whose FLOP are not known → its calls
    waits: Mapping[str, int] = field(default_factory=dict)  # operator for which the host waits, and where → its calls

    @property
    def notes(self) -> list[str]:
        """The notes on operators that multiply and are not in the FLOP, and on those that the host waits for."""
        too_low = "GFLOP, and all that rests on them, are too low: these operators multiply and are not counted"
        notes = ((too_low, self.uncounted), ("the host waits for the device in each call", self.waits))
        listed = ((about, [f"{name} ({calls}×)" for name, calls in sorted(of.items())]) for about, of in notes if of)
        return [f"{about}: {', '.join(names)}" for about, names in listed]


def count(subject: Subject, variant: Variant, call: Callable[[int], object], hooks: Sequence[Hook]) -> Counted:
    """Call ``variant`` once, counted. What it builds is counted without being built.

    The probes are attached before the treatments are applied, as they are where time is taken: a treatment that calls
    what a probe stands around would otherwise call it past the probe, and its FLOP would be in no part that has a time.
    """
    if variant.builds:  # operators inside a compiled region or an engine cannot be seen
        accounting, weights, memory = None, *_measure_build(subject, variant, call, hooks)
    else:
        accounting, weights, memory = _account_call(subject, variant, call, hooks)
    if accounting is None:
        accounting = _count_unbuilt(subject, variant, call, hooks)
        if accounting is None:
            return Counted(None, memory, weights)
        # The memory of what is not built is another one.
        parts = accounting.accounts.items()
        accounts = {path: replace(account, peak_bytes=None, kept_bytes=None) for path, account in parts}
        return Counted(accounts, memory, weights, accounting.uncounted)
    memory.source = accounting.meter.source
    memory.peak_activations = accounting.total.peak_bytes
    return Counted(accounting.accounts, memory, weights, accounting.uncounted, accounting.waits)


def _measure_build(
    subject: Subject, variant: Variant, call: Callable[[int], object], hooks: Sequence[Hook]
) -> tuple[Weights, Memory]:
    allocator, on_device, held = find_allocator(subject.device), None, None
    undo = variant.apply(subject)
    try:
        weights = Weights(hooks)
        with peak_process() as process:
            call(0)
            if allocator is not None:
                pools = variant.pools(subject.device)
                held = allocator.memory.unused_pool_bytes(pools) if pools else None
                on_device = allocator.peak() + (held or 0)
    finally:
        undo()
    return weights, Memory(peak_process=process.bytes, peak_device=on_device, graphs=held)


def _account_call(
    subject: Subject, variant: Variant, call: Callable[[int], object], hooks: Sequence[Hook]
) -> tuple[Accounting, Weights, Memory]:
    allocator = find_allocator(subject.device)
    accounting = Accounting(allocator)
    with Attached(hooks):
        undo = variant.apply(subject)
        try:
            weights = Weights(hooks)
            with peak_process() as process:
                accounting.run(lambda: call(0))
        finally:
            undo()
    on_device = accounting.peak if allocator is not None else None
    return accounting, weights, Memory(peak_process=process.bytes, peak_device=on_device)


def _count_unbuilt(
    subject: Subject, variant: Variant, call: Callable[[int], object], hooks: Sequence[Hook]
) -> Accounting | None:
    """Count ``variant`` with what it builds left out: the same products, in the same dtypes.

    None if it does not run that way, so that a study does not end for it.
    """
    accounting = Accounting()
    try:
        with Attached(hooks):
            undo = variant.unbuilt().apply(subject)
            try:
                accounting.run(lambda: call(0))
            finally:
                undo()
    except Exception:  # a library's own, too
        return None
    return accounting
