"""Flags of the replaying camera."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from lerobot.cameras.configs import CameraConfig

from lerobot_camera_strobe.schedule import Schedule


@CameraConfig.register_subclass("strobe_replay")
@dataclass(kw_only=True)
class ReplayCameraConfig(CameraConfig):
    """A recording, and how to play it; the README explains each field. Raise ValueError for impossible values."""

    path: str
    camera: str | None = None
    episode: int = 0
    seconds: float = 3.0
    latency_ms: float = 0.0
    phase: float | None = None
    jitter_ms: float = 0.0
    gap_at_s: float = 0.0
    gap_s: float = 0.0
    freeze_at_s: float = 0.0
    freeze_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("fps", "width", "height", "seconds"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise ValueError(f"`{name}` is expected to be above 0, but {value} is provided.")
        for name in ("latency_ms", "jitter_ms", "gap_at_s", "gap_s", "freeze_at_s", "freeze_s"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"`{name}` is expected to be 0 or above, but {value} is provided.")
        if self.phase is not None and not 0 <= self.phase < 1:
            raise ValueError(f"`phase` is expected to be from 0 to below 1, but {self.phase} is provided.")

    def schedule(self, fps: float) -> Schedule:
        """When frames come from a camera of ``fps`` frames/s."""
        phase = self.phase
        if phase is None:
            phase = zlib.crc32(f"{self.path} {self.camera} {self.episode} {self.seed}".encode()) / 2**32
        return Schedule(
            fps=fps,
            phase=phase,
            latency_s=self.latency_ms / 1e3,
            jitter_s=self.jitter_ms / 1e3,
            gap=(self.gap_at_s, self.gap_at_s + self.gap_s),
            freeze=(self.freeze_at_s, self.freeze_at_s + self.freeze_s),
            seed=self.seed,
        )
