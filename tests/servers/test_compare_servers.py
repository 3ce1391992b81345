"""`strobe compare` of two policy servers, and of a server against a policy on this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.servers.openpi_server import Policy, actions, array, serving

from strobe.commands import compare
from strobe.core.cli.main import main
from strobe.core.errors import UserError

A = "--policy.server=ws://127.0.0.1:9"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ([A], "name the second server"),
        ([A, "--against.server=http://x"], r"--against\.server=http://x: Strobe knows no such protocol"),
        ([A, "--against.server=grpc://x:1"], r"add --against\.path"),
        ([A, "--against.path=x"], r"add --dataset\.root"),
        ([A, "--against.server=ws://x", "--compile=true"], "unknown flag --compile"),
        ([A, "--against.server=ws://x", "--control_hz=3"], "unknown flag --control_hz"),
        (["--against.server=ws://x"], r"name the policy server: --policy\.server"),
    ],
)
def test_flags_that_do_not_fit_are_a_line(flags: list[str], why: str):
    with pytest.raises(UserError, match=why):
        compare.run(flags)


def run_comparison(tmp_path: Path, first: Policy, second: Policy, *flags: str) -> dict[str, Any]:
    with serving(first) as a, serving(second) as b:
        argv = ["compare", f"--policy.server={a}", f"--against.server={b}", f"--output_dir={tmp_path / 'runs'}"]
        assert main([*argv, "--image_size=16x16", *flags]) == 0
    (kept,) = (tmp_path / "runs").glob("*/result.json")
    return json.loads(kept.read_text())


@pytest.mark.slow("two real servers for as long as a verdict takes", each_change=True)
def test_the_slower_of_two_servers_is_named_and_their_actions_are_compared(tmp_path: Path):
    # Two processes need 4 s of taking turns for a verdict on their times.
    shifted = {"actions": array(np.linspace(-1, 1, 70).reshape(10, 7) + 0.25)}
    first, second = Policy(infer_s=0.1), Policy(infer_s=0.5, answer=lambda *_: dict(shifted))
    result = run_comparison(tmp_path, first, second, "--iterations=7")
    (comparison,) = result["comparisons"]
    assert comparison["verdict"]["kind"] == "slower"
    assert comparison["agreement"]["largest_error"] == pytest.approx(0.25)
    # Both got the same observations.
    state = "observation/state"
    assert {seen[state][b"data"] for seen in first.seen} == {seen[state][b"data"] for seen in second.seen}
    assert result["machine"]["cores"] > 0
    assert any("protocol of openpi; its metadata: robot: stand-in" in note for note in result["notes"])


@pytest.mark.parametrize("answer", ["KeyError: 'image'", {"actions": array(np.full((10, 7), np.inf))}])
def test_a_server_that_fails_is_a_line(answer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def fails(seen: dict[str, Any], number: int) -> dict[str, Any] | str:
        return actions() if number < 5 else answer

    with serving(Policy()) as a, serving(Policy(answer=fails)) as b:
        flags = [f"--policy.server={a}", f"--against.server={b}", f"--output_dir={tmp_path}", "--image_size=16x16"]
        assert main(["compare", *flags]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert b in last
    assert ("KeyError: 'image'" if isinstance(answer, str) else "70 of 70 actions are NaN or infinite") in last


def test_a_server_is_compared_with_a_policy_on_this_machine(tmp_path: Path):
    pytest.importorskip("grpc", reason="Strobe's extra 'remote' is missing")
    from support.builders.checkpoints import tiny_for_robot
    from support.servers.lerobot_server import Policy as Served
    from support.servers.lerobot_server import serving as lerobot_serving

    from strobe.core.measure.sampling import SamplingBudget
    from strobe.core.studies.shared.progress import Silent
    from strobe.lerobot.policies.loading import load_subject
    from strobe.lerobot.policies.options import PolicyOptions
    from strobe.servers.compare import LocalSide, ServerSide, compare_servers
    from strobe.servers.protocols.connect import connect
    from strobe.servers.protocols.lerobot_messages import ServedPolicy
    from strobe.servers.protocols.observations import ObservationOptions, Source

    tiny_for_robot("act", tmp_path / "act", 6, ("top",), 32)
    image = np.full((32, 32, 3), 90, np.uint8)
    frame = {"observation.images.top": image, "observation.state": np.linspace(-1, 1, 6, dtype=np.float32), "task": "x"}
    source = Source(ObservationOptions(dataset=tmp_path), [frame])
    subject = load_subject(PolicyOptions(path=str(tmp_path / "act")))

    def serve_slowly(observation: dict[str, Any], number: int) -> Any:
        time.sleep(0.05)
        batch = {name: value for name, value in observation.items() if name != "task"}
        return subject.answer({**batch, "task": "x", "robot_type": ""}, 0)

    policy = ServedPolicy(str(tmp_path / "act"))
    with lerobot_serving(Served(answer=serve_slowly), tmp_path) as url, connect(url, 20.0, policy) as wire:
        first = ServerSide(wire, source)
        sides = {"server": first, "here": LocalSide(subject, source.frames)}
        budget = SamplingBudget(iterations=8, seconds=30.0)
        result = compare_servers(sides, first.observations, budget, 0.02, Silent())
    (comparison,) = result.comparisons
    assert comparison.verdict.sentence.startswith(
        "Inconclusive: `here` against `server` needs 4 s of turns"
    )  # well below 4 s of taking turns
    assert comparison.verdict.ratio < 1
    assert comparison.agreement is not None
    assert comparison.agreement.largest_error < 1e-4
