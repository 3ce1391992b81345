"""Compare policy servers: two of them, or one against a policy on this machine, in alternation on the same frames."""

from __future__ import annotations

from collections.abc import Mapping

from strobe.measure.sampling import SamplingBudget
from strobe.policies.callable_subject import CallableSubject
from strobe.policies.callables import target_of
from strobe.policies.servers.observations import Observations
from strobe.policies.servers.side import FRAME, LocalSide, ServerSide
from strobe.results.answer import CompareResult
from strobe.studies.compare.run import compare
from strobe.studies.shared.measuring import Options
from strobe.studies.shared.progress import Reporter
from strobe.studies.shared.targets import variants_of


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
    return result
