"""Recordings of the turning arm, sound or as a miswired robot would have made them, and the policy that knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors

from strobe.core.results.subject import SubjectInfo
from strobe.lerobot.policies.inputs import Inputs
from strobe.lerobot.policies.lerobot_policies import Loaded
from strobe.lerobot.policies.policy_subject import PolicySubject
from support.builders.configuration_turning_arm import TurningArmConfig
from support.builders.modeling_turning_arm import CENTRES, SIZES, TurningArmPolicy

JOINTS = ["pan", "lift", "wrist", "gripper"]
STATE, ACTION, TOP, WRIST = "observation.state", "action", "observation.images.top", "observation.images.wrist"
Ticks = dict[str, np.ndarray]  # of one episode: feature → (ticks, …)


def episode(number: int, ticks: int = 30, turn: float = 0.314159) -> Ticks:
    """One episode: states and actions in their units, images (3, 8, 8) in [0, 1]."""
    random = np.random.default_rng(number)
    phase = random.uniform(0, 2 * np.pi) + turn * np.arange(ticks + 1)
    shown = random.uniform(-1, 1, 2)
    held = np.broadcast_to(shown, (ticks + 1, 2))
    place = np.concatenate([np.stack([np.cos(phase), np.sin(phase)], 1), held], 1)
    positions = place * SIZES.numpy() + CENTRES.numpy()
    images = {}
    for name, value in ((TOP, shown[0]), (WRIST, shown[1])):
        image = np.full((ticks, 3, 8, 8), 0.5, np.float32)
        image[:, 0] += 0.2 * value
        image[:, 2] -= 0.2 * value
        images[name] = image
    noise = random.normal(0, 0.03, (ticks, 4)) * SIZES.numpy()
    return {STATE: positions[:-1].astype(np.float32), ACTION: (positions[1:] + noise).astype(np.float32), **images}


@dataclass
class Frames:
    """A recording in memory, in the place of `PolicySubject.inputs.frames`."""

    episodes: list[Ticks]
    names: list[str] | None = None

    def __post_init__(self) -> None:
        self.whole = {key: np.concatenate([each[key] for each in self.episodes]) for key in self.episodes[0]}
        lengths = [len(each[ACTION]) for each in self.episodes]
        self.whole["episode_index"] = np.repeat(np.arange(len(lengths)), lengths)[:, None]
        vectors = {key: {"names": self.names or JOINTS, "dtype": "float32", "shape": (4,)} for key in (STATE, ACTION)}
        images = {key: {"names": None, "dtype": "image", "shape": (3, 8, 8)} for key in (TOP, WRIST)}
        stats = {
            key: {"mean": self.whole[key].mean(0), "std": self.whole[key].std(0), "min": self.whole[key].min(0),
                  "max": self.whole[key].max(0)}
            for key in (STATE, ACTION)
        }  # fmt: skip
        self.meta: Any = SimpleNamespace(features={**vectors, **images}, stats=stats, fps=30, tasks=None)

    def column(self, key: str) -> np.ndarray:
        return self.whole[key]

    def observation(self, index: int) -> dict[str, Any]:
        seen = {key: torch.from_numpy(self.whole[key][index : index + 1].copy()) for key in (STATE, TOP, WRIST)}
        return {**seen, "task": "turn", "robot_type": ""}


def recording(change: Callable[[Ticks], Ticks] | None = None, episodes: int = 8, first: int = 0) -> Frames:
    """A recording; ``change`` makes of each sound episode what a miswired robot would have recorded."""
    made = [episode(first + number) for number in range(episodes)]
    return Frames([change(dict(each)) for each in made] if change is not None else made)


def policy(stats: dict[str, Any], config: TurningArmConfig | None = None) -> TurningArmPolicy:
    """The policy as it was trained on a data set of these statistics."""
    config = config or TurningArmConfig(device="cpu")
    image = PolicyFeature(FeatureType.VISUAL, (3, 8, 8))
    config.input_features = {STATE: PolicyFeature(FeatureType.STATE, (4,)), TOP: image, WRIST: image}
    config.output_features = {ACTION: PolicyFeature(FeatureType.ACTION, (4,))}
    made = TurningArmPolicy(config)
    with torch.no_grad():
        for name, key in (("state", STATE), ("action", ACTION)):
            for statistic in ("mean", "std"):
                getattr(made, f"{name}_{statistic}").copy_(torch.as_tensor(stats[key][statistic]))
    return made.eval()


def subject(frames: Frames, stats: dict[str, Any] | None = None, **settings: Any) -> PolicySubject:
    """The trained policy over ``frames``.

    Args:
        stats: those of its processors; by default of the sound recording, which it was trained on.
        settings: of its config.
    """
    trained = recording().meta.stats
    made = policy(trained, TurningArmConfig(device="cpu", **settings))
    before, after = make_pre_post_processors(made.config, dataset_stats=trained if stats is None else stats)
    info = SubjectInfo(name="turning_arm", kind="turning_arm", source="", parameters=0, weight_bytes=0, inputs="")
    checks: Any = lambda _: None  # nothing here looks at them  # noqa: E731
    inputs = Inputs("frames", [frames.observation(0)], {}, frames.meta.stats, frames.meta, lambda _: {}, checks,
                    kind="data", frames=frames)  # type: ignore[arg-type]  # fmt: skip
    return PolicySubject(Loaded(made, before, after, info), inputs)


def save_policy(folder: Path, stats: dict[str, Any]) -> Path:
    """Save the policy with its processors as LeRobot saves them."""
    made = policy(stats)
    before, after = make_pre_post_processors(made.config, dataset_stats=stats)
    for part in (made, before, after):
        part.save_pretrained(folder)
    return folder


def write_dataset(root: Path, frames: Frames) -> Path:
    """Write a recording as a LeRobotDataset of images."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    vectors = {key: {"dtype": "float32", "shape": (4,), "names": JOINTS} for key in (STATE, ACTION)}
    images = {key: {"dtype": "image", "shape": (8, 8, 3), "names": ["height", "width", "channels"]}
              for key in (TOP, WRIST)}  # fmt: skip
    made = LeRobotDataset.create(f"local/{root.name}", 30, {**vectors, **images}, root=root, use_videos=False)
    for ticks in frames.episodes:
        for tick in range(len(ticks[ACTION])):
            pictures = {key: (ticks[key][tick].transpose(1, 2, 0) * 255).round().astype(np.uint8)
                        for key in (TOP, WRIST)}  # fmt: skip
            made.add_frame({STATE: ticks[STATE][tick], ACTION: ticks[ACTION][tick], **pictures, "task": "turn"})
        made.save_episode()
    made.finalize()
    return root
