"""Inputs of a policy: observations as for inference, and batches as for training.

Both are raw: they go into the policy's preprocessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_STATE, OBS_STR
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.families.capabilities import InputFacts
from strobe.core.families.registry import find_family
from strobe.core.subjects.check_inputs import COUNT, Checks
from strobe.core.subjects.subject import Batch, InputSource, Kind, Observation, digest
from strobe.lerobot.datasets.recording import dimension_names
from strobe.lerobot.envs.seldom_rendered import PlayedEpisodes
from strobe.lerobot.policies import synthesis
from strobe.lerobot.policies.dataset_frames import DatasetFrames
from strobe.lerobot.policies.varied_checks import SHARE, blend_observations

EPISODES = 4  # episodes of an environment that provide observations
STRIDE = 5  # ticks between two observations of an episode


@dataclass
class Inputs:
    """Observations and batches for one policy.

    An observation is one control tick's: images ``(1, C, H, W)`` float in [0, 1], vectors ``(1, D)``, and ``task``, on
    the CPU. A policy that looks at several ticks (``n_obs_steps`` > 1, such as Diffusion) gets them stacked,
    ``(1, n_obs_steps, …)``, as in ``select_action``'s queues when a chunk is due: ``predict_action_chunk`` then does
    the work of one real chunk without the state of the queues.
    """

    description: str
    observations: list[Observation]
    features: dict[str, PolicyFeature]
    stats: dict[str, dict[str, Any]]
    meta: Any  # a LeRobotDatasetMetadata, or an object in its place: .features, .stats, .fps
    make_batch: Callable[[int], Batch]
    make_checks: Callable[[int], Checks]
    kind: Kind = "made up"
    notes: list[str] = field(default_factory=list)  # faults of the data that do not stop reading
    frames: DatasetFrames | None = None  # of a data set, all of them

    @property
    def input_source(self) -> InputSource:
        """Their kind and digest, for files of data that is calibrated on them."""
        return InputSource(self.kind, digest(self.observations) if self.kind == "data" else "")

    def batch(self, size: int) -> Batch:
        """Return a training batch of ``size``: collated items with the policy's deltas, images float in [0, 1].

        The training loop hands it to the preprocessor. Raises UserError for a size below 1.
        """
        if size < 1:
            raise UserError(f"a batch needs at least one sample, got {size}")
        return self.make_batch(size)

    def checks(self, count: int = COUNT) -> Checks:
        """Return observations to compare actions on: ``count``, or as many as there are, spread over all data."""
        return self.make_checks(count)

    @property
    def action_names(self) -> list[str] | None:
        """Names of the action's dimensions in the data set; None without any."""
        return dimension_names(self.meta.features.get(ACTION, {})) or None


def from_dataset(
    config: PreTrainedConfig,
    root: str | Path | None = None,
    repo_id: str | None = None,
    *,
    episodes: list[int] | None = None,
    video_backend: str | None = None,
    count: int = 4,
    seed: int = 0,
) -> Inputs:
    """Return ``count`` frames spread over a LeRobotDataset; the arguments are those of `DatasetFrames`.

    Raises UserError if the dataset is missing or cannot be read, or does not name the axes of its images. Faults of
    frames that were not read are in the notes.
    """
    from lerobot.utils.feature_utils import dataset_to_policy_features

    frames = DatasetFrames(
        config, root, repo_id, episodes, video_backend, stacked=_has_tick_dimension(config), seed=seed
    )
    for name, feature in frames.meta.features.items():
        if feature["dtype"] in ("image", "video") and len(feature.get("names") or ()) != 3:
            wanted = '"names": ["height", "width", "channels"]'
            raise UserError(f"meta/info.json of the data set does not name the axes of {name}: LeRobot needs {wanted}")
    observations = frames.observations(count)
    return Inputs(
        description=frames.describe(len(observations)),
        observations=observations,
        features=dataset_to_policy_features(frames.meta.features),
        stats=frames.meta.stats,
        meta=frames.meta,
        kind="data",
        make_batch=frames.batch,
        make_checks=frames.checks,
        notes=frames.faults,
        frames=frames,
    )


