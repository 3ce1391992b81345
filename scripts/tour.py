"""The tour: what does Strobe show, in a few minutes on a laptop's CPU?

Records a few episodes of PushT, breaks down ACT on them, compares ACT with two faster forms of its backbone, trains ACT
for a few steps, and runs lerobot-rollout on an emulated arm. These weights are random: the times are those of trained
policies, the actions are not.

The last stops use a small trained policy that comes with Strobe (--policy.path=demo): does it succeed if each call
takes 100 ms, which settings work then, and do its checkpoint and its data match?

It needs no robot, no GPU and no checkpoint. It takes about three minutes.

Examples:
  make tour
  make tour ARGS='--output_dir=runs/tour --fresh'
  python scripts/tour.py --tiny

On a busy machine it ends within about eight minutes: a stop that would take longer is left out, and its command is
printed for later. The emulated arm needs Linux. The last stop shows that a copy of the checkpoint without its
statistics is refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

import strobe.core.cli.main  # noqa: F401  # it quietens what torch and torchao print when they are imported
from strobe.commands import breakdown, compare
from strobe.core import demo, slices
from strobe.core.cli.display import requested_help
from strobe.core.cli.live import QUIET_S, Live, shown_if_slow
from strobe.core.cli.metadata import quicken
from strobe.core.cli.runner import Command
from strobe.core.errors import UserError
from strobe.core.processes.lifetime import leave
from strobe.core.untrusted import parse_json
from strobe.lerobot.quiet import root_logger_restored
from strobe.rehearse import command as rehearse
from strobe.simulators.record_command import RecordConfig, record
from strobe.train import command as train

LIMIT_S = 480.0  # longest tour, on a machine with other work too
RECORD_S = 10.0  # time to record on a laptop at rest, with the first imports
# The seconds of the comparison's rounds, and how many times as many they are on a busy machine, at most.
COMPARE_S, LONGER = 15.0, 2.0
BACKBONE = "model.backbone"  # ACT's backbone, which takes most of its time
STEPS, FEWER_STEPS = 14, 9  # of the training, usually and on a busy machine


@dataclass
class TourConfig:
    """Flags of the tour."""

    # Where the dataset and the run folders go.
    output_dir: Path = Path("runs/tour")
    # Record the dataset again even if it is there.
    fresh: bool = False
    # Build tiny policies instead of full-size ones: a test of the commands, not of the numbers.
    tiny: bool = False


@dataclass(frozen=True)
class Stop:
    """One command of the tour.

    Args:
        usual_s: seconds that it takes on a laptop at rest, with loading, roughly.
        argv: makes the command and its flags, without 'strobe', where everything takes so many times as long.
        run: runs it with these flags. Returns the exit code.
        lacking: what it needs and is not there, in words.
    """

    title: str
    usual_s: float
    argv: Callable[[float], list[str]]
    run: Callable[[list[str]], int]
    lacking: str | None = None


class Pace:
    """How much slower the tour is than usual, and whether the next stop ends in time."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s, self._began, self._usual_s = limit_s, time.perf_counter(), 0.0

    @property
    def times_as_long(self) -> float:
        """Return how many times as long as usual the tour took so far, 1 at least."""
        return max((time.perf_counter() - self._began) / self._usual_s, 1.0) if self._usual_s else 1.0

    def note_stop(self, usual_s: float) -> None:
        """Note that a stop that usually takes ``usual_s`` seconds is done."""
        self._usual_s += usual_s

    def expected_s(self, usual_s: float) -> float:
        """Return how many seconds a stop will take that usually takes ``usual_s``."""
        return usual_s * self.times_as_long

    def fits(self, usual_s: float) -> bool:
        """Return whether a stop that usually takes ``usual_s`` seconds ends in time."""
        return time.perf_counter() - self._began + self.expected_s(usual_s) <= self._limit_s


def tour(config: TourConfig, live: Live) -> int:
    """Run the stops one after another. Return the exit code of the first that fails, else 0."""
    console, pace = Console(), Pace()
    data = config.output_dir / "pusht"
    if config.fresh and data.exists():
        shutil.rmtree(data)
    console.rule("1  record PushT into a LeRobotDataset")
    if (data / "meta" / "info.json").exists():
        console.print(f"already recorded: {data}  (--fresh records it again)", highlight=False)
    else:
        record(RecordConfig(root=data))
        pace.note_stop(RECORD_S)
        console.print(f"3 episodes of 40 frames, 480×480 video: {data}", highlight=False)
    if code := run_stops(tour_stops(config, data, console), pace, console):
        return code
    console.print()
    console.rule("next")
    console.print("Open a report above in a browser, then try your own checkpoint:", highlight=False)
    console.print("  strobe breakdown --policy.path=FOLDER --dataset.root=DATASET", highlight=False)
    console.print("  strobe optimize --policy.path=FOLDER --dataset.root=DATASET", highlight=False)
    console.print("  strobe compare --policy.path=FOLDER --rtc.execution_horizon=20", highlight=False)
    return 0


