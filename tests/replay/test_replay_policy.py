"""A real rollout with a tiny policy, kept with its observations, and replayed.

The policy is asked what LeRobot's engine would ask it, on what the robot saw.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.utils.feature_utils import build_dataset_frame
from support.builders.checkpoints import tiny_checkpoint
from support.suite.places import TESTS

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.lerobot.policies.standins import stand_ins
from strobe.loops.files import EVENTS, OBSERVATIONS
from strobe.loops.observations import Observations
from strobe.loops.recorded_run import load
from strobe.loops.virtual_rollout import Setting
from strobe.loops.virtual_time import PlayOptions, play
from strobe.replay.policy import fed_policy, merge_arguments
from strobe.replay.results import ReplayResult

ROBOT = TESTS / "support" / "robot"
HORIZON = 10


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a rollout of two seconds with Real-Time Chunking and --observations."""
    root = tmp_path_factory.mktemp("replayed")
    tiny_checkpoint("smolvla", root / "policy")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.syspath_prepend(str(ROBOT))
        __import__("lerobot_robot_dummy")
        stack.enter_context(stand_ins("smolvla", random_weights=True, tiny=True))
        given = [
            "--robot.type=dummy", "--robot.id=test", f"--robot.calibration_dir={root}",
            f"--policy.path={root / 'policy'}", "--device=cpu", "--task=push", "--return_to_initial_position=false",
            "--play_sounds=false", "--duration=2", "--inference.type=rtc", "--inference.queue_threshold=45",
            f"--inference.rtc.execution_horizon={HORIZON}",
        ]  # fmt: skip
        assert main(["rollout", "--observations", "--bench=false", f"--output_dir={root / 'runs'}", "--", *given]) == 0
        (folder,) = (root / "runs").iterdir()
        yield folder


def test_a_rollout_leaves_its_events_and_what_the_robot_saw(run):
    lines = gzip.decompress((run / EVENTS).read_bytes()).decode().splitlines()
    header = json.loads(lines[0])
    assert header["task"] == "push"
    assert Path(header["policy"]).is_absolute()
    assert header["rtc"]["execution_horizon"] == HORIZON
    ticks = [event[1] for line in lines[1:] for event in json.loads(line) if event[0] == "tick"]
    observations = Observations(run / OBSERVATIONS)
    assert len(observations.times) > 5  # a busy machine drops some
    assert set(observations.times) <= set(ticks), "stamped with the tick that they belong to"
    observation, _ = observations.latest_observation(ticks[-1])
    assert {"joint_0.pos", "front", "wrist"} <= set(observation)
    assert observation["front"].shape == (64, 64, 3)
    assert any("observations of" in note for note in store.load(run).notes)


def test_the_policy_gets_what_lerobots_engine_would_give_it(run):
    found = load(run)
    assert found.observations is not None
    observations = Observations(found.observations)
    inputs = fed_policy(found.header, [], observations, found.origin).inputs
    setting = Setting("rtc", 30.0, threshold=45, rtc=(found.header.rtc or {}) | {"execution_horizon": 20})
    played = play(
        found.beats, setting, itertools.repeat(95_000_000), inputs, PlayOptions(until_ns=found.span_ns, seed=7)
    )
    first, second = played.calls[:2]
    assert (first.assumed, second.assumed) == (0, 3)
    by_chunk = [[a.values for a in played.actions if a.chunk == chunk] for chunk in (1, 2)]

    def chunk(call, seed: int, **rtc):
        """One call by hand, on the observation that was the latest when it began."""
        told = max(t for t in (tick.start_ns for tick in played.ticks) if t + found.beats[0].notify_ns <= call.start_ns)
        raw, _ = observations.latest_observation(found.origin + told + 1_000_000)
        frame = build_dataset_frame(inputs.hw_features, raw, prefix="observation")
        batch = prepare_observation_for_inference(frame, torch.device("cpu"), "push", "dummy") | {"task": ["push"]}
        torch.manual_seed(seed)
        made = inputs.policy.predict_action_chunk(inputs.preprocessor(batch), **rtc)
        return made.squeeze(0).clone(), inputs.postprocessor(made).squeeze(0)

    made, sent = chunk(first, 7, inference_delay=0, prev_chunk_left_over=None)
    assert first.dropped == 3
    torch.testing.assert_close(torch.tensor(by_chunk[0]), sent[3 : 3 + len(by_chunk[0])])
    begun = len(by_chunk[0]) - (second.executed or 0)  # actions of the first chunk that were gone when the second began
    left = made[3 + begun :][:20]
    assert inputs.policy.rtc_processor.rtc_config.execution_horizon == 20, "guided as asked, not as it was loaded"
    _, sent = chunk(second, 8, inference_delay=3, prev_chunk_left_over=left)
    torch.testing.assert_close(torch.tensor(by_chunk[1]), sent[3 : 3 + len(by_chunk[1])], rtol=1e-4, atol=1e-4)


