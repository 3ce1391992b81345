"""Memory kept: large buffers are not given back to the kernel at every tensor's end and fetched again for the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from strobe.errors import UserError
from strobe.policies.subject import Subject
from strobe.results.measurement import Measurement
from strobe.treatments.process import glibc
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import ANY_PHASE, Undo

FAULTS = 1000  # page faults in a chunk from which they are worth a try: a millisecond or so


@dataclass
class KeptMemory(Switch, key="memory"):
    """glibc's heap, told to give nothing back: no page faults after the first calls, and more memory that stays."""

    _held: int = field(default=0, init=False, repr=False)  # bytes, free, at its last end
    phases = ANY_PHASE

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return subject.device.type == "cpu" and not glibc.why_not()

    def stays(self) -> int:
        return self._held

    def apply(self, subject: Subject) -> Undo:
        if subject.device.type != "cpu":
            raise UserError(f"memory=kept is for the CPU: on {subject.device.type} torch keeps memory by itself")
        if why := glibc.why_not():
            raise UserError(f"memory=kept: {why}")
        glibc.HEAP.keep(self._held)

        def undo() -> None:
            self._held = glibc.HEAP.plain() or self._held

        return undo


def _saves(now: Measurement) -> float:
    """Return the kernel's share of the time, as if no two threads were in it at once."""
    if (now.memory.page_faults or 0) < FAULTS:
        return 0.0
    whole_ms, kernel_ms = now.samples.summary.median, now.memory.kernel_ms
    if kernel_ms is None or whole_ms <= 0:
        return 1.0
    return min(kernel_ms / whole_ms, 1.0)


ENTRY = KeptMemory.entry(saves=_saves)
