"""One side of a comparison: a policy server, or a policy on this machine, as an object with `infer`.

Both sides get the same frames. Each frame is a map with its number, under ``frame``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.core.errors import UserError
from strobe.servers.protocols.observations import Source
from strobe.servers.protocols.wire import CallFailedError, Wire

if TYPE_CHECKING:
    from strobe.core.subjects.subject import Observation
    from strobe.lerobot.policies.policy_subject import PolicySubject

FRAME = "frame"


class ServerSide:
    """A policy server.

    Raises:
        UserError: observations that the server cannot take.
    """

    def __init__(self, wire: Wire, source: Source) -> None:
        self.wire = wire
        self.observations = wire.observations(source)

    def infer(self, frame: Mapping[str, Any]) -> np.ndarray:
        """Return the server's actions for a frame, (actions, action dim). Raises CallFailedError."""
        exchange = self.wire.call(self.observations.each[frame[FRAME]])
        if exchange.actions is None or not exchange.actions.size:
            raise CallFailedError("no actions", exchange.held or "ValueError: no actions", "", exchange.ms)
        if (dtype := exchange.actions.dtype).kind not in "biuf":
            raise CallFailedError("no actions", f"TypeError: actions of dtype {dtype}", "", exchange.ms)
        return exchange.actions


class LocalSide:
    """A policy of LeRobot's on this machine, with its processors, as LeRobot's server would run it."""

    def __init__(self, subject: PolicySubject, frames: Sequence[Mapping[str, object]]) -> None:
        self.subject, self.raw = subject, [_raw(frame) for frame in frames]

    def infer(self, frame: Mapping[str, Any]) -> np.ndarray:
        """Return the policy's actions for a frame, (actions, action dim)."""
        number = frame[FRAME]
        return self.subject.answer(dict(self.raw[number]), number)[0].float().numpy()


def same_frames(source: Source, protocols: Sequence[str]) -> None:
    """Raise UserError where two sides would not get the same observations."""
    if not source.frames and len(set(protocols)) > 1:
        raise UserError(
            f"{protocols[0]} and {protocols[1]} name their observations differently: give --dataset.root, and both get "
            "the same frames"
        )


def _raw(frame: Mapping[str, object]) -> Observation:
    """Return a data set's frame as LeRobot gives it to a policy's processors: tensors with a batch dimension."""
    import torch

    made: dict[str, object] = {"task": frame["task"], "robot_type": ""}
    for name, value in frame.items():
        if isinstance(value, np.ndarray):
            tensor = torch.from_numpy(np.ascontiguousarray(value))
            if value.ndim == 3:
                tensor = tensor.permute(2, 0, 1).float() / 255
            made[name] = tensor.unsqueeze(0)
    return made
