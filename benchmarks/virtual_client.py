"""Does LeRobot's async inference on the virtual clock execute the actions that the real one executes?

The real one: LeRobot's RobotClient and PolicyServer, which talk over gRPC in real time. An arm that only notes its
commands stands in for a robot, and chunks of known numbers for a policy. A call takes 1.5 control ticks, so that no
answer falls on a tick. The virtual one (`strobe evaluate --realtime --inference=async`) gets the same chunks
and the same latency. Bar: with each setting both execute the same action in each of their first ticks with actions.

    python benchmarks/virtual_client.py
    python benchmarks/virtual_client.py --quick      one setting
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import tempfile
import threading
import time
from concurrent import futures
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from common.shared import finish, need
from rich.console import Console

from strobe.loops.virtual_client import replace_network
from strobe.loops.virtual_rollout import Beat, EngineInputs, RecordedWorld, Setting
from strobe.loops.virtual_time import PlayOptions, play

FPS, LATE_TICKS, CHUNK, TICKS = 5.0, 1.5, 10, 24
SETTINGS: tuple[dict[str, Any], ...] = (
    {"aggregate_fn_name": "weighted_average", "chunk_size_threshold": 0.5},
    {"aggregate_fn_name": "latest_only", "chunk_size_threshold": 0.8},
    {"aggregate_fn_name": "conservative", "chunk_size_threshold": 0.3},
    {"aggregate_fn_name": "average", "chunk_size_threshold": 0.0},
)


class Numbered:
    """A policy whose chunk n holds the numbers from 100 n on, after ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self.config = SimpleNamespace(use_amp=False, image_features={})
        self.calls = 0

    def predict_action_chunk(self, batch: Any) -> torch.Tensor:
        """Return the next chunk, (1, chunk, 2)."""
        self.calls += 1
        time.sleep(self._seconds)
        numbers = 100.0 * (self.calls - 1) + torch.arange(CHUNK, dtype=torch.float32)
        return numbers.view(1, CHUNK, 1).expand(1, CHUNK, 2)

    def reset(self) -> None:
        """Do nothing."""


class Unchanged:
    """A processor that changes nothing."""

    steps = ()

    def __call__(self, batch: Any) -> Any:
        return batch

    def reset(self) -> None:
        """Do nothing."""


def virtual(client: dict[str, Any]) -> list[float]:
    """Return the actions that the virtual loop executes."""
    setting = Setting("async", FPS, client=client)
    robot = SimpleNamespace(robot_type="", action_features={})
    world = RecordedWorld(lambda _: lambda: {})
    inputs = EngineInputs(Numbered(), Unchanged(), Unchanged(), robot, {}, {}, [], "push", "cpu", world)
    latencies = itertools.repeat(round(1e9 * LATE_TICKS / FPS))
    options = PlayOptions(until_ns=round(1e9 * TICKS / FPS))
    return [
        action.values[0]
        for action in play(itertools.repeat(Beat(0, 0, 0, 0)), setting, latencies, inputs, options).actions
    ]


def real(client: dict[str, Any]) -> list[float]:
    """Return the actions that LeRobot's client executes, over gRPC and in real time."""
    import grpc
    from lerobot.async_inference import configs, policy_server, robot_client
    from lerobot.transport import services_pb2_grpc

    done: list[float] = []
    arm = SimpleNamespace(
        observation_features={}, action_features={"one": float, "two": float},
        connect=lambda: None, disconnect=lambda: None,
        get_observation=dict, send_action=lambda action: done.append(action["one"]),
    )  # fmt: skip
    served: Any = policy_server.PolicyServer(configs.PolicyServerConfig(inference_latency=0.0))
    served.policy, served.preprocessor, served.postprocessor = Numbered(LATE_TICKS / FPS), Unchanged(), Unchanged()
    served.lerobot_features, served.actions_per_chunk = {}, CHUNK
    server = grpc.server(futures.ThreadPoolExecutor(4))
    services_pb2_grpc.add_AsyncInferenceServicer_to_server(served, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    own: Any = {"robot": None, "fps": FPS, **client}
    config = configs.RobotClientConfig(
        "here", "here", actions_per_chunk=CHUNK, server_address=f"127.0.0.1:{port}", **own
    )  # fmt: skip
    nothing = {"observations_similar": lambda *_, **__: False, "raw_observation_to_observation": lambda raw, *_: raw}
    with (
        mock.patch.object(robot_client, "make_robot_from_config", return_value=arm),
        mock.patch.multiple(policy_server, **nothing),
    ):
        robot = robot_client.RobotClient(config)
        receiver = threading.Thread(target=robot.receive_actions, daemon=True)
        receiver.start()
        loop = threading.Thread(target=robot.control_loop, args=("push",), daemon=True)
        loop.start()
        time.sleep(TICKS / FPS)
        robot.shutdown_event.set()
        loop.join(2)
        receiver.join(3)
        robot.stop()
        server.stop(0)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one setting")
    settings = SETTINGS[: 1 if parser.parse_args().quick else None]
    need("remote")
    console = Console(stderr=True, width=150)
    os.chdir(tempfile.mkdtemp())
    with replace_network():  # imports LeRobot's modules without their log files
        logging.getLogger("robot_client").setLevel(logging.CRITICAL)
    rows = []
    for client in settings:
        mine, theirs = virtual(client), real(client)
        both = min(len(mine), len(theirs))
        same = sum(abs(a - b) < 1e-3 for a, b in zip(mine, theirs, strict=False))
        name = ", ".join(str(value) for value in client.values())
        console.print(f"{name}: {same} of {both} actions are the same; virtual {mine[:14]}, real {theirs[:14]}")
        rows.append({"setting": name, "same": same, "of": both})
    enough = TICKS / 2
    finish({"settings": rows}, all(row["same"] == row["of"] >= enough for row in rows))


if __name__ == "__main__":
    main()
