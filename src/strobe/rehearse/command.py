r"""strobe rehearse: what would happen on the robot?

Runs `lerobot-rollout` unchanged, with the robot's arguments, and watches it as `strobe rollout` does. Policy, loop and
LeRobot's driver are real. Strobe emulates the arm: the servos of an SO, Koch or OMX arm, or of two SO arms, behind a
serial port, with your calibration if there is one. Cameras replay a recording (--frames), show a test pattern, or are
your own (--frames=live). The report also shows the servos' torque at the end.

You need no robot and no checkpoint: --policy.type=act (or smolvla, …) after the -- makes a tiny policy with random
weights. --fault plants faults that nobody wants to try on an arm: lost answers, a dead servo, a frozen camera, a slow
call. It takes as long as --duration. Linux only.

Examples:
  strobe rehearse -- --robot.type=so101_follower --policy.type=act --task=push --duration=10
  strobe rehearse --fault=late --fault=inference,ms=700,call=0 -- --robot.type=so101_follower --policy.path=FOLDER …

More:
Faults (--fault=KIND,key=value; repeat the flag for several):
{faults}

  Faults from `lost` to `unplugged` strike requests on the bus, and also take: servo (its id or joint; default all),
  instruction (sync_read by default; sync_write, read, write, ping), when (second of the loop, default 1; 'connect' or
  'end'), after (requests that pass first), count (requests that it strikes; null: all), arm (teleop for the leader; of
  two arms left by default, right, 'teleop left', 'teleop right'). A camera's seconds begin when it connects.

Before it starts, Strobe reads the checkpoint as `strobe preflight` does, and shows serious faults. If the first action
may be wrong, no servo gets torque, unless you give --anyway. --policy.size=full makes a full-size policy.

The first word after -- chooses another loop of LeRobot, lerobot-record or lerobot-teleoperate. The leader is then an
emulated arm too, and an emulated hand swings its joints slowly. A data set that a rehearsal records goes to a temporary
folder, and never to the Hub.

Further examples:
  strobe rehearse -- --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.id=my_arm --robot.cameras="{{…}}" \
      --policy.path=FOLDER --task="pick up the cube" --duration=10
  strobe rehearse --frames=my/dataset --dataset.root=my/dataset -- …  also what the policy has learnt of it
  strobe rehearse -- --robot.type=koch_follower --policy.type=act --task=push --duration=10
  strobe rehearse --fault=error-bits,servo=gripper,when=end -- …      does torque stay on?
  strobe rehearse -- lerobot-teleoperate --robot.type=koch_follower --teleop.type=koch_leader --teleop_time_s=10
  strobe rehearse --fault=inference,like=runs/RUN -- …                calls as slow as in another run

Exit code: 0; 1 if the run failed or did not start; 2 for wrong input; 130 if it was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from strobe.core.cli.bounds import minimum_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import format_argument, pairs, parse, require_lerobot, split_lerobot, take_repeated
from strobe.core.cli.placeholders import option_names
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.lerobot.flags.argument_names import check, join_flag_values
from strobe.loops.files import observations_folder
from strobe.loops.registry import load_loop
from strobe.preflight.command import DataFlags, check_training_set
from strobe.rollout.command import (
    ChosenLoop,
    choose_loop,
    events_file,
    first_look,
    look_at_wiring,
    measure_on_bench,
    refuse_start,
    say_serious,
    studied_rollout,
)

PLAYED = ("lerobot-rollout", "lerobot-record", "lerobot-teleoperate")


@dataclass
class RehearseConfig(OutputFlags):
    """Flags of `strobe rehearse`."""

    # The recording for the cameras: a video, a LeRobotDataset's folder, or 'live'. --frames.NAME=… sets that of one
    # camera.
    frames: str | None = None
    # Episode of the data set in --frames.
    episode: int = field(default=0, metadata=minimum_bound(0))
    # Milliseconds that the emulated USB adapter adds to each answer; Linux's own setting is often 16.
    latency_ms: float = field(default=1.0, metadata=minimum_bound(0))
    # 1: the policy's parts; 2: their blocks; 3: the inside of blocks.
    depth: int = field(default=1, metadata=minimum_bound(1))
    # Seconds to record. After them the run goes on without Strobe.
    record_s: int = field(default=1800, metadata=minimum_bound(1))
    # Start even if policy and robot do not match, and the first action may be wrong.
    anyway: bool = False
    # Save each tick's joint numbers and camera frames (JPEG) for `strobe replay`: about 2 MB/s for each 640x480 camera.
    observations: bool = False
    # The policy's training set: --dataset.root=DATA. It is compared with policy and robot, as by `strobe preflight`.
    # After the run the policy also runs on its frames, for up to 45 s: what did it learn?
    dataset: DataFlags = field(default_factory=DataFlags)
    # After the run, also call the policy without the robot, for about ten seconds. That shows what robot, cameras and
    # threads cost.
    bench: bool = False
    shown: dict[str, str] = field(init=False, default_factory=dict)  # camera → what it shows; '' for all others
    faults: list[str] = field(init=False, default_factory=list)  # as --fault has them
    loop: ChosenLoop = field(init=False)  # that is played


def read(argv: Sequence[str]) -> RehearseConfig:
    """Return the command's flags, checked. Raises UserError."""
    ours, after = split_lerobot(argv)
    faults, ours = take_repeated(ours, "--fault")
    frames, rest = {}, []
    for name, value in pairs(ours):
        if not name.startswith("--frames."):
            rest.append(format_argument(name, value))
        elif value is None:
            raise UserError(f"{name} needs a value: a video, a data set's folder or 'live'")
        else:
            frames[name.removeprefix("--frames.")] = value
    config = parse(RehearseConfig, rest, extra=["--fault"], behind=PLAYED[0])
    example = "rehearse -- --robot.type=so101_follower --robot.port=/dev/ttyACM0 --policy.path=FOLDER"
    theirs = require_lerobot(after, "lerobot-rollout", example)
    chosen = choose_loop(theirs, config.observations)
    if chosen.command not in PLAYED:
        raise UserError(f"a rehearsal can run {', '.join(PLAYED[:-1])} and {PLAYED[-1]}, not {chosen.command}")
    if chosen.command == "lerobot-rollout":
        check(chosen.arguments, chosen.command, new_policy=True, ours=option_names(RehearseConfig))
    elif config.bench:
        raise UserError(f"--bench calls a policy, and {chosen.command} has none: remove it")
    trained = chosen.command == "lerobot-rollout" and _has_checkpoint(chosen.arguments)
    check_training_set(config.dataset, of_checkpoint=trained)
    config.shown = frames | ({"": config.frames} if config.frames else {})
    config.faults, config.loop = faults, chosen
    return config


