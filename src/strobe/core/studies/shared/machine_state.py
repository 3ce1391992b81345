"""The machine as a study must know it before it measures: its description, and its ceilings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from strobe.core.measure import machine
from strobe.core.measure.time_limit import TimeLimit, WorkLimit
from strobe.core.results.answer import Result
from strobe.core.results.subject import Ceiling, Machine
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Reporter, Steps
from strobe.core.subjects.subject import Subject
from strobe.core.torch_there import has_torch
from strobe.version import __version__

if TYPE_CHECKING:
    import torch

MULTIPLIED = ("float32", "bfloat16", "float16", "int8")  # dtypes whose products have a ceiling
CEILING_S = 8.0  # longest time to measure the ceiling; 2 to 3 seconds are usual


def measure_machine(
    device: torch.device, dtypes: Iterable[str], reporter: Reporter, limit: WorkLimit | None = None
) -> Machine:
    """Describe the machine, and measure its ceiling: what it does at most in ``dtypes``, torch's names.

    Args:
        limit: of the command's work. What there was no time for is noted there.
    """
    from strobe.core.measure import ceiling as ceilings  # needs torch

    reporter.stage("measuring what this machine can do")
    described = machine.describe(device)
    wanted = dict.fromkeys((*dtypes, *ceilings.EVERYWHERE))
    multiplied = [dtype for dtype in wanted if dtype in MULTIPLIED]
    share = TimeLimit(CEILING_S, within=limit)
    described.ceiling = ceilings.measure(device, multiplied, Steps(reporter, "figures"), share)
    missing = [f"products in {dtype}" for dtype in multiplied if dtype not in described.ceiling.gflops]
    missing += ["elementwise work"] if described.ceiling.vector_gflops is None else []
    missing += ["memory"] if described.ceiling.memory_gbps is None else []
    if limit is not None and share.is_spent and missing:
        limit.leave_out(f"what this machine does at most was not measured in full ({', '.join(missing)})")
    return described


R = TypeVar("R", bound=Result)


def begin_result(
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
        dtypes: those that the study runs the subject in, in addition to its own.
        fields: those that ``kind`` alone has.
    """
    if options.counted and has_torch():
        described = measure_machine(subject.device, (*subject.info.dtypes, *dtypes), reporter, options.limit)
    else:
        described = machine.describe(subject.device)
        described.ceiling = Ceiling()
    return kind(
        strobe_version=__version__,
        title=title,
        subject=subject.info,
        machine=described,
        notes=list(subject.notes),
        caveats=list(subject.caveats),
        **fields,
    )
