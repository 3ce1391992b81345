"""A client of openpi's policy server, which times its round trips and says how a call failed.

On connecting, the server sends its metadata. Each message of the client is an observation, and the server answers with
a map that holds ``actions``. A server whose policy raises sends the traceback as text, and closes the connection.

vllm-omni and SGLang speak it too, at a path of their own. There an answer may be the array itself, or a map of arrays
by the parts of an action, and an error is a map, after which the connection goes on.

Messages are msgpack, in which an array of NumPy is a map of its bytes, its dtype and its shape. The keys of that map
are bytes. A scalar of NumPy is such a map too, with its value in place of the bytes. Arrays of objects are refused in
both directions: their bytes are addresses in the memory of another process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, override
from urllib.parse import urlsplit

import numpy as np

from strobe.core.errors import UserError, error_line, install
from strobe.core.json_text import JsonObject
from strobe.servers.protocols.observations import STATE as OF_DATASET
from strobe.servers.protocols.observations import STATE_DIM, TASK, Observations, Source
from strobe.servers.protocols.wire import (
    CONNECT_S,
    MESSAGE_BYTES,
    SHOWN,
    CallFailedError,
    Exchange,
    Wire,
    connection_error_reason,
)
from strobe.servers.results import FaultKind

_ARRAY, _SCALAR, _DATA, _DTYPE, _SHAPE = b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape"
_REFUSED = "OVc"  # kinds of dtypes: objects, records, complex numbers


def require_packages() -> None:
    """Raise UserError where `websockets` or `msgpack` is not installed."""
    try:
        import msgpack  # noqa: F401
        import websockets  # noqa: F401
    except ImportError as error:
        raise UserError(f"openpi's server needs the package {error.name}: {install('remote')}") from None


def encode(message: object) -> bytes:
    """Return ``message`` as openpi sends it. Raises ValueError or TypeError for what cannot be sent."""
    import msgpack

    return bytes(msgpack.packb(message, default=_pack_value) or b"")


def decode(data: bytes) -> Any:
    """Return the message in ``data``; its arrays are read-only.

    Raises:
        ValueError: ``data`` is no msgpack, or holds an array whose bytes, dtype and shape do not fit.
    """
    import msgpack

    try:
        return msgpack.unpackb(data, object_hook=_unpack_value)
    except (ValueError, msgpack.UnpackException) as error:  # the latter where the bytes end too early
        raise ValueError(f"{type(error).__name__}: {error}") from None
    except (TypeError, KeyError, OverflowError, MemoryError) as error:  # fields of an array that are none
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _pack_value(value: Any) -> object:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in _REFUSED:
            raise ValueError(f"openpi's protocol has no arrays of dtype {value.dtype}")
        if isinstance(value, np.generic):
            return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}
        return {_ARRAY: True, _DATA: value.tobytes(), _DTYPE: value.dtype.str, _SHAPE: value.shape}
    raise TypeError(f"openpi's protocol has no place for a {type(value).__name__}")


def _unpack_value(value: dict[Any, Any]) -> object:
    if _ARRAY not in value and _SCALAR not in value:
        return value
    dtype = np.dtype(value[_DTYPE])
    if dtype.kind in _REFUSED:
        raise ValueError(f"an array of dtype {dtype}")
    if _SCALAR in value:
        return dtype.type(value[_DATA])
    data, shape = value[_DATA], tuple(int(size) for size in value[_SHAPE])
    if min(shape, default=0) < 0:
        raise ValueError(f"an array of shape {shape}")
    if len(data) != dtype.itemsize * int(np.prod(shape, dtype=object)):
        raise ValueError(f"an array of shape {shape} and dtype {dtype} in {len(data):,} bytes")
    return np.ndarray(shape, dtype, buffer=data)


PATHS = "openpi's server takes any path, vllm-omni and SGLang have /v1/realtime/robot/openpi"
PING_EACH_S = 0.002
CLOSE_S = 0.5  # a server that is busy or gone does not answer the closing
SIZE = (224, 224)  # size of images
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

    @override
    def close(self) -> None:
        self._socket.close()

    @override
    def observations(self, source: Source) -> Observations:
        if source.frames:
            named = source.rename_frames(_default_names)
            for observation, frame in zip(named, source.frames, strict=True):
                if source.options.prompt is not None or PROMPT not in observation:
                    observation[PROMPT] = source.task(frame)
            return Observations(named, source.description, recorded=True)
        if source.given is not None:
            prompt = {} if source.options.prompt is None else {PROMPT: source.options.prompt}
            return Observations([{**source.given, **prompt}], source.description, source.is_recorded)
        generator, (height, width) = source.generator, source.options.image_size or SIZE
        made: JsonObject = {name: generator.integers(0, 256, (height, width, 3), dtype=np.uint8) for name in IMAGES}
        made[STATE] = generator.standard_normal(STATE_DIM).astype(np.float32)
        made[PROMPT] = source.options.prompt or TASK
        words = f"a synthetic observation with LIBERO's names, images of {height}×{width}"
        return Observations([made], words, recorded=False)

    @override
    def encode(self, observation: Mapping[str, object]) -> bytes:
        return encode(observation)

    def _connect(self) -> Any:
        from websockets import exceptions
        from websockets.sync.client import connect

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
        except exceptions.InvalidStatus as error:
            status = error.response.status_code
            hint = f"; {PATHS}" if status == HTTPStatus.NOT_FOUND else ": check host, port and path"
            told = f"answers HTTP {status} at the path {self._path} and opens no websocket"
            raise UserError(f"{self._url} {told}{hint}") from None
        except (exceptions.WebSocketException, EOFError, ValueError) as error:
            raise UserError(f"{self._url} opens no websocket: {error_line(error, 120)}") from None
        except OSError as error:
            raise UserError(f"cannot connect to {self._url}: {connection_error_reason(error)}") from None

    def _first_message(self) -> JsonObject:
        from websockets.exceptions import ConnectionClosed

        wait_s = min(CONNECT_S, self._timeout_s)
        try:
            message = self._socket.recv(timeout=wait_s)
            metadata = decode(message) if isinstance(message, bytes) else None
        except TimeoutError:
            reason = f"no metadata within {wait_s:g} s"
        except ConnectionClosed as error:
            reason = f"the connection closed ({error_line(error, 120)})"
        except ValueError as error:
            reason = f"what it sent is no msgpack ({error_line(error, 120)})"
        else:
            if isinstance(metadata, dict):
                return metadata
            reason = "what it sent first is no map"
        self._socket.close()
        raise UserError(f"{self._url} does not speak openpi's protocol: {reason}")

    @override
    def ping_ms(self) -> float | None:
        """Return milliseconds of a ping that carries no data; None without an answer in a second."""
        from websockets.exceptions import ConnectionClosed

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
        from websockets.exceptions import ConnectionClosed

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
        from websockets.exceptions import ConnectionClosed

        begun = time.perf_counter_ns()

        def make_error(kind: FaultKind, error: str, detail: str = "") -> CallFailedError:
            return CallFailedError(kind, error, detail, (time.perf_counter_ns() - begun) / 1e6)

        data = self.encode(observation)
        encoded = time.perf_counter_ns()
        try:
            # Ahead of the observation: a server that is busy with another client's call answers it late.
            pong = self._socket.ping()
            self._socket.send(data)
            message = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError:
            raise self._late(make_error) from None
        except ConnectionClosed as error:
            raise make_error("closed", f"{type(error).__name__}: {error_line(error)}") from None
        except OSError as error:
            raise make_error("closed", f"{type(error).__name__}: {connection_error_reason(error)}") from None
        received = time.perf_counter_ns()
        if isinstance(message, str):
            raise make_error("error", _last_line(message), message)
        try:
            answer = decode(message)
        except ValueError as error:
            raise make_error("undecodable", error_line(error)) from None
        decoded = time.perf_counter_ns()
        if isinstance(answer, np.ndarray):
            answer = {"actions": answer}
        parts = self._path != "/"  # openpi's own client needs 'actions'
        if not isinstance(answer, Mapping):
            raise make_error("undecodable", f"TypeError: the answer is a {type(answer).__name__}, not a map")
        if answer.get("type") == "error" and "actions" not in answer:
            error = make_error("error", f"Error: {error_line(answer.get('message', 'without a message'), SHOWN)}")
            error.over = False
            raise error
        took = (encoded - begun, received - encoded, decoded - received)
        own = (_infer_ms(answer, "server_timing"), _infer_ms(answer, "policy_timing"))
        pong_ms = 1e3 * self._socket.latency if pong.is_set() else None
        actions = _extract_actions(answer, parts=parts)
        held = f"KeyError: 'actions'; the answer has the keys {', '.join(sorted(map(str, answer))[:8]) or 'nothing'}"
        return Exchange(*took, len(data), len(message), actions, held, *own, pong_ms)

    def _late(self, failed: Any) -> CallFailedError:
        """Return how a call that ran out of time failed: wait once more as long for its answer."""
        from websockets.exceptions import ConnectionClosed

        limit = f"TimeoutError: no answer within {self._timeout_s:g} s"
        try:
            message = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError:
            return failed("silent", f"{limit}, and none in as much time again")
        except ConnectionClosed as error:
            return failed("closed", f"{type(error).__name__}: {error_line(error)}")
        if isinstance(message, str):
            return failed("error", _last_line(message), message)
        return failed("slow", limit)


def _default_names(cameras: Sequence[str]) -> dict[str, str]:
    if len(cameras) > len(IMAGES):
        raise UserError(
            f"the dataset has {len(cameras)} cameras ({', '.join(cameras)}), and LIBERO's names are for "
            f"{len(IMAGES)}: give openpi's names with --rename_map"
        )
    return {**dict(zip(cameras, IMAGES, strict=False)), OF_DATASET: STATE}


def _extract_actions(answer: Mapping[Any, Any], *, parts: bool) -> np.ndarray | None:
    """Return the actions of an answer; None for an answer without.

    Args:
        parts: whether they may be several arrays by name, which are put side by side.
    """
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
