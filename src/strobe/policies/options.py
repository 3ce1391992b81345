"""Which policy or backbone to load, and what to feed it: options that users give as flags. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Size = Literal["full", "tiny"]


@dataclass
class PolicyOptions:
    """A policy: a checkpoint, or a type with random weights, and settings of its config (``--chunk_size=50`` …)."""

    # A checkpoint: its folder, or its name on the Hub.
    path: str | None = None
    # A kind of policy, built with random weights: act, diffusion, pi05, smolvla …
    type: str | None = None
    # The size of a policy that is built: full or tiny.
    size: Size = "full"
    overrides: list[str] = field(default_factory=list)


@dataclass
class ModelOptions:
    """A backbone of transformers, its clips, and settings of its config (``--hidden_size=64`` …)."""

    # A checkpoint of transformers: its folder, or its name on the Hub.
    path: str | None = None
    # A kind of backbone, built with random weights: vjepa2, vit, dinov2, videomae …
    type: str | None = None
    # The size of a V-JEPA 2 that is built: tiny, large, huge, giant or giant-384.
    size: str | None = None
    # Height and width of its images in pixels.
    img_size: int | None = None
    # Frames in a clip.
    num_frames: int | None = None
    # The weights' format, such as bfloat16.
    dtype: str | None = None
    # Also run V-JEPA 2's predictor.
    predictor: bool = False
    overrides: list[str] = field(default_factory=list)


@dataclass
class InputOptions:
    """Where observations or clips come from; synthetic ones without a dataset, an environment or a video.

    Args:
        dataset: LeRobot's ``DatasetConfig``, of which root, repo_id, episodes and video_backend count.
        env: LeRobot's ``EnvConfig``. With a dataset too the inputs are the dataset's, and the policy must fit both.
        video: a file to decode clips from, for a backbone.
        image_size: height and width of synthetic images in pixels, before preprocessing; None for the usual.
        cameras: number of synthetic cameras; None for the usual.
        rename: names in the inputs → names that the policy knows.
    """

    dataset: Any = None
    env: Any = None
    video: Path | None = None
    image_size: tuple[int, int] | None = None
    cameras: int | None = None
    rename: dict[str, str] = field(default_factory=dict)
