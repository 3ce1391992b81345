"""strobe record: how do I get a data set without a robot?

Records episodes of a simulator into a real LeRobotDataset with video, with LeRobot's own writer and encoder. Use it to
try Strobe or LeRobot. --env chooses the simulator:

  pusht            a disc pushes a block, scripted. Needs no OpenGL.
  metaworld        a robot arm, driven by MetaWorld's own expert with a little noise. Needs
                   pip install 'strobe-lab[metaworld]' and OpenGL.
  metaworld_state  the same arm without images, for --policy.path=demo.

Ctrl-C ends a recording early and saves the finished episodes.

Examples:
  strobe record --root=data/pusht                                   3 episodes of 40 frames, 480×480
  strobe record --root=data/demo --env=metaworld_state              frames for --policy.path=demo

More:
pusht: state and action are positions. metaworld: the state is the hand's position and the gripper's opening, the action
the hand's velocity and the gripper's effort. metaworld_state: environment_state is the position of the task's object;
the policy that comes with Strobe (--policy.path=demo) was trained on 100 such episodes.

OpenGL without a screen: install Debian's libosmesa6 (MUJOCO_GL=osmesa) or libegl1 (MUJOCO_GL=egl). Strobe uses the
installed one unless MUJOCO_GL is set.

Further examples:
  strobe record --root=data/pusht --episodes=10 --frames=100 --image=96
  strobe record --root=data/reach --env=metaworld --task=reach-v3   3 episodes of 80 frames, two cameras
  strobe record --root=data/reach --env=metaworld --image=480x640   the image size of many robots' cameras
  strobe record --root=data/push --env=metaworld --task=push-v3 --cameras=corner2,gripperPOV --episodes=20
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import minimum_bound
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command
from strobe.core.errors import UserError, nearest

# env → frames in an episode and frames per second, by default
_DEFAULTS = {"pusht": (40, 10), "metaworld": (80, 80), "metaworld_state": (80, 80)}


@dataclass
class RecordConfig:
    """Flags of `strobe record`."""

    # New folder for the dataset.
    root: Path | None = None
    # What to record: pusht, metaworld or metaworld_state.
    env: str = "pusht"
    # MetaWorld's task, as LeRobot spells it (default: reach-v3; of metaworld_state button-press-topdown-v3).
    task: str | None = None
    # MetaWorld's cameras, separated by commas: topview, corner, corner2, corner3, behindGripper, gripperPOV
    # (default: corner2,topview). Each becomes observation.images.<camera>.
    cameras: str | None = None
    # Episodes to record.
    episodes: int = field(default=3, metadata=minimum_bound(1))
    # Frames in an episode (default: 40 of pusht, 80 of metaworld).
    frames: int | None = field(default=None, metadata=minimum_bound(1))
    # Frames per second (default: 10 of pusht, 80 of metaworld).
    fps: int | None = field(default=None, metadata=minimum_bound(1))
    # Height and width of the image in pixels, such as 96 (both) or 480x640 (metaworld).
    image: str = "480"
    # Seed of the episodes.
    seed: int = 0

    def length(self) -> int:
        """Frames in an episode."""
        return _DEFAULTS[self.env][0] if self.frames is None else self.frames


def record_and_say(config: RecordConfig, live: Live) -> int:
    """Record the dataset and print where it is. Return the exit code. Raises UserError."""
    try:
        record(config)
    except KeyboardInterrupt:
        if not config.root or not config.root.exists():
            print("interrupted before the end of the first episode: nothing is saved")
            return 130
        print(f"interrupted; the finished episodes are in {config.root}")
        print(f"Next: strobe preflight --dataset.root={config.root}")
        return 130
    print(f"Recorded {config.episodes} episodes of {config.length()} frames in {config.root}.")
    print(f"Next: strobe preflight --dataset.root={config.root}")
    return 0


def record(config: RecordConfig) -> Path:
    """Record as ``config`` says, with a progress bar. Returns the dataset's folder. Raises UserError."""
    from rich.console import Console
    from rich.progress import Progress

    if config.env not in _DEFAULTS:
        raise UserError(f"--env={config.env} cannot be recorded: {nearest(config.env, _DEFAULTS)}")
    if (config.env == "pusht" and config.task) or (config.env != "metaworld" and config.cameras):
        raise UserError("--task and --cameras are for MetaWorld: add --env=metaworld")
    length, fps = config.length(), _DEFAULTS[config.env][1] if config.fps is None else config.fps
    height, width = _size(config.image)
    if config.root is None:
        raise UserError("name the new folder for the data set: --root=FOLDER")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"recording {config.episodes} episodes of {config.env}", total=config.episodes * length)

        def progress(done: int, _: int) -> None:
            bar.update(task, completed=done)

        return _recorder(config, width)(
            config.root, config.episodes, length, fps, image=height, seed=config.seed, progress=progress
        )


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and (width or height).isdecimal() and int(height) * int(width or height) > 0):
        raise UserError(f"--image={text}: must be pixels, such as 96 or 480x640")
    return int(height), int(width or height)


def _recorder(config: RecordConfig, width: int) -> Callable[..., Path]:
    if config.env == "pusht":
        if _size(config.image) != (width, width):
            raise UserError(f"--image={config.image}: PushT's image is square: give one number, such as 96")
        from strobe.simulators.scripted import record_pusht

        return record_pusht
    from functools import partial

    if config.env == "metaworld_state":
        from strobe.simulators import metaworld_state

        return partial(metaworld_state.record_states, read=metaworld_state.Read(config.task or metaworld_state.TASK))

    from strobe.simulators.scripted import CAMERAS, TASK, Scene, record_metaworld

    cameras = CAMERAS if config.cameras is None else [name for name in config.cameras.split(",") if name]
    return partial(record_metaworld, scene=Scene(config.task or TASK, cameras, width))


run = Command("record", __doc__, RecordConfig, None, record_and_say, bar=False)
