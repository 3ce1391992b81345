r"""strobe rollout: does the robot get its actions in time?

Runs `lerobot-rollout` unchanged, with the arguments after --, and watches it: the control loop, the inference thread,
the action queue between them, each camera and motor bus, the processors and the policy's parts. The report shows the
rate of the loop, control ticks without an action, the age of each action's observation, the delay that Real-Time
Chunking assumed and the actual delay, and jumps between chunks. It names the flag and the value that fix a fault.

The robot gets the same commands as without Strobe. Before the run Strobe reads the checkpoint as `strobe preflight`
does. If the first action may be wrong, the run does not start, unless you give --anyway. Half a minute of recording is
enough. Afterwards Strobe calls the policy for about ten seconds without the robot (--bench=false skips that).

Examples:
  strobe rollout -- --robot.type=so101_follower --robot.port=/dev/ttyACM0 --policy.path=FOLDER --task=push --duration=60
  strobe rollout -- lerobot-record --robot.type=so101_follower … --teleop.type=so101_leader … --dataset.repo_id=ME/CUBE

More:
Other loops. The first word after -- chooses another loop of LeRobot. For lerobot-record and lerobot-teleoperate the
report shows rate and recording in the same way. For remote inference (lerobot.async_inference), robot_client or
policy_server, it shows the parts of a round trip, the observations that the server drops, and the effect of JPEG. Run
both sides in Strobe, and the client's report shows the server's steps too, on one clock. If a probe cannot be attached,
the robot runs without it.

The bench. After the run, when the robot is at rest and disconnected, Strobe calls the policy on the last observation:
back to back, and at the pace of the run. The report then says "25 ms on the bench, 41 ms on the robot", and how much of
the difference comes from clocks, other threads, the GIL or other causes. Ctrl-C ends that part.

The end of a run. Ctrl-C and SIGTERM end the run as LeRobot ends it: the control tick ends, the arm returns to its
start, and the robot is disconnected. LeRobot's other loops only handle Ctrl-C, and a SIGTERM ends them with torque on.
Under Strobe a SIGTERM ends them as Ctrl-C does, which is the normal end of teleoperation, client and server. Strobe
shows and saves the recording so far. A killed run leaves a file of events: --events reads it.

Further examples:
  strobe rollout --depth=2 -- --inference.type=rtc --inference.rtc.execution_horizon=10 …
  strobe rollout -- lerobot-teleoperate --robot.type=so101_follower … --teleop.type=so101_leader … --teleop_time_s=30
  strobe rollout -- policy_server --host=0.0.0.0 --port=8080
  strobe rollout -- robot_client --server_address=HOST:8080 --robot.type=so101_follower … --policy_type=act \
      --pretrained_name_or_path=FOLDER --actions_per_chunk=50
  strobe rollout --events=runs/rollout-4711.events              the answer of a run that was killed
  strobe rollout --observations -- …                            for a `strobe replay` that calls the policy again

The run's folder contains the events: `strobe replay RUN` predicts the run with other settings from them. Exit code: 0;
1 if the run failed or did not start; 2 for wrong input; 130 if it was interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.cli.bounds import minimum_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import parse, require_lerobot, split_lerobot
from strobe.core.cli.placeholders import option_names
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.lerobot.flags.argument_names import check
from strobe.loops.files import leave, observations_folder
from strobe.loops.registry import ROLLOUT, load_loop, split_command

if TYPE_CHECKING:
    from strobe.preflight.wiring.of_run import WiringLook
    from strobe.rollout.run import WatchedRollout


@dataclass(frozen=True)
class ChosenLoop:
    """A loop of LeRobot that a command line chooses.

    Args:
        theirs: all arguments after ``--``.
        command: the loop, of `strobe.loops.registry.NAMES`.
        arguments: the loop's own: ``theirs`` without the word that chooses the loop.
        config: LeRobot's config of ``arguments``. None: they are not parsed yet.
    """

    theirs: list[str]
    command: str
    arguments: list[str]
    config: Any = None


def choose_loop(theirs: Sequence[str], observations: bool) -> ChosenLoop:
    """Return the loop that the arguments after ``--`` name, without a config.

    Args:
        observations: whether observations are recorded, which only a replay of lerobot-rollout reads.

    Raises:
        UserError: an unknown loop, or observations of another one.
    """
    command, arguments = split_command(theirs)
    if observations and command != ROLLOUT:
        raise UserError(f"--observations is for a replay of {ROLLOUT}, and {command} cannot be replayed: remove it")
    return ChosenLoop(list(theirs), command, arguments)


def events_file(output_dir: Path) -> Path:
    """Return where the events of this process's rollout go while it runs."""
    return output_dir / f"rollout-{os.getpid()}-{time.time_ns() // 1_000_000_000}.events"