def from_env(config: PreTrainedConfig, env: Any, *, count: int = 4, seed: int = 0) -> Inputs:
    """Return observations of an environment (a LeRobot ``EnvConfig``), from several resets, after random actions.

    The features are those of the environment's observations, which may differ from its config. Batches consist of its
    observations and random actions; statistics come from these too. Images are drawn when they are read: for batches
    and checks the episodes are played again. Raises UserError if the environment cannot be started.
    """
    each = max(-(-COUNT // EPISODES), 1)  # observations of an episode
    episodes = PlayedEpisodes(env, config, EPISODES, each * STRIDE + config.n_obs_steps, seed)
    places = [(episode, STRIDE * number) for number in range(each) for episode in range(EPISODES)]

    def runs(count: int, beyond: int = 0) -> list[list[Observation]]:
        last = config.n_obs_steps + beyond  # stacked or not, an observation has no tick after these
        return episodes.runs({first + later for _, first in places[:count] for later in range(last)})

    played = runs(count)
    windows = [_windows(run, config) for run in played]
    # One of each episode before a second of any: neighbouring ticks are all but the same picture.
    observations = [windows[episode][first] for episode, first in places[:count]]
    ticks = [tick for run in played for tick in run]
    features = {
        k: _feature_from_value(k, v) for k, v in ticks[0].items() if k.startswith(OBS_STR) and isinstance(v, Tensor)
    }
    features[ACTION] = PolicyFeature(FeatureType.ACTION, tuple(episodes.space.shape))
    ranges = {ACTION: (torch.as_tensor(episodes.space.low).float(), torch.as_tensor(episodes.space.high).float())}
    for key, feature in features.items():
        if feature.type in (FeatureType.STATE, FeatureType.ENV):
            values = torch.cat([tick[key] for tick in ticks])
            ranges[key] = (values.amin(0) - 1, values.amax(0) + 1)
    named = f"observations of the environment {env.type}"

    def make_checks(count: int) -> Checks:
        chosen, windows = places[:count], [_windows(run, config) for run in runs(count, beyond=1)]
        return Checks(
            description=f"{len(chosen)} {named} from {EPISODES} episodes",
            observations=[windows[episode][first] for episode, first in chosen],
            neighbours=[windows[episode][first + 1] for episode, first in chosen],
            neighbour="the next tick of the episode, after a random action",
        )

    description = f"{len(observations)} {named}"
    source = _Ticks(features, ranges, lambda: [tick for run in episodes.runs() for tick in run], env.fps, "dimension ")
    return source.inputs(config, description, observations, make_checks, kind="data", seed=seed)


def _feature_from_value(key: str, value: Tensor) -> PolicyFeature:
    kind = FeatureType.STATE
    if value.ndim == 4:
        kind = FeatureType.VISUAL
    elif key == OBS_ENV_STATE:
        kind = FeatureType.ENV
    return PolicyFeature(kind, tuple(value.shape[1:]))


def synthetic(
    config: PreTrainedConfig,
    *,
    tiny: bool = False,
    image_size: tuple[int, int] | None = None,
    cameras: int | None = None,
    vectors: Mapping[str, int] | None = None,
    count: int = 4,
    seed: int = 0,
) -> Inputs:
    """Return made-up inputs of the policy's own features; without any, of an arm like the SO-101.

    That arm has two 480 × 640 cameras (64 × 64 if ``tiny``), or ``cameras`` of ``image_size`` (height, width), and a
    state and an action of 6 joints, or of ``vectors`` numbers; a family's record may define another arm. The images are
    smooth noise.

    Raises:
        UserError: a policy with features should get other cameras or vectors, or more cameras than it takes.
    """
    robot = InputFacts.from_family(find_family(config.type)).arm
    arm, own = synthesis.make_features(robot, tiny, image_size, cameras, vectors), dict(config.input_features or {})
    if robot.instead and config.pretrained_path is None:
        seen = {key: feature for key, feature in arm.items() if feature.type is FeatureType.VISUAL}
        own = seen | {key: feature for key, feature in own.items() if feature.type is not FeatureType.VISUAL}
        image_size = cameras = None  # its cameras are those already
    _require_free(own, config.output_features or {}, vectors or {}, other_cameras=bool(image_size or cameras))
    features = own or arm
    features |= config.output_features or {}
    for key in (OBS_STATE, ACTION):
        features.setdefault(key, arm[key])
    generator = torch.Generator().manual_seed(seed)
    ranges = synthesis.ranges(features)

    def windows(count: int, generator: torch.Generator) -> tuple[list[Observation], list[Observation]]:
        ticks = [
            synthesis.tick(features, ranges, generator) | {"task": synthesis.TASK, "robot_type": ""}
            for _ in range(count + config.n_obs_steps - 1)
        ]
        return ticks, _windows(ticks, config)

    def make_checks(count: int) -> Checks:
        observations = windows(count, torch.Generator().manual_seed(seed + 2))[1]
        return Checks(
            description=f"{count} synthetic observations",
            observations=observations,
            neighbours=blend_observations(observations),
            neighbour=f"the observation, changed by {100 * SHARE:g} % of the difference to another synthetic one",
        )

    ticks, observations = windows(count, generator)
    named = f"{count} synthetic observations"
    source = _Ticks(features, ranges, lambda: ticks, 30, "joint_")
    return source.inputs(config, named, observations, make_checks, kind="made up", seed=seed)


def _require_free(
    inputs: Mapping[str, PolicyFeature],
    outputs: Mapping[str, PolicyFeature],
    vectors: Iterable[str],
    *,
    other_cameras: bool,
) -> None:
    if inputs and other_cameras:
        own = [key for key, feature in inputs.items() if feature.type is FeatureType.VISUAL]
        raise UserError(
            "--image_size and --cameras need a policy for any cameras: this one has " + (", ".join(own) or "none")
        )
    fixed = {**inputs, **outputs}
    if taken := [f"{key} of {fixed[key].shape[0]} numbers" for key in vectors if key in fixed]:
        raise UserError(f"--state_dim and --action_dim need a policy for any robot: this one has {' and '.join(taken)}")


@dataclass(frozen=True)
class _Ticks:
    """Ticks without a dataset: their features, the range of each vector, and a function that draws them all."""

    features: dict[str, PolicyFeature]
    ranges: dict[str, tuple[Tensor, Tensor]]
    drawn: Callable[[], list[Observation]]
    fps: int
    dimension: str  # the name of a vector's dimension, before its number

    def inputs(
        self,
        config: PreTrainedConfig,
        description: str,
        observations: list[Observation],
        make_checks: Callable[[int], Checks],
        *,
        kind: Kind,
        seed: int,
    ) -> Inputs:
        """Return inputs whose statistics and batches come from these ticks."""
        stats = synthesis.stats(self.features, self.ranges)
        generator = torch.Generator().manual_seed(seed + 1)
        return Inputs(
            description=description,
            observations=observations,
            features=self.features,
            stats=stats,
            meta=synthesis.Meta(self.features, stats, self.fps, self.dimension),
            make_batch=lambda size: synthesis.batch(config, self.features, self.ranges, self.drawn(), size, generator),
            make_checks=make_checks,
            kind=kind,
        )


def _has_tick_dimension(config: Any) -> bool:
    return config.n_obs_steps > 1 or InputFacts.from_family(find_family(config.type)).stacked


def _windows(ticks: list[Observation], config: Any) -> list[Observation]:
    """Return each run of as many successive ticks as the policy looks at, stacked along dimension 1 if needed."""
    if not _has_tick_dimension(config):
        return ticks
    steps = config.n_obs_steps
    windows = []
    for end in range(steps, len(ticks) + 1):
        window, last = ticks[end - steps : end], ticks[end - 1]
        windows.append(
            {k: torch.stack([t[k] for t in window], dim=1) if isinstance(v, Tensor) else v for k, v in last.items()}
        )
    return windows
