"""Tiny policies of random weights, saved as LeRobot saves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from lerobot.configs.types import FeatureType, PolicyFeature

from strobe.core.results.recipe import Recipe
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.policy_subject import PolicySubject
from support.builders.tiny_policies import load_tiny_subject

Saved = dict[str, tuple[Path, PolicySubject]]  # what the fixture `saved` gives: by kind, a folder and what is in it

# Few denoising steps: as many as make a chunk.
FEW_STEPS = {
    "act": [],
    "diffusion": ["--num_inference_steps=2"],
    "smolvla": ["--num_steps=2"],
    "pi05": ["--num_inference_steps=2"],
}
# Exact treatments of a flow policy.
EXACT = [
    {"cameras": "batched"},
    {"padding": "trimmed"},
    {"prefix_tail": "skipped"},
    {"prefix_cache": "static"},
    {"timesteps": "precomputed"},
    {"masks": "once"},
]


def tiny_checkpoint(kind: str, folder: Path, *overrides: str) -> PolicySubject:
    """Save a tiny policy of the type ``kind`` with its processors in ``folder``; returns what was saved."""
    subject = load_tiny_subject(kind, *FEW_STEPS.get(kind, []), *overrides)
    for part in (subject.policy, subject.loaded.preprocessor, subject.loaded.postprocessor):
        part.save_pretrained(folder)
    return subject


def tiny_for_robot(kind: str, folder: Path, joints: int, cameras: Sequence[str], side: int) -> None:
    """Save a tiny policy for a robot of so many joints, whose ``cameras`` have images of ``side`` x ``side`` pixels."""
    config = lerobot_policies.config_from_type(kind, ["--device=cpu"])
    images = {f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, side, side)) for name in cameras}
    config.input_features = images | {"observation.state": PolicyFeature(FeatureType.STATE, (joints,))}
    config.output_features = {"action": PolicyFeature(FeatureType.ACTION, (joints,))}
    loaded = lerobot_policies.load(config, inputs.synthetic(config), size="tiny")
    for part in (loaded.policy, loaded.preprocessor, loaded.postprocessor):
        part.save_pretrained(folder)


def tiny_recipe(kind: str, *treatments: Any, **fields: Any) -> Recipe:
    """A recipe for such a policy."""
    return Recipe(policy=kind, size="tiny", treatments=list(treatments), **fields)


def pusht_checkpoint(
    folder: Path, *overrides: str, size: Literal["tiny", "full"] = "tiny", kind: str = "act", seed: int = 0
) -> PolicySubject:
    """Save a policy of random weights for LeRobot's environment 'pusht' in ``folder``."""
    from lerobot.envs.configs import PushtEnv

    chunk = ["--n_action_steps=10", "--chunk_size=20"] if kind == "act" else []
    config = lerobot_policies.config_from_type(kind, ["--device=cpu", *chunk, *FEW_STEPS.get(kind, []), *overrides])
    fed = inputs.from_env(config, PushtEnv(), count=1)
    subject = PolicySubject(lerobot_policies.load(config, fed, size=size, seed=seed), fed)
    for part in (subject.policy, subject.loaded.preprocessor, subject.loaded.postprocessor):
        part.save_pretrained(folder)
    return subject
