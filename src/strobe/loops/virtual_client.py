"""LeRobot's async inference in virtual time: its robot client and its policy server, without a network between them.

`RobotClient.receive_actions`, the function of the client's thread, runs here on the caller's thread, and calls
`PolicyServer.GetActions`. So the queue of actions, the ways to aggregate chunks, the threshold, and the choice of the
observation that is predicted next are those of the LeRobot that is installed. Two things differ:

- The latency of a call covers all that lies between an observation and its actions, the network included.
- LeRobot's server drops an observation whose joints moved by less than 1 in all since the one before. It counts in the
  units of LeRobot's arms, degrees or percent. A simulator's state has others, so here nothing is dropped for that.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, Queue
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

import torch

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Observation
from strobe.loops.remote_stamps import require_grpc
from strobe.loops.virtual_rollout import EngineInputs, Setting, VirtualLoop

WITH_OBSERVATIONS = ("diffusion", "tdmpc", "vqbet")  # policies with a queue of observations, which no server fills
LOGGERS = ("policy_server", "robot_client")
WHOLE = 1_000_000  # actions: more than a chunk has


def unserved_reason(policy: Any) -> str | None:
    """Return why LeRobot's policy server cannot serve the policy here, in words."""
    try:
        require_grpc()
    except UserError as error:
        return str(error)
    from lerobot.async_inference.constants import SUPPORTED_POLICIES

    kind = str(policy.config.type)
    if kind not in SUPPORTED_POLICIES:
        served = [each for each in SUPPORTED_POLICIES if each not in WITH_OBSERVATIONS]
        return f"LeRobot's policy server does not serve the policy type '{kind}'; it serves {', '.join(served)}"
    if kind in WITH_OBSERVATIONS:
        return f"the policy type '{kind}' makes a chunk of a queue of observations, which LeRobot's server leaves empty"
    return None


class AsyncEngine:
    """Client and server, asked as the loop asks LeRobot's inference engines.

    Args:
        threads: gets the client's thread, for `strobe.loops.virtual_time` to run.
    """

    ready = True

    def __init__(self, setting: Setting, inputs: EngineInputs, loop: VirtualLoop, threads: list[object]) -> None:
        from lerobot.async_inference.configs import PolicyServerConfig
        from lerobot.async_inference.policy_server import PolicyServer

        self._inputs, self._loop = inputs, loop
        self._server: Any = PolicyServer(PolicyServerConfig(inference_latency=0.0))
        self._server.policy, self._server.lerobot_features = inputs.policy, {}
        self._server.preprocessor, self._server.postprocessor = inputs.preprocessor, inputs.postprocessor
        self._server.actions_per_chunk = setting.client.get("actions_per_chunk", WHOLE)
        self._client: Any = _client(setting, self)
        loop.queue = self
        threads.append(SimpleNamespace(target=self._client.receive_actions))
        self._action: torch.Tensor | None = None
        self._observation: Callable[[], dict[str, object]] = dict

    def remaining(self) -> int:
        """The number of actions in the client's queue."""
        return int(self._client.action_queue.qsize())

    def reset(self) -> None:
        """Begin an episode: of client and server nothing is known of an earlier one."""
        self._inputs.policy.reset()
        self._inputs.preprocessor.reset()
        self._inputs.postprocessor.reset()

    def start(self) -> None:
        """Let the server wait for observations on the virtual clock."""
        self._server.observation_queue = _Newest(self._pass_tick)

    def resume(self) -> None:
        """Do nothing: LeRobot's client does not pause."""

    def stop(self) -> None:
        """End the client's thread."""
        self._client.shutdown_event.set()

    def notify_observation(self, observation: Callable[[], Observation]) -> None:
        """Take the observation of a tick."""
        self._observation = observation

    def get_action(self, _frame: None) -> torch.Tensor | None:
        """Run a turn of the client's control loop; return its action, None if the queue is empty."""
        client = self._client
        self._action = None
        if client.actions_available():
            client.control_loop_action()
        if client._ready_to_send_observation():
            client.control_loop_observation(self._inputs.task)
        return self._action

    # What LeRobot's client calls, in place of an arm and of a network.

    observation_features: Mapping[str, object] = MappingProxyType({})
    action_features: Mapping[str, object] = MappingProxyType({})

    def connect(self) -> None:
        """Do nothing: there is no arm."""

    def get_observation(self) -> dict[str, object]:
        """Return the tick's observation, which is not looked at before it is predicted."""
        return {"look": self._observation}

    def send_action(self, action: Any) -> object:
        """Keep the client's action, for the loop."""
        self._action = action
        return action

    def send(self, observation: object) -> bool:
        """Hand an observation to the server, which may drop it."""
        self._server._enqueue_observation(observation)
        return True

    def GetActions(self, request: object) -> object:  # noqa: N802  # as gRPC's stub calls it
        """Return the server's answer to the client. The server's Empty is an answer without data on gRPC's wire."""
        answer = self._server.GetActions(request, SimpleNamespace(peer=lambda: "here"))
        return SimpleNamespace(data=getattr(answer, "data", b""))

    def note_merge(self, executed: int) -> None:
        """Tell the loop of a chunk, whose first actions were ``executed`` from an earlier one by then."""
        self._loop.note_merge(self, executed, executed)

    def _pass_tick(self) -> bool:
        if self._client.running:
            self._loop.wait()
        return bool(self._client.running)