def run_stops(stops: Sequence[Stop], pace: Pace, console: Console) -> int:
    """Run the stops that end in time, and name the others. Return the exit code of the first that fails, else 0."""
    for number, stop in enumerate(stops, 2):
        console.print()
        console.rule(f"{number}  {stop.title}")
        if stop.lacking:
            console.print(f"left out: {stop.lacking}", highlight=False)
            continue
        argv = stop.argv(pace.times_as_long)
        if not pace.fits(stop.usual_s):
            takes = f"it would take about {pace.expected_s(stop.usual_s):.0f} s on this machine, which is busy now"
            console.print(f"left out: {takes}, and the tour ends within {LIMIT_S / 60:.0f} min. For later:")
            console.print(f"$ strobe {shlex.join(argv)}", highlight=False)
            continue
        console.print(f"$ strobe {shlex.join(argv)}", highlight=False)
        with root_logger_restored():
            code = stop.run(argv[1:])
        if code:
            return code
        pace.note_stop(stop.usual_s)
    return 0


def tour_stops(config: TourConfig, data: Path, console: Console) -> list[Stop]:
    """Return the stops after the recording, in their order."""
    shared = [f"--output_dir={config.output_dir}", f"--policy.size={'tiny' if config.tiny else 'full'}"]
    frames = [f"--dataset.root={data}", *shared]
    act = ["breakdown", "--policy.type=act", *frames, "--seconds=10"]
    engines = [
        *("--variant", f"OpenVINO: engine=openvino, engine.part={BACKBONE}"),
        *("--variant", f"8 bits: int8_engine=openvino, int8_engine.part={BACKBONE}"),
    ]

    def compare_arguments(times_as_long: float) -> list[str]:
        seconds = COMPARE_S * min(times_as_long, LONGER)
        return ["compare", "--policy.type=act", *engines, *frames, f"--seconds={seconds:.0f}"]

    return [
        Stop("where does ACT's time go?", 17.0, lambda _: act, breakdown.run),
        Stop(
            "is ACT faster in OpenVINO, and does it act the same?",
            48.0,
            compare_arguments,
            compare.run,
            _lacking_engines(),
        ),
        Stop(
            "what does a training wait for?",
            25.0,
            lambda times_as_long: _training(config, data, STEPS if times_as_long < LONGER else FEWER_STEPS),
            lambda argv: _train(argv, config, console),
        ),
        Stop(
            "does a robot get its actions in time?",
            14.0,
            lambda _: _rehearsal(config, data),
            lambda argv: _rehearse(argv, config, console),
            _lacking_for_rehearsal(),
        ),
        *_stops_of_the_demo(config),
    ]


def _stops_of_the_demo(config: TourConfig) -> list[Stop]:
    lacking = None if find_spec("metaworld") else "it needs a package: pip install 'strobe-lab[metaworld]'"
    data, copy = config.output_dir / "button", config.output_dir / "miswired"
    out, few = f"--output_dir={config.output_dir}", config.tiny
    one = "--threads=1"  # a policy as small as this one is slower on several
    shadowed = Path(demo.NAME).exists()
    policy = f"--policy.path={demo.CHECKPOINT if shadowed else demo.NAME}"
    play = [policy, demo.SIMULATOR] if shadowed else [policy]
    delayed = ["evaluate", *play, "--realtime", "--latency=0,100", f"--episodes={2 if few else 30}"]
    tuned = ["tune", *play, "--latency=100", "--inference.type=sync", f"--pairs={8 if few else 30}"]
    wired = [f"--dataset.root={data}", "--seconds=5", out]
    return [
        Stop("does a trained policy succeed if each call takes 100 ms?", 10.0,
             lambda _: [*delayed, "--videos=1", one, out], lambda argv: _run("evaluate", argv), lacking),
        Stop("which settings work at 100 ms?", 10.0,
             lambda _: [*tuned, f"--starts={8 if few else 16}", one, out], lambda argv: _run("tune", argv), lacking),
        Stop("do the checkpoint and its data match?", 5.0, lambda _: ["preflight", policy, *wired],
             lambda argv: _preflight(argv, data), lacking),
        Stop("is a copy without its statistics refused?", 4.0, lambda _: ["preflight", f"--policy.path={copy}", *wired],
             lambda argv: _show_refusal(argv, data, copy), lacking),
    ]  # fmt: skip


def _run(command: str, argv: list[str]) -> int:
    # Seconds of imports, which a wrong flag should not wait for.
    return slices.load(slices.commands()[command].module).run(demo.spelt_out(command, argv))


