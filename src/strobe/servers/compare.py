"""Two policy servers, or a server and the policy here, compared.

Each side is an object with `infer`. Both get the same frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.answer import CompareResult
from strobe.core.studies.compare import compare, make_variants
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.paired_comparison import allow_for_processes
from strobe.core.studies.shared.progress import Reporter
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import make_target
from strobe.core.subjects.subject import Observation
from strobe.servers.protocols.observations import Observations, Source
from strobe.servers.protocols.wire import CallFailedError, Wire, describe_odd_numbers

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject


Frame = Mapping[str, Any]  # what both sides are called with: a frame's number, the first server's observation of it


def compare_servers(
    sides: Mapping[str, ServerSide | LocalSide],
    observations: Observations,
    budget: SamplingBudget,
    within: float,
    reporter: Reporter,
) -> CompareResult:
    """Compare the second side with the first: its time, including the network, and its actions.

    Args:
        observations: those of the first server; the other side gets the same frames.
        within: the equivalence margin, as a share of the time.

    Raises:
        UserError: a call that fails.
    """
    inputs: list[Frame] = [
        {"frame": number, "observation": dict(each)} for number, each in enumerate(observations.each)
    ]
    targets = [make_target(name, side) for name, side in sides.items()]
    subject = CallableSubject(targets, inputs, label="policy servers")
    facts = {"inputs": observations.description, "source": " and ".join(sides), "kind": "policy server"}
    subject.info = subject.info.model_copy(update=facts)
    for name, side in sides.items():
        if side.about:
            subject.notes.append(f"{name} {side.about}")
    subject.first_calls(reporter.stage)
    options = Options(budget, counted=False, probed=False, within=within)
    with subject.generators_kept():
        result, _ = compare(subject, make_variants(targets), "inference", options, reporter)
    seconds = sum(sum(measurement.samples.values) for measurement in result.measurements) / 1e3
    for pair in result.comparisons:
        allow_for_processes(pair, seconds)
    return result


class ServerSide:
    """A policy server.

    Raises:
        UserError: observations that the server cannot take.
    """

    def __init__(self, wire: Wire, source: Source) -> None:
        self.wire = wire
        self.observations = wire.observations(source)
        words = "; ".join(f"{key}: {value}"[:200] for key, value in list(wire.metadata.items())[:8])
        self.about = f"speaks the protocol of {wire.protocol}; its metadata: {words or 'none'}"

    def infer(self, frame: Frame) -> np.ndarray:
        """Return the server's actions for a frame, (actions, action dim). Raises CallFailedError."""
        exchange = self.wire.call(self.observations.each[frame["frame"]])
        if exchange.actions is None or exchange.fault is not None:
            raise CallFailedError(*(exchange.fault or ("no actions", exchange.held)))
        return exchange.actions


class LocalSide:
    """A policy of LeRobot's on this machine, with its processors, as LeRobot's server would run it."""

    def __init__(self, subject: PolicySubject, frames: Sequence[Mapping[str, object]]) -> None:
        self.subject, self.raw = subject, [_raw(frame) for frame in frames]
        self.about = ""  # its name says which policy it is

    def infer(self, frame: Frame) -> np.ndarray:
        """Return the policy's actions for a frame, (actions, action dim)."""
        number = frame["frame"]
        actions = self.subject.answer(dict(self.raw[number]), number)[0].float().numpy()
        if odd := describe_odd_numbers(actions):
            raise UserError(odd)
        return actions


def _raw(frame: Mapping[str, object]) -> Observation:
    made: dict[str, object] = {"task": frame["task"], "robot_type": ""}
    for name, value in frame.items():
        if isinstance(value, np.ndarray):
            tensor = torch.from_numpy(np.ascontiguousarray(value))
            if value.ndim == 3:
                tensor = tensor.permute(2, 0, 1).float() / 255
            made[name] = tensor.unsqueeze(0)
    return made
