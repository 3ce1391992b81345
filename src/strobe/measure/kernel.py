"""Time that this process spends in the operating system's kernel, and pages of memory that the kernel hands it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

try:
    import resource
except ImportError:  # Windows
    resource = None


class KernelUse(NamedTuple):
    """Kernel time over all threads (milliseconds) and page faults that needed no disk."""

    ms: float
    faults: int

    def __sub__(self, earlier: KernelUse) -> KernelUse:
        return KernelUse(self.ms - earlier.ms, self.faults - earlier.faults)


def kernel_use() -> KernelUse:
    """Return the use so far, of the whole process; zeros where the system does not say."""
    if resource is None:
        return KernelUse(0.0, 0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return KernelUse(used.ru_stime * 1e3, used.ru_minflt)


def median_use(uses: Sequence[KernelUse]) -> KernelUse | None:
    """Return the medians over several iterations; None where none of them had a page fault."""
    if not any(use.faults for use in uses):
        return None
    return KernelUse(median(use.ms for use in uses), round(median(use.faults for use in uses)))
