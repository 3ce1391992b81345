"""A client of LeRobot's policy server over gRPC, which times its round trips and says how a call failed.

A call goes there and back twice: the server receives a pickled observation and queues it; then a request for actions
waits for the chunk. The client names a policy, which the server loads. The server says nothing of itself. A server that
Strobe watches sends its times, and the exception of its policy, in the trailing metadata.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, override

import grpc
import numpy as np
from lerobot.transport import services_pb2, services_pb2_grpc
from lerobot.transport.utils import grpc_channel_options, send_bytes_in_chunks

from strobe.core.errors import UserError, error_line
from strobe.loops import remote_stamps
from strobe.servers.figures import Trip
from strobe.servers.protocols import lerobot_messages
from strobe.servers.protocols.lerobot_messages import Robot, ServedPolicy, make_robot
from strobe.servers.protocols.observations import Observations, Source
from strobe.servers.protocols.wire import CONNECT_S, MESSAGE_BYTES, CallFailedError, Exchange, Wire
from strobe.servers.results import DroppedObservations

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
        lerobot_messages.check_features(policy)
        self._policy = policy
        self._url, self._timeout_s = url, timeout_s
        self._messages: Any = services_pb2  # its classes are made at the import
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
            grpc.channel_ready_future(self._channel).result(timeout=wait_s)
            self._stub.Ready(self._messages.Empty(), timeout=wait_s)
        except grpc.FutureTimeoutError:
            self.close()
            raise UserError(f"cannot connect to {self._url}: no gRPC server answers within {wait_s:g} s") from None
        except grpc.RpcError as error:
            self.close()
            status = remote_stamps.grpc_status(error) or type(error).__name__
            raise UserError(f"{self._url} does not speak LeRobot's protocol: {status}") from None

    @override
    def observations(self, source: Source) -> Observations:
        self._robot = make_robot(source, self._policy)
        instructions = lerobot_messages.instructions(self._policy, self._robot.features)
        try:
            self._stub.SendPolicyInstructions(self._messages.PolicySetup(data=instructions), timeout=LOAD_S)
        except grpc.RpcError as error:
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
        except grpc.RpcError:
            return None
        return (time.perf_counter_ns() - begun) / 1e6

    @override
    def call(self, observation: Mapping[str, Any]) -> Exchange:
        return self._call(observation, must_go=True)

    def _call(self, observation: Mapping[str, object], *, must_go: bool) -> Exchange:
        self._step += 1
        begun = time.perf_counter_ns()
        data = lerobot_messages.encode(observation, time.time(), self._step, must_go=must_go)
        encoded = time.perf_counter_ns()
        sent = self._stub.SendObservations.future(send_bytes_in_chunks(data, self._messages.Observation))
        self._result(sent)
        received = self._stub.GetActions.future(self._messages.Empty())
        message = self._result(received)
        came = time.perf_counter_ns()
        if not message.data:
            raise _empty(remote_stamps.failure_received(received))
        try:
            lerobot_messages.check(message.data)  # no part of what a client's decoding takes
            checked = time.perf_counter_ns()
            answer = lerobot_messages.decode(message.data)
        except ValueError as error:
            raise CallFailedError("undecodable", error_line(error)) from None
        decoded = came + time.perf_counter_ns() - checked
        own, policy = _server_ms(remote_stamps.read_stamps(sent)[0], remote_stamps.read_stamps(received)[0])
        actions, held = lerobot_messages.extract_actions(answer)
        trip = Trip.from_ns(begun, encoded, came, decoded, own)
        return Exchange(trip, len(data), len(message.data), actions, held, policy)

    def _result(self, call: Any) -> Any:
        """Return the server's answer to a request. Raises CallFailedError."""
        try:
            return call.result(timeout=self._timeout_s)
        except grpc.FutureTimeoutError:
            raise self._late(call) from None
        except grpc.RpcError as error:
            status = remote_stamps.grpc_status(error) or type(error).__name__
            closed = status.startswith(("UNAVAILABLE", "CANCELLED"))
            raise CallFailedError("closed" if closed else "error", status) from None

    def _late(self, call: Any) -> CallFailedError:
        """Return how a call that ran out of time failed: wait once more as long for its answer."""
        limit = f"TimeoutError: no answer within {self._timeout_s:g} s"
        try:
            message = call.result(timeout=self._timeout_s)
        except grpc.FutureTimeoutError:
            call.cancel()
            return CallFailedError("silent", f"{limit}, and none in as much time again")
        except grpc.RpcError as error:
            return CallFailedError("closed", remote_stamps.grpc_status(error) or type(error).__name__)
        if not getattr(message, "data", b""):
            return _empty(remote_stamps.failure_received(call))
        return CallFailedError("slow", limit)

    @override
    def count_dropped(self, observations: Sequence[Mapping[str, object]]) -> DroppedObservations | None:
        robot, sent, lost = self._robot, observations[1 : 1 + FILTERED], []
        if robot is None or not sent:
            return None
        try:
            self.call(observations[0])
            for before, observation in zip(observations, sent, strict=False):
                try:
                    self._call(observation, must_go=False)
                except CallFailedError as error:
                    if error.kind != "empty":
                        raise
                    self.call(observation)  # an error of the policy would come again
                    lost.append(float(np.linalg.norm(robot.state(observation) - robot.state(before))))
        except CallFailedError:
            return None  # not the filter, but the policy
        return DroppedObservations(sent=len(sent), dropped=len(lost), farthest_dropped=max(lost, default=None))


def _empty(failure: Sequence[str] | None) -> CallFailedError:
    if failure is None:
        return CallFailedError("empty", "Empty: the server sent an answer without data")
    error, place, line = failure
    return CallFailedError("error", error, f"{place}: {line}" if place else line)


def _server_ms(sending: Sequence[int] | None, serving: Sequence[int] | None) -> tuple[float | None, float | None]:
    """Return the server's own time of both requests, and its policy's, of a watched server's stamps; else None."""
    if sending is None or serving is None or len(sending) != 5 or len(serving) != 8:
        return None, None
    _, arrived, _, queued, _ = sending
    begun, _, _, preprocessed, predicted, _, _, answered = serving
    return (queued - arrived + answered - begun) / 1e6, (predicted - preprocessed) / 1e6
