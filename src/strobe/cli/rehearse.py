"""strobe rehearse: what would happen on the robot, tried without it?

Runs `lerobot-rollout` as it is, with the arguments that the robot gets, and watches it as `strobe rollout` does. All
is real, the policy, the loop, LeRobot's driver, but the arm: servos of an SO, Koch or OMX arm, or of two SO arms, are
emulated behind a serial port, with your calibration where you have one. Cameras replay a recording at their own rate
(--frames), show a test pattern without one, or are your own (--frames=live).

The first word after -- chooses another loop of LeRobot, lerobot-record or lerobot-teleoperate. Its leader is an
emulated arm as well, whose joints a hand swings slowly. A data set that a rehearsal records goes to a temporary folder,
and never to the Hub.

It ends by telling how the servos were left: torque, lock, goal. And it tries what nobody wants to try on an arm: lost
answers, a dead servo, a camera that freezes, an inference of 700 ms, Ctrl-C at a bad moment.

Faults (--fault=KIND,key=value, also several):
{faults}

  Those from `lost` to `unplugged` strike requests on the bus, and also take: servo (its id or joint; all), instruction
  (sync_read unless told; sync_write, read, write, ping), when (second of the loop, 1 unless told; 'connect' or 'end'),
  after (requests that pass first), count (requests that it strikes; null is for ever), arm (teleop for the leader; of
  two arms left unless told, right, 'teleop left', 'teleop right'). A camera's seconds begin when it connects.

No checkpoint yet? --policy.type=act (or smolvla, …) after the -- makes a tiny one of random weights for the robot;
--policy.size=full makes a full one.

Examples:
  strobe rehearse -- --robot.type=so101_follower --policy.type=act --task=push --duration=10
  strobe rehearse -- --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.id=my_arm --robot.cameras="{{…}}" \\
      --policy.path=FOLDER --task="pick up the cube" --duration=10
  strobe rehearse --frames=my/dataset --fault=late --fault=inference,ms=700,call=0 -- …
  strobe rehearse -- --robot.type=koch_follower --policy.type=act --task=push --duration=10
  strobe rehearse --fault=error-bits,servo=gripper,when=end -- …      is torque left on?
  strobe rehearse -- lerobot-teleoperate --robot.type=koch_follower --teleop.type=koch_leader --teleop_time_s=10
  strobe rehearse --fault=inference,like=runs/RUN -- …                calls as slow as in another run

Linux only. Exit code: 0, 1 when the run failed, 2 for wrong input, 130 when it was interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strobe.cli import rollout
from strobe.cli.bounds import at_least
from strobe.cli.live import importing
from strobe.cli.parse import help_text, pairs, parse, split_lerobot, take_repeated
from strobe.errors import UserError
from strobe.findings.thresholds import Thresholds
from strobe.lerobot.argument_names import check
from strobe.results.recorded import beside

PLAYED = ("lerobot-rollout", "lerobot-record", "lerobot-teleoperate")


@dataclass
class RehearseConfig:
    # A recording that the cameras show: a video, a LeRobotDataset's folder, or 'live'. --frames.NAME=… is for one.
    frames: str | None = None
    # Episode of the dataset.
    episode: int = field(default=0, metadata=at_least(0))
    # Milliseconds that the emulated USB adapter adds to each answer; Linux's own setting is often 16.
    latency_ms: float = field(default=1.0, metadata=at_least(0))
    # 1: the policy's parts; 2: their blocks; 3: the inside of blocks.
    depth: int = field(default=1, metadata=at_least(1))
    # Seconds that are recorded; after them the run goes on without Strobe.
    record_s: int = field(default=1800, metadata=at_least(1))
    # Keep each tick's joint numbers and camera frames (JPEG) for `strobe replay`: about 2 MB/s for each 640x480 camera.
    observations: bool = False
    # Afterwards, call the policy on the bench as well, about ten seconds: what do robot, cameras and threads cost it?
    bench: bool = False
    # Where run folders go.
    output_dir: Path = Path("runs")
    # Limits at which findings fire, e.g. --thresholds.seam_jump=5
    thresholds: Thresholds = field(default_factory=Thresholds)


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring."""
    ours, theirs = split_lerobot(argv)
    if {"-h", "--help"} & set(ours):
        from strobe.emulator.rehearsal.faults import listed

        print(help_text((__doc__ or "").format(faults=listed()), RehearseConfig))
        return 0
    faults, ours = take_repeated(ours, "--fault")
    frames = {name.removeprefix("--frames."): value for name, value in pairs(ours) if name.startswith("--frames.")}
    ours = [
        name if value is None else f"{name}={value}"
        for name, value in pairs(ours)
        if name.removeprefix("--frames.") not in frames
    ]
    config = parse(RehearseConfig, ours)
    for name, value in frames.items():
        if value is None:
            raise UserError(f"--frames.{name} needs a value: a video, a dataset's folder or 'live'")
    if theirs is None:
        raise UserError(
            "lerobot-rollout's arguments come after --: strobe rehearse -- --robot.type=so101_follower "
            "--robot.port=/dev/ttyACM0 --policy.path=FOLDER"
        )
    from strobe.loops.registry import ROLLOUT, chosen

    command, arguments = chosen(theirs)
    if command not in PLAYED:
        raise UserError(f"a rehearsal plays {', '.join(PLAYED[:-1])} and {PLAYED[-1]}, not {command}")
    if command == ROLLOUT:
        check(arguments, command, new_policy=True)
    elif config.observations:
        raise UserError(f"--observations is for a replay of {ROLLOUT}: {command} leaves none to replay")
    elif config.bench:
        raise UserError(f"--bench calls the policy of {ROLLOUT}: {command} asks none")
    started = time.monotonic()
    with importing():
        from strobe.studies.rollout.rehearsed import rehearse

    events = rollout.events_file(config.output_dir)
    shown = {name: value for name, value in frames.items() if value is not None}
    found = rehearse(
        arguments,
        events,
        frames=shown | ({"": config.frames} if config.frames else {}),
        episode=config.episode,
        faults=faults,
        latency_ms=config.latency_ms,
        depth=config.depth,
        record_s=config.record_s,
        observations=beside(events) if config.observations else None,
        command=command,
    )
    if config.bench:
        rollout.benched(found)
    return rollout.kept(config, found, ["rehearse", *argv], theirs, started, events)