def refuse_start(look: WiringLook, name: str, config: OutputFlags, theirs: Sequence[str]) -> Studied | None:
    """Return the answer of the command ``name`` where it is not started: the findings, and exit code 1.

    None if the first action is not known to be a wrong one.
    """
    from strobe.preflight.findings.wiring import dangerous
    from strobe.preflight.run import make_answer

    if look.wiring is None or not dangerous(look.wiring):
        return None
    options = {name: config, "lerobot-rollout": list(theirs)}
    result = make_answer(look.wiring, refused=f"strobe {name}")
    return Studied(result, options, config.output_dir, config.thresholds, code=1)


def say_serious(look: WiringLook | None, live: Live) -> None:
    """Print what is serious in the wiring of a run that starts all the same, before a servo has torque."""
    if look is None or look.wiring is None:
        return
    from strobe.core.results.units import plain
    from strobe.preflight.findings.wiring import wiring_findings

    for finding in wiring_findings(look.wiring):
        if finding.level == "warning":
            live.say(plain(f"! {finding.title}. {finding.found}"))


def first_look(
    look: WiringLook | None, live: Live, filmed: Collection[str] | None = None
) -> Callable[[Mapping[str, Any], bool], None] | None:
    """Return what compares the first observation with the training, and prints what is wrong; None without a wiring.

    Args:
        filmed: cameras of a rehearsal that show recorded or live images, '' for all. None: all do.
    """
    wiring = look.wiring if look is not None else None
    if wiring is None:
        return None

    def judge(observation: Mapping[str, Any], before_torque: bool) -> None:
        from strobe.core.results.units import plain
        from strobe.preflight.findings.fed import first_observation_findings
        from strobe.preflight.wiring.fed import add_first

        add_first(wiring, observation, filmed)
        when = "Before the arm has torque" if before_torque else "Before the first action; the arm may have torque"
        for finding in first_observation_findings(wiring):
            live.say(plain(f"! {when}: {finding.title}. {finding.found}"))
        wiring.fed = None  # of the whole run, once it is over

    return judge


def look_at_wiring(chosen: ChosenLoop, dataset: Path | None = None) -> WiringLook:
    """Read the wiring of a checkpoint that lerobot-rollout is to run; no port is opened.

    Args:
        chosen: with its config; other loops than lerobot-rollout ask no policy.
        dataset: the folder of a LeRobotDataset, whose wiring is read too.
    """
    from strobe.preflight.wiring.of_run import WiringLook, wiring_of_rollout

    if chosen.command != ROLLOUT:
        return WiringLook()
    with importing():
        from strobe.lerobot.flags.argument_names import join_flag_values
    return wiring_of_rollout(chosen.config, join_flag_values(chosen.arguments, chosen.command), dataset)


def measure_on_bench(watched: WatchedRollout, live: Live) -> None:
    """Call the run's policy on the bench, if it is still loaded. An interrupt ends that, and not the command."""
    if watched.calls is None:
        return
    from strobe.rollout.run import bench

    with contextlib.suppress(KeyboardInterrupt), live:  # the run's own answer is there already
        bench(watched, live)


