"""The number of threads that torch computes an operator with on the CPU.

More than the physical cores seldom help: two threads of a core share its arithmetic units. One fewer leaves a core to
the cameras and the control loop, which a measurement of the policy alone does not see.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from strobe.errors import UserError
from strobe.policies.subject import Subject
from strobe.results.traits import TreatmentTraits
from strobe.treatments.process.wanted import Wanted
from strobe.treatments.switch import entry
from strobe.treatments.treatment import Spec, Treatment, Undo

_CORES = Path("/sys/devices/system/cpu")


@dataclass
class Threads(Treatment, key="threads"):
    """``torch.set_num_threads``; engines (OpenVINO) have threads of their own."""

    count: int

    def __post_init__(self) -> None:
        self.arithmetic = min(1.0, self.count / torch.get_num_threads())

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.count)

    def apply(self, subject: Subject) -> Undo:
        if subject.device.type != "cpu":
            raise UserError(f"threads={self.count} is for the CPU: this policy computes on {subject.device.type}")
        return _THREADS.want(self.count)


def _put(count: int) -> None:
    torch.set_num_threads(count)
    torch.zeros(count * 2**16).add_(1)  # threads start here, and not in the call that is timed


_THREADS = Wanted(torch.get_num_threads, _put)


def cores() -> tuple[int, int]:
    """Return the processors that this process may run on, and how many physical cores these are."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    siblings = {_siblings(processor) for processor in usable}
    return len(usable), len(siblings)


def _siblings(processor: int) -> str:
    """Return the processors of the core of ``processor``; itself where the system does not say."""
    try:
        return (_CORES / f"cpu{processor}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(processor)


def _make(spec: Spec) -> Threads:
    count = spec["threads"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UserError(f"threads={count}: write a number of threads, such as threads=4")
    most = os.cpu_count() or count
    if count > most:
        raise UserError(f"threads={count}: this machine has {most} processors")
    return Threads(count)


def _candidates(subject: Subject) -> list[Spec]:
    if subject.device.type != "cpu":
        return []
    usable, physical = cores()
    counts = dict.fromkeys((physical, physical - 1, usable, usable - 1))
    return [{"threads": count} for count in counts if count > 0 and count != torch.get_num_threads()]


ENTRY = entry("threads", _make, candidates=_candidates, alone=lambda _, __: True, of_torch=True)
