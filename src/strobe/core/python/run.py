"""Measure what a request names: the same studies as on the command line, on a `CallableSubject`."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

from strobe.core.cli.live import Live
from strobe.core.cli.runner import say_other_work
from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.core.measure.guard import Guard, Guards
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.python.request import VerbArguments
from strobe.core.python.shown import ShownAnswer
from strobe.core.results.answer import BreakdownResult, CompareResult, Result, VerifyResult
from strobe.core.studies.breakdown import breakdown
from strobe.core.studies.compare import compare, make_variants
from strobe.core.studies.shared.measuring import Measured, Options
from strobe.core.studies.verify_outputs import verify_outputs
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import list_modules, make_target, one_part
from strobe.core.treatments.treated import find_treated

Work = Callable[[CallableSubject, Live], tuple[Result, Measured | None]]


def run_comparison(request: VerbArguments, guards: Guards | None) -> ShownAnswer[CompareResult]:
    """Compare the targets of ``request``, the first of which is the baseline. Raises UserError."""

    def work(subject: CallableSubject, live: Live) -> tuple[CompareResult, Measured]:
        subject.first_calls(live.stage)
        # Probes would be in the way of what was compiled before, and a count of what torch does not compute.
        options = _options(request, counted=False, probed=False)
        return compare(subject, make_variants(subject.targets), "inference", options, live, guards)

    return produce_answer(request, work, {"guard": str(guards.requested) if guards is not None else ""})


def broken_down(request: VerbArguments, depth: int, count: bool) -> ShownAnswer[BreakdownResult]:
    """Measure where the time of the one target of ``request`` goes. Raises UserError."""

    def work(subject: CallableSubject, live: Live) -> tuple[BreakdownResult, Measured]:
        target = subject.target
        subject.first_calls(live.stage)
        counted = count and bool(target.modules) and not target.opaque
        options = _options(request, counted=counted, depth=depth)
        result, (measured,) = breakdown(subject, ["inference"], options, reporter=live)
        if (why := one_part(target)) and not any(measurement.components for measurement in result.measurements):
            result.notes.insert(0, f"{subject.info.name} is one part: {why}")
        return result, measured

    return produce_answer(request, work, {"depth": depth, "count": count})


def run_verification(request: VerbArguments, guard: Guard) -> ShownAnswer[VerifyResult]:
    """Compare the second target of ``request`` with the first. Raises UserError."""
    return produce_answer(
        request, lambda subject, live: (verify_outputs(subject, guard, live), None), {"guard": str(guard)}
    )


def _options(request: VerbArguments, **how: Any) -> Options:
    budget = SamplingBudget.make_requested(None, request.seconds, precision=request.interval)
    return Options(budget, in_spread=False, **how)


def produce_answer(request: VerbArguments, work: Work, config: dict[str, Any]) -> ShownAnswer[Any]:
    """Make the subject, have ``work`` measure it, and complete the answer."""
    started = time.monotonic()
    with _plain(Live()) as live:
        subject = _subject(request)
        notes = say_other_work(live)
        with subject.generators_kept():
            result, measured = work(subject, live)
    result.notes += notes
    result.duration_s = round(time.monotonic() - started, 3)
    result.config = {**request.config, **config}
    result.findings = [finding.model_copy(update={"do": reword_flags(finding.do)}) for finding in advise(result)]
    return ShownAnswer(result, measured.sections if measured is not None else ())


def reword_flags(text: str) -> str:
    """Write the flags in ``text`` that are arguments here as arguments.

    >>> reword_flags("Measure longer: --seconds=120.")
    'Measure longer: seconds=120.'
    """
    text = text.replace("--time_limit", "seconds").replace("--allow=lossy", "lossy=True")
    return re.sub(r"--(seconds|interval|depth|guard|device|seed)\b", r"\1", text)


def _subject(request: VerbArguments) -> CallableSubject:
    targets = [make_target(name, target) for name, target in request.targets.items()]
    held = [(each.name, {id(module): module for module in list_modules(each)}) for each in targets]
    for (one, first), (other, second) in itertools.combinations(held, 2):
        if any(find_treated(first[both]) is not None for both in first.keys() & second.keys()):
            raise UserError(
                f"'{one}' and '{other}' are one object with a recipe applied: it is applied to both. "
                "Make the policy twice, and apply the recipe to one of the two"
            )
    inputs = request.inputs if type(request.inputs) is list else [request.inputs]
    return CallableSubject(targets, inputs, request.seed, request.device, request.name)


def _plain(live: Live) -> Live:
    if live.console.is_jupyter:
        live.console = Console(file=sys.stderr, force_jupyter=False, force_terminal=False)
    return live
