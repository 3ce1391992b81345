"""Two policy servers, or a server and the policy here, compared."""

from __future__ import annotations

from collections.abc import Mapping

from strobe.core.measure.sampling import SETTLE_S, SamplingBudget
from strobe.core.measure.verdicts import too_short
from strobe.core.results.answer import CompareResult
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Reporter
from strobe.core.studies.shared.targets import variants_of
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import target_of
from strobe.servers.protocols.observations import Observations
from strobe.servers.protocols.side import FRAME, LocalSide, ServerSide


def compare_servers(
    sides: Mapping[str, ServerSide | LocalSide],
    observations: Observations,
    budget: SamplingBudget,
    within: float,
    reporter: Reporter,
) -> CompareResult:
    """Judge the second side against the first one: its time, with the way to a server, and its actions.

    Args:
        observations: of the first server; the other side has the same frames.
        within: the share of the time within which two sides are as fast as each other.

    Raises:
        UserError: a call that fails.
    """
    inputs = [{FRAME: number, "observation": dict(each)} for number, each in enumerate(observations.each)]
    targets = [target_of(name, side) for name, side in sides.items()]
    subject = CallableSubject(targets, inputs, label="policy servers")
    facts = {"inputs": observations.description, "source": " and ".join(sides), "kind": "policy server"}
    subject.info = subject.info.model_copy(update=facts)
    for name, side in sides.items():
        if isinstance(side, ServerSide):
            words = "; ".join(f"{key}: {value}"[:200] for key, value in list(side.wire.metadata.items())[:8])
            subject.notes.append(
                f"{name} speaks the protocol of {side.wire.protocol} and says of itself: {words or '—'}"
            )
    subject.first_calls(reporter.stage)
    options = Options(budget, counted=False, probed=False, within=within)
    with subject.generators_kept():
        result, _ = compare(subject, variants_of(targets), "inference", options, reporter)
    seconds = sum(sum(measurement.samples.values) for measurement in result.measurements) / 1e3
    for pair in result.comparisons:
        pair.verdict = too_short(
            pair.verdict, seconds, SETTLE_S, baseline_name=pair.baseline, candidate_name=pair.candidate
        )
    return result