@pytest.mark.slow("a rollout's policy called under three settings")
def test_seams_are_foretold_with_the_real_policy(run, tmp_path, capsys):
    out = tmp_path / "runs"
    flags = ["--policy.num_steps=1", "--inference.rtc.execution_horizon=20", "--latency=100", "--draws=2"]
    assert main(["replay", str(run), *flags, "--full", f"--output_dir={out}"]) == 0
    (folder,) = out.iterdir()
    result = store.load_answer(folder)
    assert isinstance(result, ReplayResult)
    assert result.policy is not None
    assert result.policy.oldest_ms >= 0
    asked = result.column("as asked")
    assert asked is not None
    assert len(asked.jumps) == 6
    assert asked.settings["policy.num_steps"] == "1"
    assert asked.settings["inference.rtc.execution_horizon"] == "20"
    assert "JUMPS BETWEEN CHUNKS" in capsys.readouterr().out


def test_a_policy_that_is_gone_is_a_line(run, capsys):
    assert main(["replay", str(run), "--policy.path=/nowhere", "--draws=1"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("strobe: ")
    assert "/nowhere" in error


def test_arguments_are_changed_by_name():
    recorded = ["--fps", "30", "--inference.type=rtc", "--inference.rtc.execution_horizon=10"]
    assert merge_arguments(recorded, ["--fps=20"]) == ["--fps=20", *recorded[2:]]
    assert merge_arguments(recorded, ["--inference.type=sync"]) == ["--fps=30", "--inference.type=sync"]


@pytest.fixture
def strangers(run, tmp_path):
    """Make a run folder as a stranger may send it: its header as ``changed``, and what it would run writes a file."""

    def make(**changed) -> tuple[Path, Path]:
        folder, done = tmp_path / "sent", tmp_path / "done"
        evil = tmp_path / "evil"
        shutil.copytree(run, folder)
        shutil.copytree(Path(load(run).header.policy), evil)
        steps = {
            "name": "policy_preprocessor",
            "steps": [{"class": "subprocess.Popen", "config": {"args": ["touch", str(done)]}}],
        }
        (evil / "policy_preprocessor.json").write_text(json.dumps(steps))
        (tmp_path / "evil_plugin.py").write_text(f"open({str(done)!r}, 'w')")
        header, _, events = gzip.decompress((folder / EVENTS).read_bytes()).partition(b"\n")
        header = json.dumps(json.loads(header) | {"policy": str(evil)} | changed).encode()
        (folder / EVENTS).write_bytes(gzip.compress(header + b"\n" + events))
        return folder, done

    return make


def test_a_strangers_run_names_no_policy(strangers, run, tmp_path, capsys):
    """It is replayed as far as its events go; its policy is loaded where the user names one."""
    folder, done = strangers()
    assert main(["replay", str(folder), "--draws=2", f"--output_dir={tmp_path / 'out'}"]) == 0
    (saved,) = (tmp_path / "out").iterdir()
    result = store.load_answer(saved)
    assert isinstance(result, ReplayResult)
    assert result.policy is None
    assert any("not recorded by you" in note for note in result.notes)
    assert main(["replay", str(folder), "--task=push"]) == 2
    assert f"--policy.path={tmp_path / 'evil'}" in capsys.readouterr().err
    assert not done.exists()


def test_a_strangers_arguments_are_settings_alone(strangers, run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = [
        *load(run).header.arguments,
        "--policy.discover_packages_path=evil_plugin",
        "--robot.discover_packages_path=evil_plugin",
    ]
    folder, done = strangers(arguments=arguments)
    own = load(run).header.policy
    out = tmp_path / "out"
    assert main(["replay", str(folder), "--draws=2", "--calls=4", f"--policy.path={own}", f"--output_dir={out}"]) == 0
    (saved,) = out.iterdir()
    result = store.load_answer(saved)
    assert isinstance(result, ReplayResult)
    assert result.policy is not None
    assert not done.exists()


def test_ones_own_run_is_known_by_its_seal_alone(run):
    header = load(run).header
    assert header.is_own
    for changed in (
        {"policy": "somebody/else"},
        {"arguments": []},
        {"made": ["--policy.type=act"]},
        {"seal": ""},
        {"seal": "é\ud800"},
    ):
        assert not dataclasses.replace(header, **changed).is_own
