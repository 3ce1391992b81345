"""LeRobot's own policy server in this process, with a function in place of a policy: its queue and filter are real."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import torch
from lerobot.transport import services_pb2, services_pb2_grpc

from support.servers import Break

Answer = Callable[[dict[str, Any], int], torch.Tensor | bytes]  # of an observation and its number, from 1


messages: Any = services_pb2  # its classes are made as it is imported


def actions(chunk: int = 10, dim: int = 6) -> torch.Tensor:
    """Return a chunk of actions, of shape (1, chunk, dim)."""
    return torch.linspace(-1, 1, chunk * dim).reshape(1, chunk, dim)


@dataclass
class Policy:
    """A stand-in for the policy, and its time.

    Args:
        answer: of an observation and its number, from 1. Bytes are sent as they are.
        infer_s: seconds that its inference takes.
        refuses: what the server raises in place of loading the policy.
    """

    answer: Answer = lambda observation, number: actions()
    infer_s: float = 0.0
    latency_s: float = 0.0
    wait_s: float = 0.2  # for an observation
    refuses: Exception | None = None
    asked_for: Any = None
    seen: list[dict[str, Any]] = field(default_factory=list)


def _return_unchanged(value: Any) -> Any:
    return value


def _server(policy: Policy, folder: Path) -> Any:
    before, root = Path.cwd(), logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    os.chdir(folder)  # LeRobot's server makes a folder of logs when it is imported, and has every library write to it
    try:
        from lerobot.async_inference.configs import PolicyServerConfig
        from lerobot.async_inference.policy_server import PolicyServer
    finally:
        os.chdir(before)
        root.setLevel(level)
        root.handlers[:] = handlers

    class Server(PolicyServer):
        def SendPolicyInstructions(self, request: Any, context: Any) -> Any:  # noqa: N802
            if policy.refuses is not None:
                raise policy.refuses
            policy.asked_for = asked = pickle.loads(request.data)
            self.lerobot_features, self.actions_per_chunk = asked.lerobot_features, asked.actions_per_chunk
            images = {
                name: SimpleNamespace(shape=(3, *feature["shape"][:2]))
                for name, feature in asked.lerobot_features.items()
                if feature["dtype"] == "image"
            }
            self.policy = SimpleNamespace(config=SimpleNamespace(image_features=images))
            vars(self).update(preprocessor=_return_unchanged, postprocessor=_return_unchanged)
            return messages.Empty()

        def _get_action_chunk(self, observation: dict[str, Any]) -> torch.Tensor:
            policy.seen.append(observation)
            time.sleep(policy.infer_s)
            made = policy.answer(observation, len(policy.seen))
            if isinstance(made, bytes):
                raise _SentAsTheyAre(made)
            return made

        def GetActions(self, request: Any, context: Any) -> Any:  # noqa: N802
            self.raw = b""
            answer = super().GetActions(request, context)
            return messages.Actions(data=self.raw) if self.raw else answer

        def _predict_action_chunk(self, observation_t: Any) -> Any:
            try:
                return super()._predict_action_chunk(observation_t)
            except _SentAsTheyAre as bytes_of:
                self.raw = bytes_of.data
                raise

    config = PolicyServerConfig(inference_latency=policy.latency_s, obs_queue_timeout=policy.wait_s)
    return Server(config)


class _SentAsTheyAre(Exception):  # noqa: N818
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


@contextmanager
def serving(policy: Policy, folder: Path) -> Iterator[str]:
    """Serve on this machine meanwhile; ``folder`` takes LeRobot's logs. Yields the address."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    services_pb2_grpc.add_AsyncInferenceServicer_to_server(_server(_ending(policy, server), folder), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(0)


def _ending(policy: Policy, server: grpc.Server) -> Policy:
    """Have a `Break` end the server."""
    answer = policy.answer

    def answer_until_break(observation: dict[str, Any], number: int) -> torch.Tensor | bytes:
        try:
            return answer(observation, number)
        except Break:
            server.stop(0)
            time.sleep(0.2)  # else LeRobot's empty answer may be sent before the connection ends
            raise

    policy.answer = answer_until_break
    return policy