def study(config: RehearseConfig, live: Live) -> Studied:
    """Play the loop on an emulated arm and watch it. Raises UserError for what cannot be staged."""
    with importing():
        from strobe.loops.first_look import FirstLook
        from strobe.rehearse.run import rehearse
        from strobe.rehearse.stage import RehearsalOptions

    chosen, look = config.loop, None
    if _has_checkpoint(chosen.arguments):
        chosen = _parse_loop(chosen)
        look = look_at_wiring(chosen, config.dataset.root)
        if not config.anyway and (refusal := refuse_start(look, "rehearse", config, chosen.theirs)):
            return refusal
    say_serious(look, live)
    events = events_file(config.output_dir)
    with FirstLook(first_look(look, live, filmed=config.shown)):
        watched = rehearse(
            chosen.arguments,
            events,
            RehearsalOptions(
                frames=config.shown,
                episode=config.episode,
                faults=config.faults,
                latency_ms=config.latency_ms,
            ),
            depth=config.depth,
            record_s=config.record_s,
            observations=observations_folder(events) if config.observations else None,
            command=chosen.command,
            config=chosen.config,
        )
    if config.bench:
        measure_on_bench(watched, live)
    studied = studied_rollout("rehearse", config, watched, chosen.theirs, events, look=look)
    if look is not None and (root := config.dataset.root) is not None and watched.result.status == "complete":
        with live:
            look.add_frames(watched.result, root, config.dataset.episodes, live)
    return studied


def _has_checkpoint(arguments: Sequence[str]) -> bool:
    names = {name for name, _ in pairs(arguments)}
    return "--policy.type" not in names and bool({"--policy.path", "--config_path"} & names)


def _parse_loop(chosen: ChosenLoop) -> ChosenLoop:
    """Return the loop with a port for each arm, and with LeRobot's config. Raises UserError for what it refuses."""
    with importing():
        from strobe.rehearse.emulator.arms import add_ports

        loop = load_loop(chosen.command)
    arguments = add_ports(join_flag_values(chosen.arguments, chosen.command))
    return replace(chosen, arguments=arguments, config=loop.check(arguments))


def help_words() -> str:
    """Return the help's text, with each fault, what it does and takes."""
    from strobe.rehearse.faults import fault_kinds_help

    return (__doc__ or "").format(faults=fault_kinds_help())


run = Command("rehearse", help_words, RehearseConfig, read, study, bar=False, heavy="timed")
