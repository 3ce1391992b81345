"""A stand-in for openpi's policy server: it answers as that does, and misbehaves on demand. And a slow network.

It is built on `websockets` alone. Its messages are written by hand with msgpack, not by the code under test.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from support.servers import Break

Answer = Callable[[dict[str, Any], int], dict[str, Any] | bytes | str]  # of an observation and its number, from 1

TRACEBACK = """Traceback (most recent call last):
  File "websocket_policy_server.py", line 61, in _handler
    action = self._policy.infer(obs)
KeyError: 'observation/state'
"""


def array(value: np.ndarray) -> dict[bytes, Any]:
    """Return an array as the protocol has it."""
    data = {b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": list(value.shape)}
    return {b"__ndarray__": True, **data}


def pack_message(message: dict[str, Any] | bytes | str) -> bytes | str:
    """Return a message as it is sent: a map as msgpack, all else as it is."""
    return bytes(msgpack.packb(message) or b"") if isinstance(message, dict) else message


def actions(chunk: int = 10, dim: int = 7) -> dict[str, Any]:
    """Return an answer with a chunk of actions."""
    return {"actions": array(np.linspace(-1, 1, chunk * dim).reshape(chunk, dim))}


@dataclass
class Policy:
    """The policy that the server runs, and its time.

    Args:
        answer: of an observation and its number, from 1.
        infer_s: seconds that its inference takes.
        tells: whether the answer has the server's time.
        max_size: bytes of a message that it takes; None for any.
    """

    answer: Answer = lambda observation, number: actions()
    infer_s: float = 0.0
    tells: bool = True
    max_size: int | None = None
    metadata: dict[str, Any] | bytes | str | None = field(default_factory=lambda: {"robot": "stand-in"})
    seen: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def serving(policy: Policy) -> Iterator[str]:
    """Serve on this machine meanwhile. Yields the address."""
    connections: list[ServerConnection] = []

    def handle(connection: ServerConnection) -> None:
        connections.append(connection)
        with suppress(ConnectionClosed, OSError):
            _handle(connection, policy)

    def healthy(connection: ServerConnection, request: Any) -> Any:
        if request.path == "/healthz":
            return connection.respond(HTTPStatus.OK, "OK\n")
        return connection.respond(HTTPStatus.NOT_FOUND, "no\n") if request.path == "/elsewhere" else None

    limits: dict[str, Any] = {"max_size": policy.max_size, "close_timeout": 0.2}
    server = serve(handle, "127.0.0.1", 0, compression=None, process_request=healthy, **limits)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        for connection in connections:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _handle(connection: ServerConnection, policy: Policy) -> None:
    if policy.metadata is not None:
        connection.send(pack_message(policy.metadata))
    number, before_ms = 0, None
    while True:
        data = connection.recv()
        assert isinstance(data, bytes)
        number += 1
        policy.seen.append(msgpack.unpackb(data))
        begun = time.monotonic()
        time.sleep(policy.infer_s)
        try:
            answer = policy.answer(policy.seen[-1], number)
        except Break:
            # The beginning of a frame of 65,535 bytes, and not the rest of it.
            connection.socket.sendall(b"\x82\x7e\xff\xff" + bytes(100))
            connection.socket.shutdown(socket.SHUT_RDWR)
            return
        infer_ms = (time.monotonic() - begun) * 1e3
        if isinstance(answer, dict):
            if policy.tells:
                answer.setdefault("server_timing", {"infer_ms": infer_ms})
            if before_ms is not None and policy.tells:
                answer["server_timing"]["prev_total_ms"] = before_ms
        connection.send(pack_message(answer))
        if isinstance(answer, str):
            connection.close(1011, "Internal server error. Traceback included in previous frame.")
            return
        before_ms = (time.monotonic() - begun) * 1e3


@contextmanager
def serving_one_at_a_time(policy: Policy) -> Iterator[str]:
    """Serve as openpi's server does: one loop for all clients, which stands still while the policy runs."""
    from websockets.asyncio.server import serve as serve_in_loop

    loop, started, port = asyncio.new_event_loop(), threading.Event(), []

    async def handle(connection: Any) -> None:
        await connection.send(pack_message(policy.metadata or {}))
        number = 0
        with suppress(ConnectionClosed):
            while True:
                seen, number = msgpack.unpackb(await connection.recv()), number + 1
                begun = time.monotonic()
                time.sleep(policy.infer_s)  # as a policy's forward pass: the loop stands still
                answer = policy.answer(seen, number)
                infer_ms = (time.monotonic() - begun) * 1e3
                if isinstance(answer, dict) and policy.tells:
                    answer.setdefault("server_timing", {"infer_ms": infer_ms})
                await connection.send(pack_message(answer))

    async def serve_until_stopped() -> None:
        async with serve_in_loop(handle, "127.0.0.1", 0, compression=None, max_size=None, close_timeout=0.2) as server:
            port.append(server.sockets[0].getsockname()[1])
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(task)

    task = loop.create_task(serve_until_stopped())
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield f"ws://127.0.0.1:{port[0]}"
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
        loop.close()


@contextmanager
def delay_network(address: str, delay_s: float, bytes_per_s: float = math.inf) -> Iterator[str]:
    """Put a network before a server that delays what passes, each way by ``delay_s``. Yields its address.

    Args:
        bytes_per_s: that pass, each way.
    """
    scheme, _, rest = address.partition("://")
    host, _, port = rest.partition(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((host, int(port)))
                for end, other in ((client, server), (server, client)):
                    # Else a small write waits up to 40 ms for the acknowledgement of the one before it.
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(
                        target=_forward_bytes, args=(end, other, delay_s, bytes_per_s), daemon=True
                    ).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def _forward_bytes(end: socket.socket, other: socket.socket, delay_s: float, bytes_per_s: float) -> None:
    """Pass bytes on, each so long after it came: none waits for those before it to be delayed, only to be sent."""
    with suppress(OSError):
        free = 0.0  # when the line has sent all that came before
        waiting: list[tuple[float, bytes]] = []
        arrived = threading.Condition()

        def write() -> None:
            with suppress(OSError):
                while True:
                    with arrived:
                        while not waiting:
                            arrived.wait()
                        due, data = waiting.pop(0)
                    time.sleep(max(0.0, due - time.monotonic()))
                    if not data:
                        other.shutdown(socket.SHUT_WR)
                        return
                    other.sendall(data)

        threading.Thread(target=write, daemon=True).start()
        while True:
            # Of a slow line little at once, or a ping would wait for what is behind it.
            data = end.recv(1 << 20 if bytes_per_s == math.inf else 1 << 14)
            free = max(free, time.monotonic()) + len(data) / bytes_per_s
            with arrived:
                waiting.append((free + delay_s, data))
                arrived.notify()
            if not data:
                return
