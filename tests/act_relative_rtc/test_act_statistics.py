"""The statistics are those of what training sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


@pytest.mark.parametrize(("chunk_size", "frames"), [(6, 1), (12, 3)])
def test_they_equal_a_walk_over_the_training_samples(make, dataset, chunk_size, frames):
    from lerobot.datasets.factory import resolve_delta_timestamps
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot_policy_act_relative_rtc import ACTRelativeRTCPolicy

    config = make(state=2, action=3, chunk_size=chunk_size, obs_state_delta_frames=frames)[0].config
    plain = LeRobotDataset("local/walks", root=dataset)
    samples: Any = LeRobotDataset(
        "local/walks", root=dataset, delta_timestamps=resolve_delta_timestamps(config, plain.meta)
    )
    relative, changes = [], []
    for sample in samples:
        before, state = sample["observation.state"].double()
        changes.append(state - before)
        actions = sample["action"].double()[~sample["action_is_pad"]]
        relative.append(torch.cat([actions[:, :2] - state, actions[:, 2:]], dim=1))
    policy = ACTRelativeRTCPolicy(config, dataset_stats=plain.meta.stats, dataset_meta=plain.meta)
    for values, name in ((torch.cat(relative), "action"), (torch.stack(changes), "delta")):
        torch.testing.assert_close(getattr(policy, f"{name}_mean").double(), values.mean(0), rtol=1e-5, atol=1e-6)
        std = values.std(0, correction=0)
        torch.testing.assert_close(getattr(policy, f"{name}_std").double(), std, rtol=1e-5, atol=1e-6)


def test_a_dataset_without_its_files_is_told_in_one_line(make, tmp_path):
    from types import SimpleNamespace

    from lerobot_policy_act_relative_rtc import ACTRelativeRTCPolicy

    with pytest.raises(ValueError, match=r"^act_relative_rtc computes its statistics from .* download .*$"):
        ACTRelativeRTCPolicy(make()[0].config, dataset_meta=SimpleNamespace(root=tmp_path))


def test_bounds_are_not_below_any_true_value():
    from lerobot_policy_act_relative_rtc import statistics

    random = np.random.default_rng(0)
    states = random.normal(size=(500, 2)).cumsum(0)
    actions = np.concatenate([-states, random.normal(size=(500, 1))], axis=1)
    stats = {k: {"mean": v.mean(0), "std": v.std(0)} for k, v in (("observation.state", states), ("action", actions))}
    found = statistics.bounds(stats)
    relative = actions - np.pad(states, ((0, 0), (0, 1)))
    np.testing.assert_allclose(found.action_mean, relative.mean(0))
    assert (found.action_std >= relative.std(0) - 1e-12).all()
    assert (found.delta_std >= (states[1:] - states[:-1]).std(0)).all()


def test_what_never_changes_is_not_divided_by_its_spread():
    from lerobot_policy_act_relative_rtc import statistics

    still = {"mean": np.ones(2), "std": np.zeros(2)}
    found = statistics.bounds({"observation.state": still, "action": still})
    assert (found.action_std == 1).all()
    assert (found.delta_std == 1).all()