def studied_rollout(
    name: str,
    config: OutputFlags,
    watched: WatchedRollout,
    theirs: Sequence[str],
    events: Path,
    *,
    look: WiringLook | None = None,
    remove: bool = True,
) -> Studied:
    """Return the answer of a watched rollout, whose folder gets its ``events``.

    Args:
        name: the command's.
        look: what was read of its wiring.
        remove: whether the file of events is deleted once they are in the folder.
    """

    def save_events(folder: Path | None) -> Iterator[str]:
        assert folder is not None
        if watched.result.rollout.engine not in ("sync", "rtc"):  # nothing to replay
            if remove:
                events.unlink(missing_ok=True)
            return
        saved = list(leave(events, folder, remove=remove))
        yield from (f"{what:<7}  {file}" for file, what in saved)
        if saved:
            yield f"again    strobe replay {folder}"

    if look is not None:
        if look.wiring is not None and watched.result.rollout.first_action:
            from strobe.preflight.wiring.fed import add_fed

            joints = [each.joint for each in watched.result.rollout.first_action]
            add_fed(look.wiring, joints, [tick.at for tick in watched.record.ticks])
        look.extend_result(watched.result)
    sys.stderr.flush()
    print()
    options = {name: config, "lerobot-rollout": list(theirs)}
    return Studied(watched.result, options, config.output_dir, config.thresholds, [watched.sections], after=save_events)


REFUSED = {"--recipe": "lerobot-rollout takes a recipe from the environment: STROBE_RECIPE=FILE strobe rollout -- …"}


@dataclass
class RolloutConfig(OutputFlags):
    """Flags of `strobe rollout`."""

    # 1: the policy's parts; 2: their blocks; 3: the inside of blocks.
    depth: int = field(default=1, metadata=minimum_bound(1))
    # Seconds to record. After them the run goes on without Strobe.
    record_s: int = field(default=1800, metadata=minimum_bound(1))
    # After the run, with the robot disconnected, call the policy for about 10 s: its latency without the robot.
    bench: bool = True
    # Show the recording of a run that was killed. Give its file of events instead of arguments after --.
    events: Path | None = None
    # Start even if the policy's wiring has a fault with which its first action may already be wrong.
    anyway: bool = False
    # Save each tick's joint numbers and camera frames (JPEG) for `strobe replay`: about 2 MB/s for each 640x480 camera.
    observations: bool = False
    loop: ChosenLoop | None = field(init=False, default=None)  # LeRobot's, with its config; None with --events


def read(argv: Sequence[str]) -> RolloutConfig:
    """Return the command's flags, checked. Raises UserError."""
    ours, after = split_lerobot(argv)
    config = parse(RolloutConfig, ours, refused=REFUSED, behind=ROLLOUT)
    if config.events is not None:
        if after is not None:
            raise UserError("--events shows a run that has ended: remove the arguments after --")
        return config
    theirs = require_lerobot(after, ROLLOUT, "rollout -- --robot.type=… --policy.path=FOLDER")
    chosen = choose_loop(theirs, config.observations)
    if chosen.command == ROLLOUT:
        check(chosen.arguments, ROLLOUT, ours=option_names(RolloutConfig))
    with importing():
        loop = load_loop(chosen.command)
    # A wrong flag ends in an error of one line, before the robot is connected.
    config.loop = replace(chosen, config=loop.check(chosen.arguments))
    return config


def study(config: RolloutConfig, live: Live) -> Studied:
    """Run the loop and watch it, then call its policy on the bench. With --events show a run that is over."""
    from strobe.rollout.run import recover_rollout, watch

    chosen = config.loop
    if chosen is None:
        assert config.events is not None
        watched = recover_rollout(config.events)
        return studied_rollout("rollout", config, watched, [], config.events, remove=False)
    look = look_at_wiring(chosen)
    if not config.anyway and (refusal := refuse_start(look, "rollout", config, chosen.theirs)):
        return refusal
    say_serious(look, live)
    events = events_file(config.output_dir)
    observations = observations_folder(events) if config.observations else None
    with importing():
        from strobe.loops.first_look import FirstLook
    with FirstLook(first_look(look, live)):
        watched = watch(chosen.arguments, events, config.depth, config.record_s, observations, chosen.command)
    if config.bench:
        measure_on_bench(watched, live)
    return studied_rollout("rollout", config, watched, chosen.theirs, events, look=look)


run = Command("rollout", __doc__, RolloutConfig, read, study, bar=False, heavy="timed")
