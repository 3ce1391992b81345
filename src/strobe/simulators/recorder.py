"""Write episodes of a scripted simulator into a real LeRobotDataset with video. Each simulator has its own file."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, os_error_reason
from strobe.lerobot.quiet import muted_stderr, priority_restored, quiet

Frame = dict[str, Any]


@dataclass(frozen=True)
class Scripted:
    """A simulator with a script that acts in it."""

    robot: str
    # As LeRobotDataset.create takes them.
    features: dict[str, dict[str, Any]]
    # From an episode's seed to its frames, without an end.
    play: Callable[[int], Iterator[Frame]]
    close: Callable[[], None] = field(default=lambda: None)


def write(
    root: str | Path,
    start: Callable[[], Scripted],
    episodes: int,
    frames: int,
    fps: int,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write ``episodes`` of ``frames`` each into a new dataset at ``root``; return its folder.

    ``start`` is called once the folder and the numbers are checked. ``progress`` is called with (frames done, frames in
    all). If the recording ends early, the finished episodes stay and are readable; without any, the folder is removed.
    Raises UserError if ``root`` is not empty or cannot be made.
    """
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    where = Path(root)
    if where.exists() and (not where.is_dir() or any(where.iterdir())):
        raise UserError(f"{where} exists and is not empty: give a new folder to record into, or remove it first")
    if min(episodes, frames, fps) < 1:
        raise UserError("a recording needs at least one episode of one frame, and 1 frame per second")
    scripted = start()
    try:
        where.mkdir(parents=True, exist_ok=True)
        where.rmdir()  # LeRobot makes the folder itself and refuses an existing one
    except OSError as error:
        scripted.close()
        raise UserError(
            f"cannot record into {where}: {os_error_reason(error)}; name another folder with --root"
        ) from None
    with quiet():
        dataset = LeRobotDataset.create(
            f"local/{where.name}", fps, scripted.features, root=where, robot_type=scripted.robot, use_videos=True
        )
    try:
        for episode in range(episodes):
            for step, frame in enumerate(islice(scripted.play(seed + episode), frames), start=1):
                dataset.add_frame(frame)
                if progress is not None:
                    progress(episode * frames + step, episodes * frames)
            with _defer_interrupt(), priority_restored(), quiet(), muted_stderr():
                # In this process: Ctrl-C would reach worker processes, which would drop the video they are writing.
                dataset.save_episode(parallel_encoding=False)
    finally:
        with _defer_interrupt(), priority_restored(), quiet(), muted_stderr():
            dataset.clear_episode_buffer()
            dataset.finalize()
        if not dataset.meta.total_episodes:
            shutil.rmtree(where, ignore_errors=True)
        scripted.close()
    return where


@contextlib.contextmanager
def _defer_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
