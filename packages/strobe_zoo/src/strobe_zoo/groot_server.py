"""A client of GR00T's policy server over ZeroMQ, which times its round trips and says how a call failed.

A request is a map with the name of an endpoint and its data: ``get_action``, ``ping``, ``get_modality_config``. Servers
up to N1.5 take the observation as the data. Later ones take it under ``observation``, with a batch dimension, and they
answer with the actions and a map of further things. A server whose policy raises answers with the exception's message
under ``error``. ZeroMQ hides that a connection broke off, so its monitor is watched.

Messages are msgpack, in which an array of NumPy is a map. The older form has the bytes of a .npy file. The later
one is that of the package msgpack-numpy: bytes, dtype and shape. What a server says of its modalities shows which form
it speaks. Arrays of objects are refused in both.
"""

from __future__ import annotations

import io
import math
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, override
from urllib.parse import urlsplit

import msgpack
import numpy as np
import zmq

from strobe.core.errors import UserError, error_line
from strobe.core.untrusted import JsonObject, parse_json
from strobe.servers.figures import Trip
from strobe.servers.protocols import wire
from strobe.servers.protocols.observations import STATE, STATE_DIM, TASK, Observations, Source
from strobe.servers.protocols.wire import (
    CONNECT_S,
    MESSAGE_BYTES,
    CallFailedError,
    Exchange,
    Wire,
    connection_error_reason,
)

if TYPE_CHECKING:
    from strobe.core.subjects.subject import Observation

PING_MS = 1000
MOST_ASKED = 2**27  # bytes of an observation that a server may ask for
SIZE = (256, 256)  # size of synthetic images
LANGUAGE = "annotation.human.task_description"  # key of the task, if the server names none


ArrayForm = Literal["npy", "msgpack-numpy"]
_NPY, _AS_NPY = "__ndarray_class__", "as_npy"
_MODALITY, _LATER_MODALITY, _AS_JSON = "__ModalityConfig_class__", "__ModalityConfig__", "as_json"
MOST_LISTED = 1000  # names, or time steps, of a modality


class Modality(dict[str, Any]):
    """The server's description of a modality, such as its video: ``modality_keys`` and ``delta_indices`` among others.

    Attributes:
        flat: whether it was sent as text, as the servers up to N1.5 do, which take an observation without a map.
        form: of arrays that the server speaks.
    """

    flat = False
    form: ArrayForm = "npy"


def encode(message: object, form: ArrayForm = "npy") -> bytes:
    """Return ``message`` as GR00T sends it. Raises ValueError or TypeError for what cannot be sent."""
    return bytes(msgpack.packb(message, default=_npy if form == "npy" else _buffer) or b"")


def decode(data: bytes) -> Any:
    """Return the message in ``data``. Raises ValueError for what is no msgpack, or holds an array that is none."""
    return wire.decode(data, _unpack_value)


def _npy(value: object) -> object:
    array, file = wire.check_array(value, "GR00T's"), io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {_NPY: True, _AS_NPY: file.getvalue()}


def _buffer(value: object) -> object:
    array = wire.check_array(value, "GR00T's")
    head = {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape}
    return {**head, b"data": array.tobytes()}


def _unpack_value(value: dict[Any, Any]) -> object:
    if _NPY in value:
        return _from_npy(value[_AS_NPY])
    if _MODALITY in value or _LATER_MODALITY in value:
        return _modality(value)
    return wire.unpack_array(value)


def _from_npy(data: bytes) -> np.ndarray:
    """Return the array in the bytes of a .npy file. Raises ValueError where they are fewer than its header says."""
    file = io.BytesIO(data)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = header[np.lib.format.read_magic(file)](file)
    if not dtype.itemsize or dtype.itemsize * math.prod(shape) != len(data) - file.tell():
        raise ValueError(f"an array of shape {shape} in {len(data):,} bytes")
    return np.load(io.BytesIO(data), allow_pickle=False)


def _modality(value: Mapping[Any, Any]) -> Modality:
    config = value[_AS_JSON]
    read = Modality(parse_json(config) if isinstance(config, str) else config)
    for name, kind in (("modality_keys", str), ("delta_indices", int)):
        listed = read.pop(name, None) or []
        if not isinstance(listed, list) or len(listed) > MOST_LISTED or not all(type(each) is kind for each in listed):
            raise ValueError(f"{name} is no list of up to {MOST_LISTED:,} such")
        read[name] = listed
    read.flat, read.form = isinstance(config, str), "npy" if _MODALITY in value else "msgpack-numpy"
    return read


