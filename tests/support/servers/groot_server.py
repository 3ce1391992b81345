"""A stand-in for GR00T's policy server, of three generations: it answers as those do, and misbehaves on demand.

Its messages are written by hand with msgpack, not by the code under test.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgpack
import numpy as np
import zmq

from support.servers import Break

Answer = Callable[[dict[str, Any], int], Any]  # of an observation and its number, from 1
Generation = Literal["N1.5", "N1.6", "later"]
STEPS = {"video": [0], "state": [0], "action": list(range(10)), "language": [0]}
NAMES = {"video": ["top"], "state": ["arm"], "action": ["arm", "gripper"], "language": ["task"]}


def actions(chunk: int = 10) -> dict[str, np.ndarray]:
    """Return a chunk of actions in two parts, of shapes (1, chunk, 6) and (1, chunk, 1)."""
    return {
        "arm": np.linspace(-1, 1, chunk * 6, dtype=np.float32).reshape(1, chunk, 6),
        "gripper": np.zeros((1, chunk, 1), np.float32),
    }


@dataclass
class Policy:
    """The policy that the server runs, and its time.

    Args:
        answer: of an observation and its number, from 1. Bytes are sent as they are.
        infer_s: seconds that its inference takes.
    """

    answer: Answer = lambda observation, number: actions()
    infer_s: float = 0.0
    generation: Generation = "N1.6"
    mute: bool = False
    seen: list[dict[str, Any]] = field(default_factory=list)


def _pack_message(message: Any, generation: Generation) -> bytes:
    def default(value: Any) -> Any:
        assert isinstance(value, np.ndarray)
        if generation == "later":
            head = {b"nd": True, b"type": value.dtype.str, b"kind": b"", b"shape": value.shape}
            return {**head, b"data": value.tobytes()}
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return {"__ndarray_class__": True, "as_npy": file.getvalue()}

    return bytes(msgpack.packb(message, default=default) or b"")


def _unpack_message(data: bytes) -> Any:
    def hook(value: dict[Any, Any]) -> Any:
        if "__ndarray_class__" in value:
            return np.load(io.BytesIO(value["as_npy"]), allow_pickle=False)
        if b"nd" in value:
            return np.frombuffer(value[b"data"], np.dtype(value[b"type"])).reshape(value[b"shape"])
        return value

    return msgpack.unpackb(data, object_hook=hook)


def _modalities(generation: Generation) -> dict[str, Any]:
    told = {}
    for name, steps in STEPS.items():
        keys = [f"{name}.{key}" for key in NAMES[name]] if generation == "N1.5" else NAMES[name]
        said: Any = {"delta_indices": steps, "modality_keys": keys}
        marker = "__ModalityConfig__" if generation == "later" else "__ModalityConfig_class__"
        told[name] = {marker: True, "as_json": json.dumps(said) if generation == "N1.5" else said}
    return told


@contextmanager
def serving(policy: Policy) -> Iterator[str]:
    """Serve on this machine meanwhile. Yields the address."""
    context, over = zmq.Context(), threading.Event()
    server = context.socket(zmq.REP)
    port = server.bind_to_random_port("tcp://127.0.0.1")

    def run() -> None:
        while not over.is_set():
            if not server.poll(20) or policy.mute:
                continue
            request = _unpack_message(server.recv())
            try:
                answer = _answer_request(policy, request)
            except Break:
                break
            except Exception as error:
                answer = {"error": str(error)}
            server.send(answer if isinstance(answer, bytes) else _pack_message(answer, policy.generation))
        server.close(0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        over.set()
        thread.join(5)
        context.term()


def _answer_request(policy: Policy, request: dict[str, Any]) -> Any:
    match request["endpoint"]:
        case "ping":
            return {"status": "ok", "message": "Server is running"}
        case "get_modality_config":
            return _modalities(policy.generation)
    data = request["data"]
    policy.seen.append(data if policy.generation == "N1.5" else data["observation"])
    time.sleep(policy.infer_s)
    answer = policy.answer(policy.seen[-1], len(policy.seen))
    if policy.generation == "N1.5" and isinstance(answer, dict):
        return {f"action.{name}": value[0] for name, value in answer.items()}
    return [answer, {}] if isinstance(answer, dict) else answer
