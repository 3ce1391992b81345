"""A LeRobot plug-in that nobody here has seen: installed, found by its type, cut along its modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strobe.core.runs import store

CONFIGURATION = """
from dataclasses import dataclass, field
from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamConfig

@PreTrainedConfig.register_subclass("never_seen")
@dataclass
class NeverSeenConfig(PreTrainedConfig):
    chunk_size: int = 8
    width: int = 32
    normalization_mapping: dict[str, NormalizationMode] = field(default_factory=lambda: {
        "STATE": NormalizationMode.MEAN_STD, "ACTION": NormalizationMode.MEAN_STD,
        "VISUAL": NormalizationMode.IDENTITY})
    observation_delta_indices = None
    reward_delta_indices = None

    @property
    def action_delta_indices(self):
        return list(range(self.chunk_size))

    def get_optimizer_preset(self):
        return AdamConfig()

    def get_scheduler_preset(self):
        return None

    def validate_features(self):
        pass
"""

MODELING = """
import torch
from torch import nn
from lerobot.policies.pretrained import PreTrainedPolicy
from .configuration_never_seen import NeverSeenConfig

class Oracle:
    # No module, so that what it holds is registered nowhere; as large as weights that are filled in late.

    def __init__(self, width):
        self.layers = [nn.Linear(width, 1 << 15), nn.Linear(1 << 15, width)]

    def __call__(self, seen):
        for layer in self.layers:
            seen = layer(seen)
        return seen

class NeverSeenPolicy(PreTrainedPolicy):
    config_class = NeverSeenConfig
    name = "never_seen"

    def __init__(self, config, **kwargs):
        super().__init__(config)
        self.trunk = nn.Sequential(nn.Linear(config.robot_state_feature.shape[0], config.width), nn.ReLU())
        self.head = nn.Linear(config.width, config.chunk_size * config.action_feature.shape[0])
        self.oracle = Oracle(config.width)

    def get_optim_params(self):
        return self.parameters()

    def reset(self):
        pass

    def predict_action_chunk(self, batch, **kwargs):
        actions = self.head(self.oracle(self.trunk(batch["observation.state"])))
        return actions.view(len(actions), self.config.chunk_size, -1)

    def select_action(self, batch, **kwargs):
        return self.predict_action_chunk(batch)[:, 0]

    def forward(self, batch):
        loss = (self.predict_action_chunk(batch) - batch["action"]).pow(2).mean()
        return loss, {}
"""

PROCESSOR = """
from lerobot.processor import make_default_policy_processor_steps, make_policy_processor_pipelines

def make_never_seen_pre_post_processors(config, dataset_stats=None):
    steps = make_default_policy_processor_steps(config, dataset_stats)
    return make_policy_processor_pipelines(
        input_steps=[steps.rename_observations, steps.add_batch_dim, steps.to_device, steps.normalize],
        output_steps=[steps.unnormalize, steps.to_cpu])
"""


def install(folder: Path) -> None:
    """A package as an installer leaves it: the module, and a dist-info that names it."""
    package = folder / "lerobot_policy_never_seen"
    package.mkdir()
    (package / "__init__.py").write_text("from .configuration_never_seen import NeverSeenConfig\n")
    (package / "configuration_never_seen.py").write_text(CONFIGURATION)
    (package / "modeling_never_seen.py").write_text(MODELING)
    (package / "processor_never_seen.py").write_text(PROCESSOR)
    info = folder / "lerobot_policy_never_seen-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lerobot_policy_never_seen\nVersion: 1.0\n")


@pytest.mark.slow("a cold start of the real console script", each_change=True)
def test_a_plug_in_is_found_and_cut_along_its_modules(tmp_path):
    """A true cold start of strobe's own program, as in a user's shell."""
    install(tmp_path)
    command = [
        Path(sys.executable).with_name("strobe"), "breakdown", "--policy.type=never_seen", "--policy.width=16",
        "--iterations=5", "--phases=[inference, training step]", f"--output_dir={tmp_path / 'runs'}",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("result.json")
    result = store.load(file)
    assert result.subject.anatomy == "modules"
    assert result.subject.parameters > 2 * 16 * 2**15  # with those that only an object of the plug-in's own holds
    for measurement in result.measurements:
        assert {"trunk", "oracle.layers.0", "head", "other"} <= {part.name for part in measurement.components}
