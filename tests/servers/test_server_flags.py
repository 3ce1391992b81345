"""`strobe breakdown --policy.server`: its flags, what it sends, and what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.servers.openpi_server import TRACEBACK, Policy, serving

from strobe.commands import breakdown
from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.sweep import command as sweep

URL = "--policy.server=ws://127.0.0.1:9"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--policy.type=act"], "--policy.type is for LeRobot's server"),
        (["--policy.n_action_steps=3"], "--policy.n_action_steps is for a policy on this machine"),
        (["--model.type=vjepa2"], "--model.type is for a policy on this machine"),
        (["--phases=[inference]"], "unknown flag --phases"),
        (["--contol_hz=50"], "did you mean --control_hz"),
        (["--timeout=0"], "--timeout=0.0: must be above 0"),
        (["--control_hz=inf"], "must be a finite number"),
        (["--image_size=big"], "must be HEIGHTxWIDTH"),
        (["--rename_map={a: b}"], "add --dataset.root"),
        (["--dataset.root=x", "--policy.observation=y.npz"], "remove one of the two"),
        (["--dataset.root=x", "--image_size=8x8"], "is for synthetic images"),
    ],
)
def test_flags_that_do_not_fit_are_a_line(flags: list[str], why: str):
    with pytest.raises(UserError, match=why.replace("(", r"\(")):
        breakdown.run([URL, *flags])


def test_an_observation_without_a_server_is_a_line():
    with pytest.raises(UserError, match=r"name the policy server: --policy\.server"):
        breakdown.run(["--policy.observation=x.npz"])


def test_another_command_takes_no_server(capsys: pytest.CaptureFixture[str]):
    assert main(["optimize", URL]) == 2
    assert "--policy.server is for strobe breakdown and compare: strobe optimize runs" in capsys.readouterr().err


def test_a_sweep_takes_no_server():
    with pytest.raises(UserError, match="strobe sweep runs the policy on this machine"):
        sweep.run(["breakdown", URL, "--grid=seed=1,2"])


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--dataset.root=nowhere"], "no LeRobotDataset at nowhere"),
        (["--policy.observation=nowhere.npz"], "nowhere.npz cannot be read: No such file"),
        (["--policy.observation=x.pt"], "ends in .json or .npz"),
    ],
)
def test_observations_that_cannot_be_read_are_a_line(flags: list[str], why: str, capsys: pytest.CaptureFixture[str]):
    assert main(["breakdown", URL, *flags]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("strobe: ")
    assert why in last


def run(tmp_path: Path, policy: Policy, *flags: str) -> dict:
    with serving(policy) as url:
        argv = ["breakdown", f"--policy.server={url}", "--iterations=6", f"--output_dir={tmp_path / 'runs'}", *flags]
        assert main(argv) == 0
    (kept,) = (tmp_path / "runs").glob("*/result.json")
    assert (kept.parent / "report.html").is_file()
    return json.loads(kept.read_text())


def test_a_server_that_fails_at_every_call_ends_with_an_exit_code(tmp_path: Path):
    def answer(seen: dict, number: int) -> str:
        return TRACEBACK

    with serving(Policy(answer=answer)) as url:
        assert main(["breakdown", f"--policy.server={url}", f"--output_dir={tmp_path / 'runs'}"]) == 1
    (kept,) = (tmp_path / "runs").glob("*/result.json")
    assert json.loads(kept.read_text())["status"] == "failed"


def test_lerobots_server_needs_a_policy():
    with pytest.raises(UserError, match=r"add --policy\.path"):
        breakdown.run(["--policy.server=grpc://127.0.0.1:9"])


def test_a_template_is_sent(tmp_path: Path):
    template = {
        "images": {"cam_high": {"shape": [3, 20, 24], "dtype": "uint8"}},
        "state": [0, 1.5],
        "extra": {"shape": [2, 2]},
        "prompt": "fold",
    }
    (tmp_path / "observation.json").write_text(json.dumps(template))
    policy = Policy()
    flag = f"--policy.observation={tmp_path / 'observation.json'}"
    result = run(tmp_path, policy, flag, "--prompt=unfold", "--control_hz=20")
    seen = policy.seen[0]
    assert seen["images"]["cam_high"][b"shape"] == [3, 20, 24]
    assert np.frombuffer(seen["state"][b"data"], "<f4").tolist() == [0, 1.5]
    assert (seen["extra"][b"dtype"], seen["prompt"]) == ("<f4", "unfold")
    assert [image["name"] for image in result["images"]] == ["images.cam_high"]
    assert result["age"]["chunk_ms"] == 500
    # Random numbers are no photograph.
    assert [each["kind"] for each in result["encodings"]] == ["as sent"]
    assert any("JPEG" in line for line in result["not_judged"])


def test_arrays_of_a_file_are_sent_and_larger_images_are_tried_smaller(tmp_path: Path):
    ramp = np.broadcast_to(np.linspace(0, 255, 640).astype(np.uint8)[None, :, None], (480, 640, 3))
    np.savez(tmp_path / "frame.npz", **{"observation/image": ramp, "prompt": np.array("fold")})
    policy = Policy()
    result = run(tmp_path, policy, f"--policy.observation={tmp_path / 'frame.npz'}")
    assert policy.seen[0]["observation/image"][b"data"] == ramp.tobytes()
    assert policy.seen[0]["prompt"] == "fold"
    kinds = {each["kind"]: each["payload_bytes"] for each in result["encodings"]}
    assert list(kinds) == ["as sent", "JPEG", "resized", "resized, then JPEG"]
    assert kinds["as sent"] > 480 * 640 * 3 > 224 * 224 * 3 + 500 > kinds["resized"] > 224 * 224 * 3
    assert kinds["JPEG"] < kinds["as sent"] / 10


@pytest.mark.parametrize(
    "template",
    ["[]", "{", '{"x": {"shape": [0]}}', '{"x": {"shape": [3], "dtype": "object"}}', '{"x": {"shape": [1e3]}}',
     '{"x": {"shape": [100000, 100000]}}', '{"x": ["a"]}', '{"x": {"shape": 3}}', '{"x": [[1], {}]}'],
)  # fmt: skip
def test_a_template_that_says_no_array_is_a_line(template: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "observation.json").write_text(template)
    assert main(["breakdown", URL, f"--policy.observation={tmp_path / 'observation.json'}"]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("strobe: --policy.observation")


def test_neither_torch_nor_lerobot_is_imported(tmp_path: Path):
    code = (
        "import sys\nfrom strobe.core.cli.main import main\n"
        f"main(['breakdown', sys.argv[1], '--iterations=6', '--output_dir={tmp_path}'])\n"
        "assert not {'torch', 'lerobot'} & set(sys.modules)"
    )
    with serving(Policy()) as url:
        subprocess.run([sys.executable, "-c", code, f"--policy.server={url}"], check=True, capture_output=True)


def test_the_help_has_its_flags(capsys: pytest.CaptureFixture[str]):
    assert main(["breakdown", "--help=all"]) == 0
    text = capsys.readouterr().out
    assert "--policy.server=ws://HOST:PORT" in text
    assert "--control_hz" in text
