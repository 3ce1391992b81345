"""strobe tour: from nothing to insight, in a few minutes on a laptop's CPU.

Records a few episodes of PushT into a LeRobotDataset with video. Breaks down ACT and Diffusion Policy on its frames at
full size. Compares SmolVLA without and with Real-Time Chunking. Trains ACT for a few steps to see what they wait for.
On Linux, runs ten seconds of lerobot-rollout on an emulated arm. Plays a tiny Diffusion Policy in PushT with ten and
with two denoising steps, with videos. The weights are random: the times are those of trained policies, the actions are
not.

Examples:
  strobe tour
  strobe tour --output_dir=/tmp/tour --fresh
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from strobe.cli import breakdown, compare, rehearse, train
from strobe.cli.live import Live
from strobe.cli.record import RecordConfig, record
from strobe.cli.runner import Command


@dataclass
class TourConfig:
    """Flags of `strobe tour`."""

    # Where the dataset and the run folders go.
    output_dir: Path = Path("runs/tour")
    # Record the dataset again even if it is there.
    fresh: bool = False
    # Build tiny policies instead of full-size ones: a test of the commands, not of the numbers.
    tiny: bool = False


def tour(config: TourConfig, live: Live) -> int:
    """Run the stops one after another. Return the exit code of the first that fails, else 0."""
    console = Console()
    data = config.output_dir / "pusht"
    if config.fresh and data.exists():
        shutil.rmtree(data)
    console.rule("1  record PushT into a LeRobotDataset")
    if (data / "meta" / "info.json").exists():
        console.print(f"there already: {data}  (--fresh records it again)", highlight=False)
    else:
        record(RecordConfig(root=data))
        console.print(f"3 episodes of 40 frames, 480×480 video: {data}", highlight=False)
    shared = [f"--output_dir={config.output_dir}", f"--policy.size={'tiny' if config.tiny else 'full'}"]
    frames = [f"--dataset.root={data}", *shared]
    # Diffusion Policy as it is deployed: ten steps of DDIM instead of the hundred of DDPM that it was trained with.
    ddim = ["--policy.noise_scheduler_type=DDIM", "--policy.num_inference_steps=10"]
    stops = (
        ("2  where does ACT's time go?", breakdown.run, ["--policy.type=act", *frames, "--seconds=10"]),
        ("3  and Diffusion Policy's?", breakdown.run, ["--policy.type=diffusion", *ddim, *frames, "--seconds=25"]),
        (
            "4  what does Real-Time Chunking cost?",
            compare.run,
            ["--policy.type=smolvla", "--rtc.execution_horizon=20", *frames, "--seconds=55"],
        ),
    )
    for title, command, arguments in stops:
        console.print()
        console.rule(title)
        console.print(f"$ strobe {command.name} {' '.join(arguments)}", highlight=False)
        code = command(arguments)
        if code:
            return code
    more: tuple[tuple[str, Callable[[], int]], ...] = (
        ("5  what does a training wait for?", lambda: _train(config, data, console)),
        ("6  does a robot get its actions in time?", lambda: _rehearse(config, data, console)),
        ("7  does it still do the task with fewer denoising steps?", lambda: _evaluate(config, console)),
    )
    for title, stop in more:
        console.print()
        console.rule(title)
        if code := stop():
            return code
    console.print()
    console.rule("next")
    console.print("Open a report above in a browser, then try your own checkpoint:", highlight=False)
    console.print("  strobe breakdown --policy.path=FOLDER --dataset.root=DATASET", highlight=False)
    return 0


def _evaluate(config: TourConfig, console: Console) -> int:
    """Two short episodes of a tiny policy for each number of denoising steps. Returns the exit code."""
    arguments = [f"--output_dir={config.output_dir}", "--policy.type=diffusion", "--policy.size=tiny", "--steps=2"]
    arguments += ["--policy.num_inference_steps=10", "--env.type=pusht", "--env.episode_length=60", "--episodes=2"]
    console.print(f"$ strobe evaluate {shlex.join(arguments)}", highlight=False)
    from strobe.cli import evaluate  # seconds of imports, which a wrong flag should not wait for

    return evaluate.run(arguments)


def _rehearse(config: TourConfig, data: Path, console: Console) -> int:
    """Ten seconds of lerobot-rollout on an emulated arm, whose camera shows the dataset. Returns the exit code."""
    if sys.platform != "linux" or find_spec("scservo_sdk") is None or find_spec("lerobot_camera_strobe") is None:
        console.print("left out: a rehearsal needs Linux, `strobe-lab[robot]` and the package lerobot_camera_strobe")
        return 0
    camera = "{type: opencv, index_or_path: 0, fps: 30, width: 160, height: 120}"
    theirs = ["--robot.type=so101_follower", f"--robot.cameras={{front: {camera}}}", "--policy.type=smolvla"]
    theirs += ["--inference.type=rtc", "--inference.rtc.execution_horizon=10", "--task=push", "--device=cpu"]
    theirs += [f"--duration={2 if config.tiny else 10}", "--play_sounds=false", "--return_to_initial_position=false"]
    arguments = [f"--output_dir={config.output_dir}", f"--frames={data}", "--", *theirs]
    console.print(f"$ strobe rehearse {shlex.join(arguments)}", highlight=False)
    log = config.output_dir / "rehearsal.log"
    with log.open("w") as file, contextlib.redirect_stderr(file):
        code = rehearse.run(arguments)
    logging.getLogger().handlers.clear()  # LeRobot's write to the file that is closed now
    console.print(f"lerobot-rollout's own log: {log}", highlight=False)
    if code == 1:
        console.print("This rehearsal failed: on a busy machine LeRobot's driver can miss an answer within its 50 ms.")
        return 0
    return code


def _train(config: TourConfig, data: Path, console: Console) -> int:
    """A few steps of lerobot-train, whose own log goes to a file. Returns the exit code."""
    names = ("training" if n == 1 else f"training-{n}" for n in range(1, 1000))
    folder = next(config.output_dir / name for name in names if not (config.output_dir / name).exists())
    theirs = [f"--dataset.repo_id=local/{data.name}", f"--dataset.root={data}", f"--output_dir={folder}"]
    theirs += ["--policy.type=act", "--policy.device=cpu", "--policy.push_to_hub=false", "--batch_size=2"]
    theirs += ["--policy.pretrained_backbone_weights=null", "--steps=14", "--num_workers=1", "--save_checkpoint=false"]
    if config.tiny:
        theirs += ["--policy.dim_model=64", "--policy.n_heads=4", "--policy.dim_feedforward=64"]
    arguments = [f"--output_dir={config.output_dir}", "--", *theirs]
    console.print(f"$ strobe train {' '.join(arguments)}", highlight=False)
    log = config.output_dir / f"{folder.name}.log"
    with log.open("w") as file, contextlib.redirect_stderr(file):
        code = train.run(arguments)
    logging.getLogger().handlers.clear()  # LeRobot's write to the file that is closed now
    console.print(f"lerobot-train's own log: {log}", highlight=False)
    return code


run = Command("tour", __doc__, TourConfig, None, tour, bar=False)
