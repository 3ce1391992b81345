"""One call from what the user named to a subject: config, inputs, weights, processors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from strobe.policies import backbones, clips, inputs, lerobot_policies
from strobe.policies.model_subject import ModelSubject
from strobe.policies.policy_subject import PolicySubject


def load_subject(
    *,
    path: str | None = None,
    policy_type: str | None = None,
    size: Literal["full", "tiny"] = "full",
    overrides: Sequence[str] = (),
    dataset: Any = None,
    env: Any = None,
    image_size: tuple[int, int] | None = None,
    cameras: int | None = None,
    seed: int = 0,
    rename: dict[str, str] | None = None,
) -> PolicySubject:
    """A checkpoint (``path``, a folder or a Hub id) or a type with random weights, fed from where the user said.

    Args:
        overrides: settings of the policy's config, ``--name=value`` as on LeRobot's command line.
        dataset: LeRobot's ``DatasetConfig`` (root, repo_id, episodes and video_backend count), or None.
        env: LeRobot's ``EnvConfig``, or None; without either the inputs are synthetic. With both the inputs are the
            dataset's, and the policy must do for the environment too.
        image_size, cameras: height and width, and number, of synthetic cameras; None for the usual.
        rename: names in the inputs → names that the policy knows.

    Raises:
        UserError: whatever of it cannot be had or does not fit together.
    """
    if path is not None:
        config = lerobot_policies.config_from_path(path, overrides)
    else:
        config = lerobot_policies.config_from_type(policy_type or "", overrides)
    if dataset is not None:
        fed = inputs.from_dataset(
            config,
            dataset.root,
            dataset.repo_id,
            episodes=dataset.episodes,
            video_backend=dataset.video_backend,
            seed=seed,
        )
    elif env is not None:
        fed = inputs.from_env(config, env, seed=seed)
    else:
        fed = inputs.synthetic(config, tiny=size == "tiny", image_size=image_size, cameras=cameras, seed=seed)
    loaded = lerobot_policies.load(config, fed, size=size, seed=seed, rename=rename)
    if dataset is not None and env is not None:
        loaded.notes += lerobot_policies.check_features(config, inputs.from_env(config, env, seed=seed), rename)
    return PolicySubject(loaded, fed, seed)


def load_model(
    *,
    path: str | None = None,
    kind: str | None = None,
    size: str | None = None,
    img_size: int | None = None,
    num_frames: int | None = None,
    dtype: str | None = None,
    predictor: bool = False,
    overrides: Sequence[str] = (),
    device: str | None = None,
    video: Path | None = None,
    dataset: Any = None,
    image_size: tuple[int, int] | None = None,
    seed: int = 0,
) -> ModelSubject:
    """A transformers backbone (``path``, or a ``kind`` with random weights), fed from where the user said.

    Args:
        img_size, num_frames: side of the image and frames of a clip that the model gets; None for its own.
        overrides: further settings of the model's config, ``--name=value``.
        video: a file to decode clips from; ``dataset``: LeRobot's ``DatasetConfig``. Without either, synthetic clips.
        image_size: height and width of synthetic frames before preprocessing.

    Raises:
        UserError: whatever of it cannot be had or does not fit together.
    """
    config = backbones.config_of(
        path=path, kind=kind, size=size, img_size=img_size, num_frames=num_frames, overrides=overrides
    )
    model = backbones.load(
        config, path=path, size=size, img_size=img_size, num_frames=num_frames, dtype=dtype, device=device, seed=seed
    )
    if video is not None:
        fed = clips.from_video(video, model.frames)
    elif dataset is not None:
        fed = clips.from_dataset(dataset.root, dataset.repo_id, model.frames, episodes=dataset.episodes)
    else:
        frame = image_size or (clips.TINY_FRAME if size == "tiny" else clips.FRAME)
        fed = clips.synthetic(model.frames, frame, seed=seed)
    return ModelSubject(model, fed, predictor)
