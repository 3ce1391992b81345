"""A client of openpi's policy server, which times its round trips and says how a call failed.

On connecting, the server sends its metadata. Each message of the client is an observation, and the server answers with
a map that holds ``actions``. A server whose policy raises sends the traceback as text, and closes the connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from strobe.errors import UserError, in_a_line, in_words
from strobe.policies.openpi_protocol import decode, encode, require_packages
from strobe.results.server import FaultKind

CONNECT_S = 10.0  # for the connection and the metadata
CLOSE_S = 0.5  # a server that is busy or gone does not answer the closing
SHOWN = 300  # characters of a foreign text


@dataclass(frozen=True)
class Exchange:
    """One call that was answered: its times in nanoseconds, its sizes in bytes, and the answer."""

    encode_ns: int
    away_ns: int  # from the first byte sent to the last byte received
    decode_ns: int
    sent_bytes: int
    received_bytes: int
    answer: Mapping[Any, Any]

    @property
    def ms(self) -> float:
        """Milliseconds of the whole."""
        return (self.encode_ns + self.away_ns + self.decode_ns) / 1e6

    def server_ms(self, group: str = "server_timing") -> float | None:
        """Return the server's own ``infer_ms``; None where it tells none."""
        timing = self.answer.get(group)
        value = timing.get("infer_ms") if isinstance(timing, Mapping) else None
        told = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        return float(value) if told else None  # type: ignore[arg-type]


class CallFailedError(Exception):
    """A call that failed, after which the connection is of no use.

    Args:
        kind: what happened.
        error: the exception's name and its message, in a line.
        detail: the server's traceback, or what else was received.
        waited_ms: milliseconds from the beginning of the call.
    """

    def __init__(self, kind: FaultKind, error: str, detail: str, waited_ms: float) -> None:
        super().__init__(error)
        self.kind: FaultKind = kind
        self.error, self.detail, self.waited_ms = error, detail, waited_ms


class OpenpiClient:
    """A connection to a policy server.

    Attributes:
        metadata: what the server sent on connecting.

    Raises:
        UserError: a wrong address, a package that is missing, or nothing at the address that speaks the protocol.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        check_url(url)
        require_packages()
        self._url, self._timeout_s = url, timeout_s
        self._socket = self._connected()
        self.metadata = self._first_message()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _connected(self) -> Any:
        from websockets import exceptions
        from websockets.sync.client import connect

        wait_s = min(CONNECT_S, self._timeout_s)
        try:
            # Without keepalive pings: openpi's server answers none while its policy runs, and would be dropped.
            return connect(
                self._url,
                compression=None,
                max_size=None,
                ping_interval=None,
                open_timeout=wait_s,
                close_timeout=CLOSE_S,
            )
        except TimeoutError:
            raise UserError(f"{self._url}: no websocket handshake within {wait_s:g} s") from None
        except exceptions.InvalidStatus as error:
            raise UserError(
                f"{self._url} answers HTTP {error.response.status_code} and opens no websocket: "
                "check host, port and path"
            ) from None
        except (exceptions.WebSocketException, EOFError, ValueError) as error:
            raise UserError(f"{self._url} opens no websocket: {in_a_line(error, 120)}") from None
        except OSError as error:
            raise UserError(f"cannot connect to {self._url}: {_why(error)}") from None

    def _first_message(self) -> dict[str, Any]:
        from websockets.exceptions import ConnectionClosed

        wait_s = min(CONNECT_S, self._timeout_s)
        try:
            message = self._socket.recv(timeout=wait_s)
            metadata = decode(message) if isinstance(message, bytes) else None
        except TimeoutError:
            why = f"no metadata within {wait_s:g} s"
        except ConnectionClosed as error:
            why = f"the connection closed ({in_a_line(error, 120)})"
        except ValueError as error:
            why = f"what it sent is no msgpack ({in_a_line(error, 120)})"
        else:
            if isinstance(metadata, dict):
                return metadata
            why = "what it sent first is no map"
        self._socket.close()
        raise UserError(f"{self._url} does not speak openpi's protocol: {why}")

    def ping_ms(self) -> float | None:
        """Return milliseconds of a ping that carries no data; None without an answer in a second."""
        from websockets.exceptions import ConnectionClosed

        begun = time.perf_counter_ns()
        try:
            answered = self._socket.ping().wait(1.0)
        except ConnectionClosed:
            return None
        return (time.perf_counter_ns() - begun) / 1e6 if answered else None

    def call(self, observation: Mapping[str, Any]) -> Exchange:
        """Send ``observation`` and wait for the answer. Raises CallFailedError."""
        from websockets.exceptions import ConnectionClosed

        begun = time.perf_counter_ns()

        def failed(kind: FaultKind, error: str, detail: str = "") -> CallFailedError:
            return CallFailedError(kind, error[:SHOWN], detail, (time.perf_counter_ns() - begun) / 1e6)

        data = encode(observation)
        encoded = time.perf_counter_ns()
        try:
            self._socket.send(data)
            message = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError:
            raise self._late(failed) from None
        except ConnectionClosed as error:
            raise failed("closed", f"{type(error).__name__}: {in_a_line(error)}") from None
        except OSError as error:
            raise failed("closed", f"{type(error).__name__}: {_why(error)}") from None
        received = time.perf_counter_ns()
        if isinstance(message, str):
            raise failed("error", _last_line(message), message)
        try:
            answer = decode(message)
        except ValueError as error:
            raise failed("undecodable", in_a_line(error)) from None
        decoded = time.perf_counter_ns()
        if not isinstance(answer, Mapping):
            raise failed("undecodable", f"TypeError: the answer is a {type(answer).__name__}, not a map")
        return Exchange(encoded - begun, received - encoded, decoded - received, len(data), len(message), answer)

    def _late(self, failed: Any) -> CallFailedError:
        """Return how a call that ran out of time failed: wait once more as long for its answer."""
        from websockets.exceptions import ConnectionClosed

        limit = f"TimeoutError: no answer within {self._timeout_s:g} s"
        try:
            message = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError:
            return failed("silent", f"{limit}, and none in as much time again")
        except ConnectionClosed as error:
            return failed("closed", f"{type(error).__name__}: {in_a_line(error)}")
        if isinstance(message, str):
            return failed("error", _last_line(message), message)
        return failed("slow", limit)


def check_url(url: str) -> None:
    """Raise UserError for an address that is no ws://HOST:PORT or wss://HOST:PORT."""
    example = "write ws://HOST:PORT, such as ws://192.168.1.20:8000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UserError(f"--policy.server={url}: {in_a_line(error, 120)}; {example}") from None
    if parts.scheme not in ("ws", "wss"):
        raise UserError(f"--policy.server={url}: only openpi's websocket protocol is known; {example}")
    if not parts.hostname or port == 0:
        raise UserError(f"--policy.server={url}: it names no {'host' if not parts.hostname else 'port'}; {example}")
    if parts.username or parts.password:
        raise UserError("--policy.server takes no user or password: they would be saved with the run")


def _why(error: OSError) -> str:
    """Return the system's reason; that of a name that is not known has no errno of the system's own."""
    import socket

    return in_a_line(error.strerror or error, 120) if isinstance(error, socket.gaierror) else in_words(error)


def _last_line(text: str) -> str:
    """Return the last line of a traceback that is not indented: the exception's name and its message."""
    lines = [line for line in text.splitlines() if line.strip()]
    flush = [line for line in lines if not line[0].isspace()]
    return (flush or lines or ["an empty text"])[-1].strip()