def _preflight(argv: list[str], data: Path) -> int:
    """Run preflight, once the demo's data is recorded."""
    if not (data / "meta" / "info.json").exists():
        record(RecordConfig(root=data, env="metaworld_state", episodes=20))
    return _run("preflight", argv)


def _show_refusal(argv: list[str], data: Path, copy: Path) -> int:
    """Run preflight of a copy of the demo that has lost its statistics: refused, as it should be, it ends with 1."""
    shutil.copytree(demo.CHECKPOINT, copy, dirs_exist_ok=True)
    file = copy / "policy_preprocessor.json"
    steps = parse_json(file.read_text())
    for step in steps["steps"]:
        step.pop("state_file", None)
    file.write_text(json.dumps(steps, indent=2))
    code = _preflight(argv, data)
    return 0 if code == 1 else code


def _lacking_engines() -> str | None:
    if find_spec("openvino") is None or find_spec("nncf") is None:
        return "it needs a package: pip install 'strobe-lab[openvino]'"
    return None


def _lacking_for_rehearsal() -> str | None:
    if sys.platform != "linux" or find_spec("scservo_sdk") is None or find_spec("lerobot_camera_strobe") is None:
        return "a rehearsal needs Linux, `strobe-lab[robot]` and the package lerobot_camera_strobe"
    return None


def _rehearsal(config: TourConfig, data: Path) -> list[str]:
    """Return the command of ten seconds of lerobot-rollout on an emulated arm, whose camera shows the dataset."""
    camera = "{type: opencv, index_or_path: 0, fps: 30, width: 160, height: 120}"
    theirs = ["--robot.type=so101_follower", f"--robot.cameras={{front: {camera}}}", "--policy.type=smolvla"]
    theirs += ["--inference.type=rtc", "--inference.rtc.execution_horizon=10", "--task=push", "--device=cpu"]
    theirs += [f"--duration={2 if config.tiny else 10}", "--play_sounds=false", "--return_to_initial_position=false"]
    return ["rehearse", f"--output_dir={config.output_dir}", f"--frames={data}", "--", *theirs]


def _rehearse(argv: list[str], config: TourConfig, console: Console) -> int:
    """Run the rehearsal, whose LeRobot's log goes to a file. Return the exit code; 0 where a busy machine failed it."""
    log = config.output_dir / "rehearsal.log"
    with shown_if_slow("lerobot-rollout", QUIET_S), log.open("w") as file, contextlib.redirect_stderr(file):
        code = rehearse.run(argv)
    logging.getLogger().handlers.clear()  # LeRobot's write to the file that is closed now
    console.print(f"lerobot-rollout's own log: {log}", highlight=False)
    if code == 1:
        console.print("This rehearsal failed: on a busy machine LeRobot's driver can miss an answer within its 50 ms.")
        return 0
    return code


def _training(config: TourConfig, data: Path, steps: int) -> list[str]:
    names = ("training" if n == 1 else f"training-{n}" for n in range(1, 1000))
    folder = next(config.output_dir / name for name in names if not (config.output_dir / name).exists())
    theirs = [f"--dataset.repo_id=local/{data.name}", f"--dataset.root={data}", f"--output_dir={folder}"]
    theirs += ["--policy.type=act", "--policy.device=cpu", "--policy.push_to_hub=false", "--batch_size=2"]
    theirs += [
        "--policy.pretrained_backbone_weights=null",
        f"--steps={steps}",
        "--num_workers=1",
        "--save_checkpoint=false",
    ]
    if config.tiny:
        theirs += ["--policy.dim_model=64", "--policy.n_heads=4", "--policy.dim_feedforward=64"]
    return ["train", f"--output_dir={config.output_dir}", "--", *theirs]


def _train(argv: list[str], config: TourConfig, console: Console) -> int:
    folder = Path(next(flag for flag in reversed(argv) if flag.startswith("--output_dir=")).partition("=")[2])
    log = config.output_dir / f"{folder.name}.log"
    with shown_if_slow("lerobot-train", QUIET_S), log.open("w") as file, contextlib.redirect_stderr(file):
        code = train.run(argv)
    logging.getLogger().handlers.clear()  # LeRobot's write to the file that is closed now
    console.print(f"lerobot-train's own log: {log}", highlight=False)
    return code


run = Command("tour", __doc__, TourConfig, None, tour, bar=False, heavy="timed", gives_way=True)


def main() -> int:
    """Run the tour. Return its exit code, as a command of Strobe has it."""
    quicken()
    argv = sys.argv[1:]
    if requested_help(argv):
        print(run.help("all"))
        return 0
    try:
        return run(argv)
    except UserError as error:
        print(f"tour: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    code = main()
    leave(code, "lerobot")
    sys.exit(code)