class GrootWire(Wire):
    """A connection to GR00T's policy server.

    Attributes:
        metadata: the names and steps of each modality, as the server says.

    Raises:
        UserError: nothing at the address speaks the protocol.
    """

    protocol = "GR00T"

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url, self._timeout_ms = url, round(timeout_s * 1e3)
        self._context = zmq.Context()
        self._wait_ms = round(min(CONNECT_S, timeout_s) * 1e3)
        self._look_for_a_listener()
        self._open()
        try:
            modalities = self._greet()
        except BaseException:
            self.close()
            raise
        self._modalities = {name: each for name, each in modalities.items() if isinstance(each, Modality)}
        first = next(iter(self._modalities.values()), Modality())
        self._flat = first.flat
        self._form: ArrayForm = first.form
        self.metadata = {
            name: f"{', '.join(each.get('modality_keys', ()))}; steps {_steps(each)}"
            for name, each in self._modalities.items()
        }

    def _look_for_a_listener(self) -> None:
        parts = urlsplit(self._url)
        try:
            socket.create_connection((parts.hostname, parts.port), self._wait_ms / 1e3).close()
        except TimeoutError:
            raise UserError(f"cannot connect to {self._url}: no answer within {self._wait_ms / 1e3:g} s") from None
        except OSError as error:
            raise UserError(f"cannot connect to {self._url}: {connection_error_reason(error)}") from None

    def _open(self) -> None:
        self._socket = self._context.socket(zmq.REQ)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(self._url)

    def _greet(self) -> Mapping[str, object]:
        """Return what the server says of its modalities; an empty map of one that says nothing."""
        seconds = self._wait_ms / 1e3
        if self._request("ping") is None:
            raise UserError(f"{self._url} does not speak GR00T's protocol: no answer to a ping within {seconds:g} s")
        modalities = self._request("get_modality_config")
        if modalities is None:
            raise UserError(f"{self._url} does not say its modalities within {seconds:g} s")
        return modalities if isinstance(modalities, dict) and "error" not in modalities else {}

    def _request(self, endpoint: str) -> object:
        """Return the answer to a request without data; None without one in time. Raises UserError for no msgpack."""
        self._socket.send(encode({"endpoint": endpoint}))
        if not self._socket.poll(self._wait_ms):
            return None
        try:
            return decode(self._socket.recv())
        except ValueError as error:
            raise UserError(f"{self._url} does not speak GR00T's protocol: {error_line(error, 120)}") from None

    def _close_socket(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)

    @override
    def close(self) -> None:
        self._close_socket()
        self._context.term()

    @override
    def observations(self, source: Source) -> Observations:
        if source.given is not None:
            given = dict(source.given)
            if source.options.prompt is not None:
                self._set_language(given, source.options.prompt)
            return Observations([given], source.description, source.is_recorded)
        if source.frames:
            named = source.rename_frames(self._default_names)
            made = [
                self._add_dimensions(each, source.task(frame)) for each, frame in zip(named, source.frames, strict=True)
            ]
            return Observations(made, source.description, recorded=True)
        generator, (height, width) = source.generator, source.options.image_size or SIZE
        flat: JsonObject = {"video": {}, "state": {}}
        for name in self._keys("video") or ("image",):
            flat["video"][name] = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        for name in self._keys("state") or ("state",):
            flat["state"][name] = generator.standard_normal(STATE_DIM).astype(np.float32)
        words = f"a synthetic observation with the server's names, images of {height}×{width}, states of {STATE_DIM}"
        return Observations([self._add_dimensions(flat, source.options.prompt or TASK)], words, recorded=False)

    def _keys(self, modality: str) -> list[str]:
        keys = self._modalities.get(modality, {}).get("modality_keys", ())
        return [key.removeprefix(f"{modality}.") for key in keys]

    def _default_names(self, cameras: Sequence[str]) -> Mapping[str, str]:
        videos = self._keys("video") or [name.rpartition(".")[2] for name in cameras]
        states = self._keys("state") or ["state"]
        if len(cameras) > len(videos) or len(states) > 1:
            raise UserError(
                f"the dataset has {len(cameras)} cameras and one state, and the server takes the videos "
                f"{', '.join(videos)} and the states {', '.join(states)}: give its names with --rename_map, such as "
                f"{{{STATE}: state.{states[0]}}}, or an observation with --policy.observation"
            )
        return {
            **{camera: f"video.{video}" for camera, video in zip(cameras, videos, strict=False)},
            STATE: f"state.{states[0]}",
        }

    def _add_dimensions(self, observation: Mapping[str, object], task: str) -> Observation:
        """Return an observation with the dimensions of time and, for servers after N1.5, of a batch, and its task."""
        lead = 1 if self._flat else 2
        made: JsonObject = {}
        asked = 0
        for modality, parts in observation.items():
            if not isinstance(parts, Mapping):
                raise UserError(
                    f"--rename_map: write 'video.NAME' or 'state.NAME' for GR00T's server, not '{modality}'"
                )
            steps = max(1, len(self._modalities.get(modality, {}).get("delta_indices", ())))
            asked += steps * sum(value.nbytes for value in parts.values() if isinstance(value, np.ndarray))
            if asked > MOST_ASKED:
                size = f"{MOST_ASKED >> 20} MiB"
                raise UserError(f"{self._url} asks for {steps:,} steps of {modality}: observations of over {size}")
            for name, value in parts.items():
                number = np.float32 if modality == "state" else value.dtype
                repeated = np.repeat(np.asarray(value, number)[None], steps, axis=0)
                key = f"{modality}.{name}" if self._flat else name
                place = made if self._flat else made.setdefault(modality, {})
                place[key] = repeated.reshape((1,) * (lead - 1) + repeated.shape)
        self._set_language(made, task)
        return made

    def _set_language(self, observation: Observation, task: str) -> None:
        keys = self._keys("language") or [LANGUAGE]
        if self._flat:
            observation |= {key: [task] for key in keys}
        else:
            observation["language"] = {key: [[task]] for key in keys}

    @override
    def encode(self, observation: Mapping[str, object]) -> bytes:
        data = dict(observation) if self._flat else {"observation": dict(observation), "options": None}
        return encode({"endpoint": "get_action", "data": data}, self._form)

    @override
    def ping_ms(self) -> float | None:
        begun = time.perf_counter_ns()
        self._socket.send(encode({"endpoint": "ping"}))
        if not self._socket.poll(PING_MS):
            self._close_socket()
            self._open()
            return None
        self._socket.recv()
        return (time.perf_counter_ns() - begun) / 1e6

    @override
    def call(self, observation: Mapping[str, Any]) -> Exchange:
        begun = time.perf_counter_ns()
        data = self.encode(observation)
        encoded = time.perf_counter_ns()
        self._socket.send(data)
        limit = f"TimeoutError: no answer within {self._timeout_ms / 1e3:g} s"
        if not self._came():
            if not self._came():
                raise CallFailedError("silent", f"{limit}, and none in as much time again")
            raise CallFailedError("slow", limit)
        message = self._socket.recv()
        received = time.perf_counter_ns()
        try:
            answer = decode(message)
        except ValueError as error:
            raise CallFailedError("undecodable", error_line(error)) from None
        decoded = time.perf_counter_ns()
        if isinstance(answer, dict) and "error" in answer:
            raise CallFailedError("error", f"RuntimeError: Server error: {error_line(answer['error'], 200)}")
        trip = Trip.from_ns(begun, encoded, received, decoded)
        return Exchange(trip, len(data), len(message), *_extract_actions(answer))

    def _came(self) -> bool:
        """Wait for an answer as long as one call may take. Raises CallFailedError where the connection ends."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        ready = dict(poller.poll(self._timeout_ms))
        if self._socket in ready:
            return True
        if ready:
            raise CallFailedError("closed", "ConnectionResetError: the connection ended before the answer")
        return False


def _extract_actions(answer: Any) -> tuple[np.ndarray | None, str]:
    """Return the actions of an answer, of shape (actions, numbers), its parts side by side in the order of their names.

    Without any, return None and what the answer holds.
    """
    if isinstance(answer, list | tuple) and answer:
        answer = answer[0]
    if not isinstance(answer, dict):
        return None, f"TypeError: no map of actions; the answer is a {type(answer).__name__}"
    arrays = {str(name): value for name, value in answer.items() if isinstance(value, np.ndarray) and value.ndim}
    if not arrays or len(arrays) != len(answer):
        held = ", ".join(sorted(map(str, answer))[:8]) or "nothing"
        return None, f"TypeError: no map of arrays; the answer has the keys {held}"
    parts = []
    for name in sorted(arrays):
        value = arrays[name]
        value = value[0] if value.ndim == 3 and value.shape[0] == 1 else value
        parts.append(value[:, None] if value.ndim == 1 else value)
    if len({part.shape[:-1] for part in parts}) > 1:
        return None, f"ValueError: its arrays differ in length: {', '.join(str(part.shape) for part in parts)}"
    if odd := [part.dtype for part in parts if part.dtype.kind not in "biuf"]:
        return None, f"TypeError: actions of dtype {odd[0]}"
    return np.concatenate(parts, axis=-1), ""


def _steps(modality: Mapping[str, Any]) -> str:
    steps = modality.get("delta_indices", [])
    return f"{steps[0]} to {steps[-1]} ({len(steps)})" if len(steps) > 4 else ", ".join(map(str, steps)) or "none"
