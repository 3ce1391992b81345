"""A policy that LeRobot's policy server cannot run: client and server each name the exception that LeRobot keeps.

Real processes over a real connection, which is what takes the seconds.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.builders.checkpoints import tiny_for_robot
from support.fakes.watched_robot import watched_robot
from support.servers.policy_server import CLIENT, client_arguments, wait_for_port, watched_server
from support.suite.matrix import matrix

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.loops.results.rollout import Failure, RolloutResult

pytest.importorskip("grpc", reason="Strobe's extra 'remote' is missing")

# By type of policy: the robot's cameras, of which VQ-BeT takes one; its exception; whether LeRobot logs a word of it;
# and the line that raises it.
RAISED = {
    "diffusion": (("front", "wrist"), "AssertionError, without a message", False, "assert n_obs_steps == "),
    "vqbet": (("front",), "RuntimeError: stack expects a non-empty TensorList", True, "batch = {k: torch.stack("),
}
TICKS = 60  # until the client is ended: its first observation has failed by then, and a wait of 0.3 s is over


@pytest.fixture
def robot(monkeypatch):
    yield from watched_robot(monkeypatch)


def load_failure(folder: Path, kind: str) -> tuple[RolloutResult, Failure]:
    (run,) = folder.iterdir()
    result = store.load(run)
    assert isinstance(result, RolloutResult)
    assert result.rollout.remote is not None
    (failure,) = result.rollout.remote.failures
    (finding,) = [finding for finding in result.findings if finding.rule == "requests-fail"]
    assert finding.level == "warning"
    assert (failure.place or "nothing") in finding.found
    assert f"runs {kind} with lerobot-rollout" in finding.do
    return result, failure


@pytest.mark.slow("LeRobot's server and client as programs")
@pytest.mark.parametrize("kind", matrix(list(RAISED)))
def test_a_policy_of_several_observations_behind_the_server_names_its_exception_on_both_sides(
    kind: str, robot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cameras, error, logged, source = RAISED[kind]
    monkeypatch.setattr(f"{robot.__module__}.CAMERAS", cameras)
    tiny_for_robot(kind, tmp_path / kind, 6, cameras, 64)
    monkeypatch.chdir(tmp_path)  # LeRobot's client makes a folder of logs when it is imported

    def terminate_at_tick(tick: int) -> None:
        if tick == TICKS:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(robot, "before", staticmethod(terminate_at_tick))
    previous = signal.getsignal(signal.SIGTERM)
    with watched_server(tmp_path, "--obs_queue_timeout=0.3") as (process, port):
        wait_for_port(port, process)
        try:
            given = client_arguments(tmp_path, port, kind)
            code = main(["rollout", f"--output_dir={tmp_path / 'runs'}", "--", CLIENT, *given])
        finally:
            signal.signal(signal.SIGTERM, previous)
        process.send_signal(signal.SIGTERM)
        ended = process.wait_for_end(300)
    printed = ended.stdout + ended.stderr
    assert (code, ended.returncode) == (0, 0), printed

    served, failure = load_failure(tmp_path / "served", kind)
    assert failure.error == error
    assert ("Error in StreamActions: \n" not in printed) is logged, "LeRobot logs the message alone"
    assert failure.place.startswith(f"lerobot.policies.{kind}.modeling_{kind}.")
    assert failure.source.startswith(source)
    assert served.rollout.sentence == "The server made no chunk: its only request failed."
    assert "interrupted before anything was measured" not in printed

    client, told = load_failure(tmp_path / "runs", kind)
    assert told == failure, "a watched server tells its client"
    assert client.rollout.remote is not None
    assert client.rollout.remote.empty > 1, "after it, waits that were over"
    kind_of_error = error.partition(":")[0].partition(",")[0]
    assert f"1 request for a chunk failed in the policy server: {kind_of_error}" in capsys.readouterr().out


def test_a_server_that_cannot_load_the_policy_says_so_on_both_sides(
    robot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    with watched_server(tmp_path) as (process, port):
        wait_for_port(port, process)
        given = client_arguments(tmp_path, port, "xvla")
        assert main(["rollout", "--", CLIENT, *given]) == 1
        process.send_signal(signal.SIGTERM)
        ended = process.wait_for_end(300)
    printed = ended.stdout + ended.stderr
    error = capsys.readouterr().err
    assert f"the policy server at 127.0.0.1:{port} refused the policy: UNKNOWN: " in error
    assert "Policy type xvla not supported" in error
    assert ended.returncode == 1
    assert "strobe: SendPolicyInstructions failed: ValueError: Policy type xvla not supported" in printed
    assert "(lerobot.async_inference.policy_server.PolicyServer.SendPolicyInstructions, line " in printed
