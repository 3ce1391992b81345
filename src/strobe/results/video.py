"""A video of an episode: a file in the run's folder."""

from __future__ import annotations

from pydantic import Field

from strobe.results.data import Data, Finite


class Video(Data):
    """One video: its episode, and where its file is."""

    variant: str
    task: str
    seed: int
    success: bool
    seconds: Finite = Field(description="of simulated time")
    file: str = Field(description="within the run's folder: an H.264 .mp4, or a .webp where there is no H.264")
    poster: str | None = Field(default=None, description="its last frame as a .webp, within the run's folder")
