"""strobe rollout on LeRobot's policy server and robot client, as they are, over a real connection on this machine.

The server is a process of its own, watched as well; a robot without hardware and a tiny ACT.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders.checkpoints import tiny_checkpoint
from support.fakes.watched_robot import watched_robot
from support.servers.policy_server import CLIENT, SERVER, client_arguments, free_port, wait_for_port, watched_server
from support.suite import warm

from strobe.core.cli.main import main
from strobe.core.kinds import document
from strobe.core.runs import store
from strobe.loops.results.rollout import Rollout, RolloutResult

pytest.importorskip("grpc", reason="Strobe's extra 'remote' is missing")

TICKS = 45  # a second and a half


@pytest.fixture
def robot(monkeypatch):
    yield from watched_robot(monkeypatch)


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[warm.Program, int]]:
    """A watched server in a process of its own, and its port."""
    with watched_server(tmp_path, "--inference_latency=0.15") as process_and_port:
        yield process_and_port


def answer(folder: Path) -> RolloutResult:
    (run,) = folder.iterdir()
    found = store.load(run)
    assert isinstance(found, RolloutResult)
    return found


def test_client_and_server_each_tell_their_part(robot, server, tmp_path, monkeypatch, capsys):
    tiny_checkpoint("act", tmp_path / "act", "--n_action_steps=20", "--chunk_size=20")
    process, port = server
    monkeypatch.chdir(tmp_path)  # LeRobot's client makes a folder of logs when it is imported
    send = robot.send_action
    told = []

    def count(self, action):
        told.append(time.monotonic())
        if len(told) == TICKS:
            os.kill(os.getpid(), signal.SIGTERM)
        return send(self, action)

    monkeypatch.setattr(robot, "send_action", count)
    wait_for_port(port, process)
    previous = signal.getsignal(signal.SIGTERM)
    try:
        code = main(["rollout", f"--output_dir={tmp_path / 'runs'}", "--", CLIENT, *client_arguments(tmp_path, port)])
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert code == 0, "there is no other end of a client than this"
    assert not robot.made[-1].is_connected
    process.send_signal(signal.SIGTERM)
    served = process.wait_for_end(300)
    assert served.returncode == 0, served.stdout + served.stderr

    client = answer(tmp_path / "runs")
    seen_by_client(client.rollout, told)
    assert {part.name for part in client.measurement("round trip").components} >= {"policy", "pickle observation"}
    paths = {tuple(part.path) for part in client.measurement("control tick").components}
    assert {("observation", "read motors"), ("observation", "camera front"), ("action", "write motors"),
            ("send observation",), ("pickle observation",)} <= paths  # fmt: skip
    assert "of it is pickling" in capsys.readouterr().out

    server_side = answer(tmp_path / "served")
    seen_by_server(server_side.rollout, client.rollout)
    parts = {part.name for part in server_side.measurement("inference call").components}
    assert {"prepare inputs", "preprocessing", "predict chunk", "encoder", "postprocessing", "pickle actions"} <= parts
    received = {part.name for part in server_side.measurement("observation received").components}
    assert {"receive", "unpickle observation", "decide"} <= received
    assert "pace" not in {section.key for section in document(server_side).sections}


def seen_by_client(rollout: Rollout, told: list[float]) -> None:
    remote, pace = rollout.remote, rollout.pace
    assert remote is not None
    assert pace is not None
    assert (rollout.engine, rollout.command, remote.side, remote.stamped) == ("remote", CLIENT, "client", True)
    assert remote.clocks is not None
    assert remote.clocks.shared
    assert pace.ticks - rollout.queue.starved >= TICKS - 2
    assert 0 < remote.trips <= remote.observations
    assert remote.trip is not None
    assert 0 < remote.trip.median < 1e3 * (told[-1] - told[0])
    assert sum(step.share for step in remote.steps) == pytest.approx(1)
    by = {step.name: step for step in remote.steps}
    assert {step.side for step in by.values()} == {"client", "network", "server"}
    assert by["sleep of the server"].ms.max > 20, "up to 150 ms since it was asked, with the wait for an observation"
    assert by["policy"].ms.median > by["preprocessing"].ms.median > 0
    assert remote.observation_bytes is not None
    assert remote.observation_bytes.median > 2 * 64 * 64 * 3
    assert remote.encoding is not None
    assert remote.encoding.images == 2
    assert 0 < remote.encoding.jpeg_bytes < remote.encoding.raw_bytes
    assert remote.serialisation is not None
    assert 0 < remote.serialisation < 0.9
    assert rollout.age is not None
    assert rollout.age.max > remote.trip.median
    assert rollout.inference is not None
    assert rollout.inference.chunk == 20


def seen_by_server(rollout: Rollout, client: Rollout) -> None:
    remote, seen = rollout.remote, client.remote
    assert remote is not None
    assert seen is not None
    assert (rollout.engine, remote.side, rollout.pace) == ("server", "server", None)
    assert rollout.inference is not None
    # One chunk may have been on its way when the client left.
    assert seen.trips <= rollout.inference.calls <= seen.trips + 1
    assert seen.observations <= remote.observations <= seen.observations + 1
    made = remote.decisions
    assert made is not None
    assert made.kept + made.replaced + made.predicted + made.similar == remote.observations
    assert remote.must_go >= 1


def test_a_client_without_a_server_is_told_so(robot, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["rollout", "--", CLIENT, *client_arguments(tmp_path, free_port())]) == 1
    assert "no policy server at 127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([SERVER, "--prot=3"], "policy_server has no flag --prot: did you mean '--port'?"),
        ([SERVER, "--port=0"], "Port must be between 1 and 65535, got 0"),
        ([f"lerobot.async_inference.{SERVER}", "--fps=0"], "--fps must be above 0"),
        ([CLIENT], "name the robot: --robot.type=so101_follower --robot.port=… (or another)"),
        ([CLIENT, "--robot.type=dummy"], "Missing required field(s) `policy_type`"),
    ],
)
def test_wrong_words_are_a_line(robot, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["rollout", "--", *words]) == 2
    assert said in capsys.readouterr().err
    assert not robot.made
