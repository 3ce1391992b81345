"""A connection to a policy server, whatever its protocol: it gives calls with their times, or how a call failed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import Self

from strobe.core.errors import error_line, os_error_reason
from strobe.servers.protocols.observations import Observations, Source
from strobe.servers.results import DroppedObservations, FaultKind, ProtocolName

CONNECT_S = 10.0  # time for the connection and the server's first message
SHOWN = 300  # characters of a foreign text
MESSAGE_BYTES = 2**23  # size of an answer: a chunk is a thousandth of it, and a message takes up to 100 times its size


@dataclass(frozen=True)
class Exchange:
    """One call that was answered: its times in nanoseconds, its sizes in bytes, and the actions.

    Args:
        away_ns: from the first byte sent to the last byte received.
        actions: of shape (actions, action dim), or what else the server answers as its actions; None for an answer
            without any.
        held: what an answer without actions holds, in words.
        server_ms: the server's own time within ``away_ns``; None where the server gives none.
        policy_ms: the policy's own time within the server's; None where the server gives none.
        pong_ms: from a ping just ahead of the observation to its answer; None where it was not seen.
    """

    encode_ns: int
    away_ns: int
    decode_ns: int
    sent_bytes: int
    received_bytes: int
    actions: np.ndarray | None
    held: str = ""
    server_ms: float | None = None
    policy_ms: float | None = None
    pong_ms: float | None = None

    @property
    def ms(self) -> float:
        """Milliseconds of the whole."""
        return (self.encode_ns + self.away_ns + self.decode_ns) / 1e6


class CallFailedError(Exception):
    """A call that failed.

    Args:
        kind: what happened.
        error: the exception's name and its message, in a line.
        detail: the server's traceback, or what else was received.
        waited_ms: milliseconds from the beginning of the call.
        over: whether the connection is of no more use.
    """

    def __init__(self, kind: FaultKind, error: str, detail: str, waited_ms: float, *, over: bool = True) -> None:
        super().__init__(error)
        self.kind: FaultKind = kind
        self.error, self.detail, self.waited_ms, self.over = error[:SHOWN], detail, waited_ms, over


class Wire(ABC):
    """A connection to a policy server.

    Attributes:
        metadata: what the server says of itself.
    """

    protocol: ClassVar[ProtocolName]
    metadata: Mapping[Any, Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the connection."""

    @abstractmethod
    def observations(self, source: Source) -> Observations:
        """Return the observations of ``source`` as this server takes them. Raises UserError."""

    @abstractmethod
    def encode(self, observation: Mapping[str, object]) -> bytes:
        """Return the message of ``observation``. Raises ValueError or TypeError for what cannot be sent."""

    @abstractmethod
    def call(self, observation: Mapping[str, Any]) -> Exchange:
        """Send ``observation`` and wait for the answer. Raises CallFailedError."""

    @abstractmethod
    def ping_ms(self) -> float | None:
        """Return milliseconds of a way there and back without data; None without an answer in a second."""

    def fastest_ms(self, seconds: float) -> float | None:
        """Return milliseconds of the fastest way there and back in ``seconds``, also to a server that is busy.

        None where pings in a row show it.
        """
        return None

    def count_dropped(self, observations: Sequence[Mapping[str, Any]]) -> DroppedObservations | None:
        """Return how many observations the server's filter drops; None for a server without a filter, or unseen."""
        return None


def describe_odd_numbers(actions: np.ndarray) -> str | None:
    """Say how many actions no robot can execute; None if it is none."""
    if actions.dtype.kind not in "biuf":
        return f"TypeError: actions of dtype {actions.dtype}"
    bad = int((~np.isfinite(actions)).sum())
    return f"ValueError: {bad:,} of {actions.size:,} actions are NaN or infinite" if bad else None


def connection_error_reason(error: OSError) -> str:
    """Return the system's reason; that of a name that is not known has no errno of the system's own."""
    import socket

    return error_line(error.strerror or error, 120) if isinstance(error, socket.gaierror) else os_error_reason(error)
