"""strobe rollout: does the robot get its actions in time, and what is in the way?

Runs `lerobot-rollout` as it is, with the arguments after --, and watches the control loop, the inference thread and
the queue of actions between them: each camera and motor bus, the processors, the policy's parts, the queue, the sleep.
The first word after -- chooses another loop of LeRobot: lerobot-record or lerobot-teleoperate, whose rate and
recording are told in the same way; or one side of remote inference (lerobot.async_inference), robot_client or
policy_server: what a round trip is made of, what the server drops, and what images as JPEG would buy. Watch both, and
the client's answer tells the server's steps as well, on one clock.
Nothing that the robot is told changes, and where a probe cannot be attached the robot runs without it.

It says which rate the loop held, how long actions lasted and when there were none, how old the observation behind
each action was, which delay Real-Time Chunking assumed and which one happened, how far the arm jumps from chunk to
chunk; and which value of which flag would mend it.

Afterwards, when the robot is at rest and disconnected, the policy is called for about ten seconds more on the last
observation: back to back, and at the pace of the run. So the answer can say "25 ms on the bench, 41 ms here", and which
part of the difference is clocks, other threads, the GIL or the rest. --bench=false leaves that out, as does Ctrl-C.

Ctrl-C and SIGTERM end the run as LeRobot ends it: the tick ends, the arm goes back to its start, the robot is
disconnected. The other loops know only Ctrl-C, and die of a SIGTERM with torque on; here it ends them as Ctrl-C does,
which is the ordinary end of teleoperation, client and server. What was recorded is shown and kept. A run that was
killed leaves a file of events: --events reads it.

Examples:
  strobe rollout -- --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.cameras="{…}" --policy.path=FOLDER \\
      --task="pick up the cube" --duration=60
  strobe rollout --depth=2 -- --inference.type=rtc --inference.rtc.execution_horizon=10 …
  strobe rollout -- lerobot-record --robot.type=so101_follower … --teleop.type=so101_leader … --dataset.repo_id=ME/CUBE
  strobe rollout -- lerobot-teleoperate --robot.type=so101_follower … --teleop.type=so101_leader … --teleop_time_s=30
  strobe rollout -- policy_server --host=0.0.0.0 --port=8080
  strobe rollout -- robot_client --server_address=HOST:8080 --robot.type=so101_follower … --policy_type=act \\
      --pretrained_name_or_path=FOLDER --actions_per_chunk=50
  strobe rollout --events=runs/rollout-4711.events              the answer of a run that was killed
  strobe rollout --observations -- …                            for a `strobe replay` that asks the policy again

The run's folder keeps the events, from which `strobe replay RUN` foretells the run under other settings.
Half a minute says most of it. Exit code: 0, 1 when the run failed, 2 for wrong input, 130 when it was interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.cli.bounds import at_least
from strobe.cli.live import importing
from strobe.cli.parse import help_text, pairs, parse, split_lerobot
from strobe.errors import UserError
from strobe.findings.thresholds import Thresholds
from strobe.lerobot.argument_names import check
from strobe.results.recorded import beside, leave


@dataclass
class RolloutConfig:
    # 1: the policy's parts; 2: their blocks; 3: the inside of blocks.
    depth: int = field(default=1, metadata=at_least(1))
    # Seconds that are recorded; after them the run goes on without Strobe.
    record_s: int = field(default=1800, metadata=at_least(1))
    # Call the policy on the bench once the robot is disconnected, for about 10 s: its latency without the robot beside.
    bench: bool = True
    # Show what a run that was killed had recorded: its file of events, instead of arguments after --.
    events: Path | None = None
    # Keep each tick's joint numbers and camera frames (JPEG) for `strobe replay`: about 2 MB/s for each 640x480 camera.
    observations: bool = False
    # Where run folders go.
    output_dir: Path = Path("runs")
    # Limits at which findings fire, e.g. --thresholds.seam_jump=5
    thresholds: Thresholds = field(default_factory=Thresholds)


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring."""
    ours, theirs = split_lerobot(argv)
    if {"-h", "--help"} & set(ours):
        print(help_text(__doc__ or "", RolloutConfig))
        return 0
    if any(name == "--recipe" for name, _ in pairs(ours)):
        raise UserError("lerobot-rollout takes a recipe from the environment: STROBE_RECIPE=FILE strobe rollout -- …")
    config = parse(RolloutConfig, ours)
    started = time.monotonic()
    if config.events is not None:
        if theirs is not None:
            raise UserError("--events shows a run that is over; it takes no arguments after --")
        from strobe.studies.rollout.watched import recovered

        found = recovered(config.events)
        return kept(config, found, ["rollout", *argv], [], started, config.events, remove=False)
    if theirs is None:
        raise UserError(
            "lerobot-rollout's arguments come after --: strobe rollout -- --robot.type=… --policy.path=FOLDER"
        )
    from strobe.loops.registry import ROLLOUT, chosen, loop_of

    command, arguments = chosen(theirs)
    if config.observations and command != ROLLOUT:
        raise UserError(f"--observations is for a replay of {ROLLOUT}: {command} leaves none to replay")
    if command == ROLLOUT:
        check(arguments, command)
    with importing():
        loop = loop_of(command)
        from strobe.studies.rollout.watched import watch
    loop.check(arguments)  # a wrong flag ends in an error of one line, before the robot is connected

    events = events_file(config.output_dir)
    observed = beside(events) if config.observations else None
    found = watch(arguments, events, config.depth, config.record_s, observed, command)
    if config.bench:
        benched(found)
    return kept(config, found, ["rollout", *argv], theirs, started, events)


def benched(found: Any) -> None:
    """Call the run's policy on the bench, where it is still there; an interrupt ends that, and keeps the run."""
    if found.calls is None:
        return
    from strobe.cli.live import Live
    from strobe.studies.rollout.bench import bench

    with contextlib.suppress(KeyboardInterrupt), Live() as live:  # the run's own answer is there already
        bench(found, live)


def events_file(output_dir: Path) -> Path:
    """Where the events of this process's rollout go while it runs."""
    return output_dir / f"rollout-{os.getpid()}-{time.time_ns() // 1_000_000_000}.events"


def kept(
    config: Any,
    found: Any,
    argv: Sequence[str],
    theirs: Sequence[str],
    started: float,
    events: Path,
    *,
    remove: bool = True,
) -> int:
    """Show a watched rollout and keep it with its ``events``; return the exit code."""
    from strobe.cli.keep import complete, keep, plain, trace_of

    asked = {argv[0]: plain(config), "lerobot-rollout": list(theirs)}
    complete(found.result, argv, started, asked, config.thresholds)
    sys.stderr.flush()
    print()
    folder = keep(found.result, config.output_dir, trace_of(found.result, found.sections))
    if found.result.rollout.engine not in ("sync", "rtc"):  # nothing that a replay could ask
        if remove:
            events.unlink(missing_ok=True)
        return _code(found)
    left = list(leave(events, folder, remove=remove))  # once the answer is kept
    for file, what in left:
        print(f"{what:<7}  {file}")
    if left:
        print(f"again    strobe replay {folder}")
    return _code(found)


def _code(found: Any) -> int:
    return {"complete": 0, "interrupted": 130}.get(found.result.status, 1)
