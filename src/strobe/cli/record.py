"""strobe record: record episodes of a simulator into a LeRobotDataset with video.

The dataset is a real one (LeRobot's own writer and encoder), for trying Strobe or LeRobot on without a robot.

Examples:
  strobe record --root=data/pusht                                   3 episodes of 40 frames, 480×480
  strobe record --root=data/pusht --episodes=10 --frames=100 --image=96
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.cli.parse import help_text, parse
from strobe.errors import UserError


@dataclass
class RecordConfig:
    # New folder for the dataset.
    root: Path | None = None
    # What to record: pusht (renders without OpenGL).
    env: str = "pusht"
    # Episodes to record.
    episodes: int = 3
    # Frames in an episode.
    frames: int = 40
    # Frames per second.
    fps: int = 10
    # Height and width of the image, in pixels.
    image: int = 480
    # Seed of the episodes.
    seed: int = 0


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring."""
    if {"-h", "--help"} & set(argv):
        print(help_text(__doc__ or "", RecordConfig))
        return 0
    config = parse(RecordConfig, argv)
    if config.env != "pusht":
        raise UserError(f"--env={config.env}: only 'pusht' can be recorded")
    if min(config.episodes, config.frames, config.fps, config.image) < 1:
        raise UserError("--episodes, --frames, --fps and --image must be at least 1")
    record(config)
    print(f"{config.episodes} episodes of {config.frames} frames in {config.root}")
    print(f"use them with --dataset.root={config.root}")
    return 0


def record(config: RecordConfig) -> Path:
    """Record as ``config`` says, with a progress bar. Returns the dataset's folder. Raises UserError."""
    from rich.console import Console
    from rich.progress import Progress

    from strobe.subjects.record import record_pusht

    if config.root is None:
        raise UserError("where to? --root=FOLDER")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("recording PushT", total=config.episodes * config.frames)
        return record_pusht(
            config.root,
            config.episodes,
            config.frames,
            config.fps,
            image=config.image,
            seed=config.seed,
            progress=lambda done, _: bar.update(task, completed=done),
        )
