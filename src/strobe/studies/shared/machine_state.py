"""The machine as a study must know it before it measures: its description, and its ceilings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from strobe.measure import ceiling as ceilings
from strobe.measure import machine
from strobe.policies.subject import Subject
from strobe.results.answer import Result
from strobe.results.subject import Ceiling, Machine
from strobe.studies.shared.measuring import Options
from strobe.studies.shared.progress import Reporter, Steps
from strobe.version import __version__

MULTIPLIED = ("float32", "bfloat16", "float16", "int8")  # dtypes whose products have a ceiling


def measure_machine(device: torch.device, dtypes: Iterable[str], reporter: Reporter) -> Machine:
    """Describe the machine, and measure its ceiling: what it does at most in ``dtypes``, torch's names."""
    reporter.stage("measuring what this machine can do")
    described = machine.describe(device)
    wanted = dict.fromkeys((*dtypes, *ceilings.EVERYWHERE))
    multiplied = [dtype for dtype in wanted if dtype in MULTIPLIED]
    described.ceiling = ceilings.measure(device, multiplied, Steps(reporter, "figures"))
    return described


def begin_result[R: Result](
    kind: type[R],
    subject: Subject,
    title: str,
    options: Options,
    reporter: Reporter,
    dtypes: Iterable[str] = (),
    **fields: Any,
) -> R:
    """Return a result of ``kind`` that knows its subject, its machine and the machine's ceiling, and nothing else yet.

    Args:
        options: the ceiling is measured where they count FLOP; elsewhere it is empty.
        dtypes: those that the study runs the subject in, beside its own.
        fields: those that ``kind`` alone has.
    """
    if options.counted:
        described = measure_machine(subject.device, (*subject.info.dtypes, *dtypes), reporter)
    else:
        described = machine.describe(subject.device)
        described.ceiling = Ceiling()
    return kind(
        strobe_version=__version__,
        title=title,
        subject=subject.info,
        machine=described,
        notes=list(subject.notes),
        **fields,
    )
