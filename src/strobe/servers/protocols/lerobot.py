"""A client of LeRobot's policy server over gRPC, which times its round trips and says how a call failed.

A call goes there and back twice: the server receives a pickled observation and queues it; then a request for actions
waits for the chunk. The client names a policy, which the server loads. The server says nothing of itself. A server that
Strobe watches sends its times, and the exception of its policy, in the trailing metadata.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, override

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.loops import remote_stamps
from strobe.servers.protocols import lerobot_messages
from strobe.servers.protocols.lerobot_messages import Robot, ServedPolicy, make_robot
from strobe.servers.protocols.observations import Observations, Source
from strobe.servers.protocols.wire import CONNECT_S, MESSAGE_BYTES, CallFailedError, Exchange, Wire
from strobe.servers.results import DroppedObservations, FaultKind

if TYPE_CHECKING:
    from strobe.core.timeline.layers import Call

LOAD_S = 600.0  # time for the server to load a policy
PING_S = 1.0
FILTERED = 3  # observations that the filter is sent


class LerobotWire(Wire):
    """A connection to LeRobot's policy server. The server loads its policy when the observations are known.

    Raises:
        UserError: nothing at the address speaks the protocol, or the server would not give the policy what it reads.
    """

    protocol = "LeRobot"

    def __init__(self, url: str, timeout_s: float, policy: ServedPolicy) -> None:
        import grpc
        from lerobot.transport import services_pb2, services_pb2_grpc
        from lerobot.transport.utils import grpc_channel_options

        lerobot_messages.check_features(policy)
        self._policy = policy
        self._url, self._timeout_s = url, timeout_s
        self._messages, self._errors = services_pb2, grpc
        self._channel = grpc.insecure_channel(url.removeprefix("grpc://"), grpc_channel_options(MESSAGE_BYTES))
        self._stub = services_pb2_grpc.AsyncInferenceStub(self._channel)
        self._step = 0
        self._robot: Robot | None = None
        self.metadata: Mapping[Any, Any] = {}
        self._greet()

    @override
    def close(self) -> None:
        self._channel.close()

    def _greet(self) -> None:
        wait_s = min(CONNECT_S, self._timeout_s)
        try:
            self._errors.channel_ready_future(self._channel).result(timeout=wait_s)
            self._stub.Ready(self._messages.Empty(), timeout=wait_s)
        except self._errors.FutureTimeoutError:
            self.close()
            raise UserError(f"cannot connect to {self._url}: no gRPC server answers within {wait_s:g} s") from None
        except self._errors.RpcError as error:
            self.close()
            status = remote_stamps.grpc_status(error) or type(error).__name__
            raise UserError(f"{self._url} does not speak LeRobot's protocol: {status}") from None

    @override
    def observations(self, source: Source) -> Observations:
        self._robot = make_robot(source, self._policy)
        instructions = lerobot_messages.instructions(self._policy, self._robot.features)
        try:
            self._stub.SendPolicyInstructions(self._messages.PolicySetup(data=instructions), timeout=LOAD_S)
        except self._errors.RpcError as error:
            status = remote_stamps.grpc_status(error) or type(error).__name__
            raise UserError(f"{self._url} does not load {self._policy.path}: {status}") from None
        return self._robot.observations

    @override
    def encode(self, observation: Mapping[str, object]) -> bytes:
        return lerobot_messages.encode(observation, time.time(), self._step, must_go=True)

    @override
    def ping_ms(self) -> float | None:
        begun = time.perf_counter_ns()
        try:
            self._stub.Ready(self._messages.Empty(), timeout=PING_S)
        except self._errors.RpcError:
            return None
        return (time.perf_counter_ns() - begun) / 1e6

    @override
    def call(self, observation: Mapping[str, Any]) -> Exchange:
        return self._call(observation, must_go=True)

    def _call(self, observation: Mapping[str, object], *, must_go: bool) -> Exchange:
        self._step += 1
        begun = time.perf_counter_ns()

        def make_error(kind: FaultKind, error: str, detail: str = "", *, over: bool = False) -> CallFailedError:
            return CallFailedError(kind, error, detail, (time.perf_counter_ns() - begun) / 1e6, over=over)

        data = lerobot_messages.encode(observation, time.time(), self._step, must_go=must_go)
        encoded = time.perf_counter_ns()
        try:
            sent = self._send(data)
            message, received = self._receive()
        except self._errors.FutureTimeoutError as error:
            raise self._late(error.args[0], make_error) from None
        except self._errors.RpcError as error:
            status = remote_stamps.grpc_status(error) or type(error).__name__
            closed = status.startswith(("UNAVAILABLE", "CANCELLED"))
            raise make_error("closed" if closed else "error", status, over=closed) from None
        came = time.perf_counter_ns()
        if not message.data:
            raise _empty(remote_stamps.failure_received(received), make_error)
        try:
            lerobot_messages.check(message.data)  # no part of what a client's decoding takes
            checked = time.perf_counter_ns()
            answer = lerobot_messages.decode(message.data)
        except ValueError as error:
            raise make_error("undecodable", error_line(error)) from None
        decoded = time.perf_counter_ns()
        took = (encoded - begun, came - encoded, decoded - checked)
        own, policy = _server_ms(remote_stamps.read_stamps(sent)[0], remote_stamps.read_stamps(received)[0])
        actions, held = lerobot_messages.extract_actions(answer)
        return Exchange(*took, len(data), len(message.data), actions, held, own, policy)

    def _send(self, data: bytes) -> object:
        from lerobot.transport.utils import send_bytes_in_chunks

        chunks = send_bytes_in_chunks(data, self._messages.Observation)
        call = self._stub.SendObservations.future(chunks)
        self._result(call)
        return call

    def _receive(self) -> tuple[Any, Any]:
        call = self._stub.GetActions.future(self._messages.Empty())
        return self._result(call), call

    def _result(self, call: Any) -> object:
        try:
            return call.result(timeout=self._timeout_s)
        except self._errors.FutureTimeoutError:
            raise self._errors.FutureTimeoutError(call) from None

    def _late(self, call: Any, failed: Call) -> CallFailedError:
        """Return how a call that ran out of time failed: wait once more as long for its answer."""
        limit = f"TimeoutError: no answer within {self._timeout_s:g} s"
        try:
            message = call.result(timeout=self._timeout_s)
        except self._errors.FutureTimeoutError:
            call.cancel()
            return failed("silent", f"{limit}, and none in as much time again", over=True)
        except self._errors.RpcError as error:
            return failed("closed", remote_stamps.grpc_status(error) or type(error).__name__, over=True)
        if not getattr(message, "data", b""):
            return _empty(remote_stamps.failure_received(call), failed)
        return failed("slow", limit, over=True)

    @override
    def count_dropped(self, observations: Sequence[Mapping[str, object]]) -> DroppedObservations | None:
        robot = self._robot
        if robot is None or len(observations) < 2:
            return None
        if not self._answers(observations[0]):
            return None
        state, distances, lost = robot.state(observations[0]), [], []
        for observation in observations[1 : 1 + FILTERED]:
            there = robot.state(observation)
            distances.append(float(np.linalg.norm(there - state)))
            try:
                self._call(observation, must_go=False)
            except CallFailedError as error:
                if error.kind != "empty" or not self._answers(observation):
                    return None  # not the filter, but the policy
                lost.append(distances[-1])
            state = there
        return DroppedObservations(
            sent=len(distances),
            dropped=len(lost),
            nearest=min(distances),
            farthest_dropped=max(lost, default=None),
        )

    def _answers(self, observation: Mapping[str, object]) -> bool:
        try:
            self.call(observation)
        except CallFailedError:
            return False
        return True


def _empty(failure: Sequence[str] | None, failed: Call) -> CallFailedError:
    if failure is None:
        return failed("empty", "Empty: the server sent an answer without data")
    error, place, line = failure
    return failed("error", error, f"{place}: {line}" if place else line)


def _server_ms(sending: Sequence[int] | None, serving: Sequence[int] | None) -> tuple[float | None, float | None]:
    """Return the server's own time of both requests, and its policy's, of a watched server's stamps; else None."""
    if sending is None or serving is None or len(sending) != 5 or len(serving) != 8:
        return None, None
    _, arrived, _, queued, _ = sending
    begun, _, _, preprocessed, predicted, _, _, answered = serving
    return (queued - arrived + answered - begun) / 1e6, (predicted - preprocessed) / 1e6
