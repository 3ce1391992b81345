"""A client of openpi's policy server, which times its round trips and says how a call failed.

On connecting, the server sends its metadata. Each message of the client is an observation, and the server answers with
a map that holds ``actions``. A server whose policy raises sends the traceback as text, and closes the connection.

vllm-omni and SGLang speak it too, at a path of their own. There an answer may be the array itself, or a map of arrays
by the parts of an action, and an error is a map, after which the connection goes on.

Messages are msgpack, in which an array of NumPy is a map of its bytes, its dtype and its shape. The keys of that map
are bytes. A scalar of NumPy is such a map too, with its value in place of the bytes. An answer may hold arrays of
another dialect (`wire.decode`). Arrays of objects are refused in both directions: their bytes are addresses in
the memory of another process.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, override
from urllib.parse import urlsplit

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode
from websockets.sync.client import connect

from strobe.core.errors import UserError, error_line
from strobe.core.results.units import size
from strobe.core.untrusted import JsonObject
from strobe.servers.figures import Trip
from strobe.servers.protocols.observations import STATE as OF_DATASET
from strobe.servers.protocols.observations import STATE_DIM, TASK, Observations, Source
from strobe.servers.protocols.wire import (
    CONNECT_S,
    MESSAGE_BYTES,
    SHOWN,
    CallFailedError,
    Exchange,
    Wire,
    check_array,
    connection_error_reason,
    decode,
)
from strobe.servers.results import ADDRESSES


def encode(message: object) -> bytes:
    """Return ``message`` as openpi sends it. Raises ValueError or TypeError for what cannot be sent."""
    return bytes(msgpack.packb(message, default=_pack_value) or b"")


def _pack_value(value: object) -> object:
    array = check_array(value, "openpi's")
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    return {b"__ndarray__": True, b"data": array.tobytes(), b"dtype": array.dtype.str, b"shape": array.shape}


PING_EACH_S = 0.002
_LIMIT = re.compile(r"(?:limit of|length of|>) ?(\d+)")  # of a message in bytes, in the reason of close code 1009
CLOSE_S = 0.5  # a server that is busy or gone does not answer the closing
SIZE = (224, 224)  # size of images
MOST_IMAGES = 16  # that are made because a server names them
# The names of LIBERO's config in openpi.
IMAGES, STATE, PROMPT = ("observation/image", "observation/wrist_image"), "observation/state", "prompt"


class OpenpiWire(Wire):
    """A connection to openpi's policy server.

    Attributes:
        metadata: what the server sent on connecting.

    Raises:
        UserError: nothing at the address speaks the protocol.
    """

    protocol = "openpi"

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._path = urlsplit(url).path or "/"
        self._socket = self._connect()
        self.metadata = self._first_message()
        self._spoke_s = time.monotonic()

    @override
    def close(self) -> None:
        self._socket.close()

    @override
    def observations(self, source: Source) -> Observations:
        names, state, whose = _expected_names(self.metadata)
        if source.frames:
            named = source.rename_frames(lambda cameras: _default_names(cameras, names, state))
            for observation, frame in zip(named, source.frames, strict=True):
                if source.options.prompt is not None or PROMPT not in observation:
                    observation[PROMPT] = source.task(frame)
            return Observations(named, source.description, recorded=True)
        if source.given is not None:
            prompt = {} if source.options.prompt is None else {PROMPT: source.options.prompt}
            return Observations([{**source.given, **prompt}], source.description, source.is_recorded)
        generator, (height, width) = source.generator, source.options.image_size or SIZE
        made: JsonObject = {name: generator.integers(0, 256, (height, width, 3), dtype=np.uint8) for name in names}
        made[state] = generator.standard_normal(STATE_DIM).astype(np.float32)
        made[PROMPT] = source.options.prompt or TASK
        words = f"a synthetic observation with {whose} names, images of {height}×{width}"
        return Observations([made], words, recorded=False)

    @override
    def encode(self, observation: Mapping[str, object]) -> bytes:
        return encode(observation)

    def _connect(self) -> Any:
        wait_s = min(CONNECT_S, self._timeout_s)
        try:
            # Without keepalive pings: openpi's server answers none while its policy runs, and would be dropped.
            connection = connect(
                self._url,
                compression=None,
                max_size=MESSAGE_BYTES,
                ping_interval=None,
                open_timeout=wait_s,
                close_timeout=CLOSE_S,
            )
            return connection.__enter__()  # `close` leaves it; websockets 17.1 deprecates a connection without both
        except TimeoutError:
            raise UserError(f"{self._url}: no websocket handshake within {wait_s:g} s") from None
        except InvalidStatus as error:
            status = error.response.status_code
            host = urlsplit(self._url).hostname or "HOST"
            places = [f"{name}'s is {url.replace('HOST', host)}" for name, url in ADDRESSES.items() if url[:2] == "ws"]
            hint = f"; {', '.join(places)}" if status == HTTPStatus.NOT_FOUND else ": check host, port and path"
            told = f"answers HTTP {status} at the path {self._path} and opens no websocket"
            raise UserError(f"{self._url} {told}{hint}") from None
        except (WebSocketException, EOFError, ValueError) as error:
            raise UserError(f"{self._url} opens no websocket: {error_line(error, 120)}") from None
        except OSError as error:
            raise UserError(f"cannot connect to {self._url}: {connection_error_reason(error)}") from None

    def _first_message(self) -> JsonObject:
        wait_s = min(CONNECT_S, self._timeout_s)
        try:
            message = self._socket.recv(timeout=wait_s)
            metadata = decode(message) if isinstance(message, bytes) else None
            if isinstance(metadata, dict):
                return metadata
            reason = "what it sent first is no map" + (
                f": {error_line(message, 120)}" if isinstance(message, str) else ""
            )
        except TimeoutError:
            reason = f"no metadata within {wait_s:g} s"
        except ConnectionClosed as error:
            reason = f"the connection closed ({error_line(error, 120)})"
        except ValueError as error:
            reason = f"what it sent is no msgpack ({error_line(error, 120)})"
        self._socket.close()
        raise UserError(f"{self._url} does not speak openpi's protocol: {reason}")

    @override
    def ping_ms(self) -> float | None:
        """Return milliseconds of a ping that carries no data; None without an answer in a second."""
        begun = time.perf_counter_ns()
        try:
            answered = self._socket.ping().wait(1.0)
        except ConnectionClosed:
            return None
        return (time.perf_counter_ns() - begun) / 1e6 if answered else None

    @override
    def fastest_ms(self, seconds: float) -> float | None:
        """Return the fastest of pings that do not wait for each other.

        A busy server answers several together, and the last of them came just before it looked.
        """
        seen, over = [], time.monotonic() + seconds
        try:
            while time.monotonic() < over:
                self._socket.ping()
                time.sleep(PING_EACH_S)
                if self._socket.latency > 0:
                    seen.append(1e3 * self._socket.latency)
            self._socket.ping().wait(1.0)
        except ConnectionClosed:
            return None
        return min(seen, default=None)

    @override
    def call(self, observation: Mapping[str, Any]) -> Exchange:
        """Send ``observation`` and wait for the answer. Raises CallFailedError."""
        begun = time.perf_counter_ns()
        data, idle_s = self.encode(observation), time.monotonic() - self._spoke_s
        encoded = time.perf_counter_ns()
        try:
            # Ahead of the observation: a server that is busy with another client's call answers it late.
            pong = self._socket.ping()
            self._socket.send(data)
            message = self._receive()
        except ConnectionClosed as error:
            raise _describe_close(error, len(data), idle_s) from None
        except OSError as error:
            raise CallFailedError("closed", f"{type(error).__name__}: {connection_error_reason(error)}") from None
        received, self._spoke_s = time.perf_counter_ns(), time.monotonic()
        try:
            answer = decode(message)
        except ValueError as error:
            raise CallFailedError("undecodable", error_line(error)) from None
        decoded = time.perf_counter_ns()
        if isinstance(answer, np.ndarray):
            answer = {"actions": answer}
        parts = self._path != "/"  # openpi's own client needs 'actions'
        if not isinstance(answer, Mapping):
            raise CallFailedError("undecodable", f"TypeError: the answer is a {type(answer).__name__}, not a map")
        if isinstance(traceback := answer.get("error"), str) and "actions" not in answer:  # SGLang, before it closes
            raise CallFailedError("error", _last_line(traceback), traceback, over=True)
        if answer.get("type") == "error" and "actions" not in answer:  # vllm-omni
            said = error_line(answer.get("message", "without a message"), SHOWN)
            raise CallFailedError("error", f"Error: {said}")
        trip = Trip.from_ns(begun, encoded, received, decoded, _infer_ms(answer, "server_timing"))
        pong_ms = 1e3 * self._socket.latency if pong.is_set() else None
        actions = _extract_actions(answer, parts=parts)
        if actions is None and (keys := _unknown_array({"": answer})):
            dialects = "Strobe reads those of openpi (__ndarray__) and of msgpack-numpy (nd)"
            raise CallFailedError("undecodable", f"TypeError: an array with the keys {keys}; {dialects}")
        held = f"KeyError: 'actions'; the answer has the keys {', '.join(sorted(map(str, answer))[:8]) or 'nothing'}"
        if "actions" in answer:
            held = f"ValueError: 'actions' is a {type(answer['actions']).__name__}, and no array"
        policy_ms = _infer_ms(answer, "policy_timing")
        return Exchange(trip, len(data), len(message), actions, held, policy_ms, pong_ms)

    def _receive(self) -> bytes:
        """Return an answer. Raises CallFailedError for a text, and for one that is late: it is waited for once more."""
        limit = ""
        for _ in range(2):
            with suppress(TimeoutError):
                message = self._socket.recv(timeout=self._timeout_s)
                if isinstance(message, str):
                    raise CallFailedError("error", _last_line(message), message, over=True)
                if limit:
                    raise CallFailedError("slow", limit)
                return message
            limit = f"TimeoutError: no answer within {self._timeout_s:g} s"
        raise CallFailedError("silent", f"{limit}, and none in as much time again")

    @override
    def upload_ms(self, observation: Mapping[str, object]) -> float | None:
        """Return milliseconds until the server has read the bytes of ``observation``; None where it does not say.

        The message goes in fragments with a ping ahead of the last one, which is empty: the server answers the ping
        once it has read all bytes, and computes once it has the last fragment.
        """
        data, pings = self.encode(observation), []

        def fragments() -> Iterator[bytes]:
            yield data
            pings.append(self._socket.ping())

        begun = time.perf_counter_ns()
        try:
            self._socket.send(fragments())
            answered = pings[0].wait(self._timeout_s)
            took_ms = (time.perf_counter_ns() - begun) / 1e6
            self._socket.recv(timeout=self._timeout_s)
        except (ConnectionClosed, OSError):
            return None
        return took_ms if answered else None


def _describe_close(error: ConnectionClosed, sent: int, idle_s: float) -> CallFailedError:
    """Return how a call of ``sent`` bytes, ``idle_s`` after the last one, failed: the server closed the connection."""
    code, reason = (error.rcvd.code, error.rcvd.reason) if error.rcvd is not None else (None, "")
    if code == CloseCode.MESSAGE_TOO_BIG:
        limit = _LIMIT.search(reason)
        most = f"at most {size(int(limit[1]))}" if limit else "less"
        told = f"close code 1009: the server takes {most} a message, and this observation has {size(sent)}"
        return CallFailedError("too big", told)
    if code == CloseCode.INTERNAL_ERROR and "keepalive" not in reason:
        return CallFailedError("error", f"close code 1011: {reason or 'without a reason'}", over=True)
    idle = f"; no message for {idle_s:.3g} s before it" if idle_s >= 1.0 else ""
    # uvicorn often closes without the code 1009 while a message that is too big is on its way.
    large = f"; a message of {size(sent)} may be more than it takes" if code is None and sent > 2**20 else ""
    return CallFailedError("closed", f"{type(error).__name__}: {error_line(error)}{idle}{large}")


def _unknown_array(value: Mapping[Any, object]) -> str | None:
    """Return the keys of a map within ``value`` that holds bytes, as an array does; None if there is none."""
    for inner in value.values():
        if isinstance(inner, Mapping):
            if any(isinstance(each, bytes) for each in inner.values()):
                names = (key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in inner)
                return ", ".join(sorted(names))
            if keys := _unknown_array(inner):
                return keys
    return None


def _expected_names(metadata: Mapping[object, object]) -> tuple[Sequence[str], str, str]:
    """Return the names of images and of the state, and whose they are: SGLang lists those that it reads."""
    asked = metadata.get("input")
    keys = asked.get("image_keys") if isinstance(asked, Mapping) else None
    if isinstance(keys, list) and 0 < len(keys) <= MOST_IMAGES and all(isinstance(key, str) for key in keys):
        return keys, "state", "the server's"
    return IMAGES, STATE, "LIBERO's"


def _default_names(cameras: Sequence[str], names: Sequence[str], state: str) -> dict[str, str]:
    if len(cameras) > len(names):
        raise UserError(
            f"the dataset has {len(cameras)} cameras ({', '.join(cameras)}), and there are {len(names)} names "
            f"({', '.join(names)}): give openpi's names with --rename_map"
        )
    return {**dict(zip(cameras, names, strict=False)), OF_DATASET: state}


def _extract_actions(answer: Mapping[Any, Any], *, parts: bool) -> np.ndarray | None:
    """Return the actions of an answer, of several arrays by name side by side if they may be ``parts``; else None."""
    actions = answer.get("actions")
    if parts and (isinstance(actions, Mapping) or actions is None):
        found = [value for value in (actions or answer).values() if isinstance(value, np.ndarray)]
        try:
            actions = np.concatenate(found, axis=-1)
        except ValueError:  # there are none, or they are no parts of one chunk
            return None
    return actions if isinstance(actions, np.ndarray) else None


def _infer_ms(answer: Mapping[object, object], group: str) -> float | None:
    """Return ``infer_ms`` of a group of times; None if it is no time."""
    timing = answer.get(group)
    value = timing.get("infer_ms") if isinstance(timing, Mapping) else None
    sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if sound else None  # type: ignore[arg-type]


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    flush = [line for line in lines if not line[0].isspace()]
    return (flush or lines or ["an empty text"])[-1].strip()