class _Newest(Queue[Any]):
    """The server's queue, which holds the newest observation. To wait for one lets virtual time pass."""

    def __init__(self, waited: Callable[[], bool]) -> None:
        super().__init__(maxsize=1)
        self._passed = waited

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        while block and self.empty():
            if not self._passed():
                raise Empty
        return super().get(block=False)


def _client(setting: Setting, engine: AsyncEngine) -> object:
    """Return LeRobot's client, whose robot and whose connection is ``engine``. Raises UserError for its config."""
    from lerobot.async_inference import robot_client
    from lerobot.async_inference.configs import RobotClientConfig

    plain: Any = robot_client.RobotClient

    class Client(plain):
        def send_observation(self, obs: object) -> bool:
            return engine.send(obs)

        def _action_tensor_to_action_dict(self, action_tensor: torch.Tensor) -> object:
            return action_tensor

        def _aggregate_action_queues(self, incoming_actions: list[Any], aggregate_fn: object = None) -> None:
            super()._aggregate_action_queues(incoming_actions, aggregate_fn)
            first = incoming_actions[0].get_timestep() if incoming_actions else 0
            engine.note_merge(max(0, self.latest_action + 1 - first))

    own: dict[str, object] = {
        "robot": None,
        "policy_type": "here",
        "pretrained_name_or_path": "here",
        "fps": setting.fps,
    }
    try:
        config = RobotClientConfig(**own, **{"actions_per_chunk": WHOLE, **setting.client})
    except ValueError as error:
        raise UserError(f"--inference.type=async: {error}") from None
    with mock.patch.object(robot_client, "make_robot_from_config", return_value=engine):
        client: Any = Client(config)
    client.stub = engine
    client.start_barrier = SimpleNamespace(wait=lambda: None)
    return client


@contextlib.contextmanager
def replace_network() -> Iterator[None]:
    """Inside it, LeRobot's client and server need no network, and the server takes each observation as it comes."""
    # Its modules make a folder for their logs, and take over the root logger, as they are imported.
    with mock.patch("lerobot.async_inference.helpers.get_logger", logging.getLogger):
        from lerobot.async_inference import policy_server, robot_client
    connection = SimpleNamespace(insecure_channel=lambda *_: None, RpcError=ConnectionError)
    stub = SimpleNamespace(AsyncInferenceStub=lambda _: None)
    client: dict[str, Any] = {"grpc": connection, "services_pb2_grpc": stub}
    server: dict[str, Any] = {
        "observations_similar": lambda *_, **__: False,
        "raw_observation_to_observation": lambda raw, *_: raw["look"](),
    }
    with mock.patch.multiple(robot_client, **client), mock.patch.multiple(policy_server, **server):
        yield
