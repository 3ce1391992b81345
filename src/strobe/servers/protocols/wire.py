"""A connection to a policy server, whatever its protocol: it gives calls with their times, or how a call failed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.core.errors import error_line, os_error_reason
from strobe.servers.figures import Trip
from strobe.servers.protocols.observations import Observations, Source
from strobe.servers.results import DroppedObservations, FaultKind, ProtocolName

CONNECT_S = 10.0  # time for the connection and the server's first message
SHOWN = 300  # characters of a foreign text
MESSAGE_BYTES = 2**23  # size of an answer: a chunk is a thousandth of it, and a message takes up to 100 times its size
ENDING: tuple[FaultKind, ...] = ("slow", "silent", "closed", "too big")  # faults after which a connection is of no use
_REFUSED = "OVc"  # kinds of dtypes: objects, records, complex numbers


@dataclass(frozen=True)
class Exchange:
    """One call that was answered: its times, its sizes in bytes, and the actions.

    Args:
        actions: of shape (actions, action dim), or what else the server answers as its actions; None for an answer
            without any.
        held: what an answer without actions holds, in words.
        policy_ms: the policy's own time within the server's; None where the server gives none.
        pong_ms: from a ping just ahead of the observation to its answer; None where it was not seen.
    """

    trip: Trip
    sent_bytes: int
    received_bytes: int
    actions: np.ndarray | None
    held: str = ""
    policy_ms: float | None = None
    pong_ms: float | None = None

    @property
    def fault(self) -> tuple[FaultKind, str] | None:
        """Why its actions are of no use to a robot; None if they are."""
        if self.actions is None:
            return "no actions", self.held
        if not self.actions.ndim or not self.actions.size:
            return "no actions", f"ValueError: the actions are an array of shape {self.actions.shape}"
        odd = describe_odd_numbers(self.actions)
        return None if odd is None else ("not finite", odd)


class CallFailedError(Exception):
    """A call that failed.

    Args:
        kind: what happened.
        error: the exception's name and its message, in a line.
        detail: the server's traceback, or what else was received.
        over: whether the connection is of no more use, whatever the kind.
    """

    def __init__(self, kind: FaultKind, error: str, detail: str = "", *, over: bool = False) -> None:
        super().__init__(error)
        self.kind: FaultKind = kind
        self.error, self.detail, self.over = error[:SHOWN], detail, over or kind in ENDING


class Wire(AbstractContextManager["Wire"], ABC):
    """A connection to a policy server.

    Attributes:
        metadata: what the server says of itself.
    """

    protocol: ClassVar[ProtocolName]
    metadata: Mapping[Any, Any]

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
        """Return milliseconds of the fastest way there and back in ``seconds``; None where pings in a row show it."""
        return None

    def upload_ms(self, observation: Mapping[str, object]) -> float | None:
        """Return milliseconds until the server has read ``observation``, in a call; None where it does not say so."""
        return None

    def count_dropped(self, observations: Sequence[Mapping[str, Any]]) -> DroppedObservations | None:
        """Return how many observations the server's filter drops; None for a server without a filter, or unseen."""
        return None


def check_array(value: object, whose: str) -> np.ndarray:
    """Return an array or a scalar of NumPy as an array. Raises TypeError or ValueError for what cannot be sent."""
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"{whose} protocol has no place for a {type(value).__name__}")
    if value.dtype.kind in _REFUSED:
        raise ValueError(f"{whose} protocol has no arrays of dtype {value.dtype}")
    return np.asarray(value)


def decode(data: bytes, hook: Callable[[dict[object, object]], object] | None = None) -> Any:
    """Return the message of msgpack in ``data``, its maps as ``hook`` or else `unpack_array` makes them.

    Raises ValueError for what is no msgpack, or holds an array that is none.
    """
    import msgpack

    try:
        return msgpack.unpackb(data, object_hook=hook or unpack_array)
    except Exception as error:  # the fields of an array that is none raise whatever they are
        raise ValueError(f"{type(error).__name__}: {error_line(error, 200)}") from None


def unpack_array(value: Mapping[object, object]) -> object:
    """Return the array, or the scalar, that a map of msgpack stands for; the map itself if it stands for none.

    Two dialects are in use, with keys of bytes or text: openpi's (``__ndarray__`` or ``__npgeneric__``, data, dtype,
    shape), and that of the package msgpack-numpy, of vllm-omni and GR00T (``nd``, type, kind, shape, data).

    Raises:
        ValueError, TypeError: the fields are none of an array, or its bytes, dtype and shape do not fit.
    """
    fields: dict[object, Any] = {
        key.decode(errors="replace") if isinstance(key, bytes) else key: each for key, each in value.items()
    }
    nd = {"nd", "type", "data"} <= fields.keys()
    if not nd and not {"__ndarray__", "__npgeneric__"} & fields.keys():
        return value
    scalar = not fields["nd"] if nd else "__npgeneric__" in fields
    kind, shape, data = fields.get("type" if nd else "dtype"), () if scalar else fields.get("shape"), fields.get("data")
    if kind is None or shape is None or data is None:
        raise ValueError(f"an array with the keys {', '.join(map(str, fields))} alone")
    dtype = np.dtype(kind.decode() if isinstance(kind, bytes) else kind)
    if dtype.kind in _REFUSED or not dtype.itemsize:
        raise ValueError(f"an array of dtype {dtype}")
    if scalar and not nd:
        return dtype.type(data)
    shape = tuple(int(size) for size in shape)
    if len(data) != dtype.itemsize * math.prod(shape):
        raise ValueError(f"an array of shape {shape} and dtype {dtype} in {len(data):,} bytes")
    array = np.ndarray(shape, dtype, buffer=data)
    return array[()] if scalar else array


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
