"""LeRobot finds the policy, trains it, loads it and runs it with RTC."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.rollout.inference.rtc import RTCInferenceEngine, supports_rtc_inference
from support.suite import warm
from support.suite.places import ROOT

SOURCE = ROOT / "packages" / "lerobot_policy_act_relative_rtc" / "src"


@pytest.fixture(scope="module")
def checkpoint(dataset, tmp_path_factory) -> Path:
    """What ``lerobot-train`` leaves, with the plug-in found as an installed one is: by the name of its metadata."""
    folder = tmp_path_factory.mktemp("train")
    info = folder / "site" / "lerobot_policy_act_relative_rtc-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lerobot_policy_act_relative_rtc\nVersion: 0.1.0\n")
    policy = {
        "type": "act_relative_rtc", "device": "cpu", "push_to_hub": "false", "chunk_size": 12, "rtc_max_delay": 4,
        "delay_training": "packed", "prefix_attention": "one_way", "obs_state_delta_frames": 2, "dim_model": 32,
        "dim_feedforward": 64, "n_encoder_layers": 2, "n_vae_encoder_layers": 1, "latent_dim": 4, "kl_weight": 0.1,
        "optimizer_lr": 3e-3,
    }  # fmt: skip
    arguments = [
        *(f"--policy.{k}={v}" for k, v in policy.items()),
        "--dataset.repo_id=local/walks", f"--dataset.root={dataset}", "--steps=60", "--log_freq=10", "--batch_size=8",
        "--num_workers=0", "--seed=0", f"--output_dir={folder / 'out'}", "--wandb.enable=false",
    ]  # fmt: skip
    paths = [str(info.parent), str(SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = warm.run("-m", "lerobot.scripts.lerobot_train", *arguments, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(loss) for loss in re.findall(r"l1_loss:([\d.]+)", done.stderr + done.stdout)]
    assert losses[-1] < 0.6 * losses[0], losses
    (found,) = (folder / "out" / "checkpoints").glob("0*/pretrained_model")
    return found


@pytest.fixture
def loaded_policy(checkpoint):
    import lerobot_policy_act_relative_rtc  # noqa: F401

    config = PreTrainedConfig.from_pretrained(checkpoint)
    config.pretrained_path = checkpoint
    policy = get_policy_class(config.type).from_pretrained(checkpoint, config=config)
    return policy, *make_pre_post_processors(config, pretrained_path=str(checkpoint))


@pytest.mark.slow("a training by lerobot-train, and its checkpoint")
def test_a_checkpoint_holds_the_statistics_and_the_same_policy(loaded_policy, tmp_path):
    policy, _, _ = loaded_policy
    assert all(
        getattr(policy, f"{what}_{which}").isfinite().all() for what in ("action", "delta") for which in ("mean", "std")
    )
    policy.save_pretrained(tmp_path)
    again = type(policy).from_pretrained(tmp_path)
    for name, value in policy.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    seen = {"observation.state": torch.randn(1, 2, 2), "observation.environment_state": torch.randn(1, 2)}
    prefix = torch.randn(1, 3, 3)
    assert torch.equal(policy.predict_action_chunk(seen, 3, prefix), again.predict_action_chunk(seen, 3, prefix))


def test_what_was_learnt_is_where_the_robot_goes(loaded_policy, dataset):
    """At 1000 units from any state it was trained at: only relative values can know."""
    policy, _, _ = loaded_policy
    speed = torch.tensor([[1.0, -1.0]])
    state = torch.full((1, 2), 1000.0)
    seen = {"observation.state": torch.stack([state - 2 * speed, state], 1), "observation.environment_state": speed}
    chunk = policy.predict_action_chunk(seen)
    assert ((chunk[0, 0, :2] - state[0]).abs() < 8).all()


def test_the_processors_normalise_images_and_leave_states_and_actions(make):
    from lerobot_policy_act_relative_rtc import make_act_relative_rtc_pre_post_processors

    policy, _ = make(image=32)
    image = {"mean": torch.full((3, 1, 1), 0.5), "std": torch.full((3, 1, 1), 0.25)}
    wrong = {"mean": torch.ones(3), "std": torch.ones(3)}
    before, after = make_act_relative_rtc_pre_post_processors(
        policy.config, {"observation.images.top": image, "observation.state": wrong}
    )
    out = before({"observation.images.top": torch.rand(3, 32, 32), "observation.state": torch.randn(3), "task": "t"})
    assert out["observation.images.top"].shape == (1, 3, 32, 32)
    assert out["observation.images.top"].min() < -1
    assert out["observation.state"].shape == (1, 3)
    state = torch.randn(1, 3)
    assert torch.equal(before({"observation.state": state})["observation.state"], state)
    action = torch.randn(1, 6, 4)
    assert torch.equal(after(action), action)


@pytest.mark.slow("LeRobot's own engine in real time")
def test_the_rollouts_rtc_engine_continues_each_chunk(loaded_policy):
    policy, before, after = loaded_policy
    assert supports_rtc_inference(policy)
    names = {"observation.state": ["x.pos", "y.pos"], "observation.environment_state": ["u.pos", "v.pos"]}
    features = {k: {"dtype": "float32", "shape": (2,), "names": n} for k, n in names.items()}
    calls, predict = [], policy.predict_action_chunk

    def record_call(batch, **options):
        chunk = predict(batch, **options)
        calls.append((options["inference_delay"], options["prev_chunk_left_over"], chunk))
        return chunk

    policy.predict_action_chunk = record_call
    robot: Any = SimpleNamespace(robot_type="none", action_features={})  # all that the engine asks of one
    engine = RTCInferenceEngine(
        policy, before, after, robot, RTCConfig(execution_horizon=10),
        features, task="walk", fps=20, device="cpu", rtc_queue_threshold=8,
    )  # fmt: skip
    engine.start()
    engine.reset()
    engine.notify_observation({"x.pos": 1.0, "y.pos": 2.0, "u.pos": 1.0, "v.pos": 0.5})
    engine.resume()
    actions, end = [], time.monotonic() + 200
    while len(calls) < 5 and time.monotonic() < end and not engine.failed:
        time.sleep(0.05)
        action = engine.get_action(None)
        if action is not None:
            actions.append(action)
    engine.stop()
    assert not engine.failed
    assert len(actions) > 3
    assert calls[0][1] is None
    continued = [(min(delay, 4, len(left)), left, chunk) for delay, left, chunk in calls[1:]]
    assert any(delay for delay, _, _ in continued)
    for delay, left, chunk in continued:
        assert torch.equal(chunk[0, :delay], left[:delay])


def test_a_policy_without_rtc_is_refused_by_the_rtc_engine(make):
    assert not supports_rtc_inference(make(use_rtc=False)[0])


def test_random_weights_can_be_built_fast(make):
    """As Strobe does it: large tensors are made on the meta device first. The statistics are there afterwards."""
    from lerobot_policy_act_relative_rtc import ACTRelativeRTCPolicy

    from strobe.lerobot.policies.build import build_fast

    config = make(image=32)[0].config
    stats = {
        key: {"mean": torch.full((n,), 2.0), "std": torch.full((n,), 3.0)}
        for key, n in (("action", 4), ("observation.state", 3))
    }
    policy: Any = build_fast(lambda: ACTRelativeRTCPolicy(config, dataset_stats=stats), above=1 << 10)
    assert policy.action_mean.tolist() == [0, 0, 0, 2]
    assert policy.action_std.tolist() == [6, 6, 6, 3]
    seen = {"observation.images.top": torch.rand(1, 3, 32, 32), "observation.state": torch.randn(1, 3)}
    assert policy.predict_action_chunk(seen).isfinite().all()
