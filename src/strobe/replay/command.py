"""strobe replay: what would other settings have done in a recorded rollout?

Replays a run of `strobe rollout` or `strobe rehearse` in simulated time, within seconds: the recorded control ticks and
latencies, and LeRobot's own inference engine, queue and latency tracker. RUN is the run's folder.

It compares the recording with three replays. The first has the recorded settings, and checks the replay itself. The
second has the settings that you give by lerobot-rollout's own flags. The third is an ideal loop, whose calls take no
time and whose ticks are never late. A fault that the ideal loop shows too is the policy's. The report names the
smallest queue threshold that does not starve the robot. If the run jumps from chunk to chunk, it says why.

Examples:
  strobe replay RUN --inference.queue_threshold=40 --fps=20
  strobe replay RUN --latency=x0.5

More:
Flags of lerobot-rollout that you can change: --fps, --inference.type, --inference.queue_threshold, --inference.rtc.…,
--interpolation_multiplier, --policy.n_action_steps; with --observations also --policy.path, --policy.…, --device and
--task.

Starvation and the age of observations need no policy. Jumps between chunks need one: if the run was recorded with
--observations, Strobe loads the policy and calls it again on the recorded observations. The arm follows its recorded
path. If you did not record the run on this machine, Strobe loads its policy only if you name it with --policy.path.

Further examples:
  strobe replay RUN                                             loop or policy at fault, and the smallest threshold
  strobe replay RUN --latency=+20                               calls 20 ms longer; 120: all 120 ms
  strobe replay RUN --latency=OTHER                             the latencies of another rollout, on another machine
  strobe replay RUN --rtc_version=4454                          Real-Time Chunking with LeRobot's pull request 4454
  strobe replay RUN --inference_delay=4 --inference.rtc.execution_horizon=20
  strobe replay RUN --recipe=recipe.yaml --latency=x0.6         jumps of the policy with that recipe

Ctrl-C ends the replay and saves the part so far. Exit code: 0; 2 for wrong input; 130 if it was interrupted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import choice_bound, minimum_bound, positional
from strobe.core.cli.flags import OutputFlags, flag_values
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import format_argument, pairs, parse, take_positional
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.loops.files import events_path
from strobe.replay.results import Changes, is_lerobots


@dataclass
class ReplayConfig(OutputFlags):
    """Arguments and flags of `strobe replay`."""

    # The folder of a `strobe rollout`.
    rollout: Path | None = field(default=None, metadata=positional("RUN"))
    # Latencies of the policy's calls: recorded, x0.5, +20 or 120 (ms), or another rollout's folder.
    latency: str = "recorded"
    # The delay that Real-Time Chunking assumes: max (of all latencies, as LeRobot does), p95, or a number of actions.
    inference_delay: str | None = None
    # LeRobot's Real-Time Chunking: as installed, or with its pull request 4454, which merges chunks by the executed
    # actions, does not count the first call's latency, and fills a short prefix with its last action.
    rtc_version: str = field(default="installed", metadata=choice_bound("installed", "4454"))
    # A recipe (YAML file) for the policy. Needs a run with --observations.
    recipe: Path | None = None
    # Number of replays with drawn latencies, for the intervals; fewer if the run is long.
    draws: int = field(default=100, metadata=minimum_bound(1))
    # Most policy calls with each setting; 0: no calls.
    calls: int = field(default=200, metadata=minimum_bound(0))
    # Seed of the draws and of the policy's noise, the same with each setting.
    seed: int = field(default=0, metadata=minimum_bound(0))
    theirs: dict[str, str] = field(init=False, default_factory=dict)  # flags of lerobot-rollout to change

    @property
    def changes(self) -> Changes:
        """The changes of the rollout's settings."""
        return Changes(
            lerobot=self.theirs,
            latency=self.latency,
            delay=self.inference_delay,
            fixed=self.rtc_version == "4454",
            recipe=self.recipe.name if self.recipe is not None else "",
        )


def read(argv: Sequence[str]) -> ReplayConfig:
    """Return the command's flags, checked. Raises UserError."""
    words, flags = take_positional(ReplayConfig, [argument for argument in argv if argument != "--"])
    if not words:
        raise UserError("name the rollout's folder: strobe replay RUN (the folder that `strobe rollout` wrote)")
    ours, theirs = words, {}
    for name, value in pairs(flags):
        if is_lerobots(name[2:]):
            if value is None:
                raise UserError(f"{name} needs a value")
            theirs[name[2:]] = value
        else:
            ours.append(format_argument(name, value))
    config = parse(ReplayConfig, ours, extra=["--fps", "--inference.type", "--inference.queue_threshold"])
    assert config.rollout is not None
    events_path(config.rollout)  # raises UserError where there are none
    config.theirs = theirs
    return config


def study(config: ReplayConfig, live: Live) -> Studied:
    """Replay the rollout. Raises UserError, and KeyboardInterrupt if nothing was replayed by then."""
    with importing():
        from strobe.core.measure.sampling import Progress
        from strobe.replay.run import Options, replay

    assert config.rollout is not None
    started = time.monotonic()

    def tell(done: int, of: int) -> None:
        live.progress(Progress(done, of, time.monotonic() - started, None, "parts"))

    options = Options(
        draws=config.draws, seed=config.seed, calls=config.calls, recipe=_recipe(config.recipe),
        seam_jump=config.thresholds.seam_jump, stage=live.stage, tell=tell,
    )  # fmt: skip
    result = replay(config.rollout, config.changes, options)
    return Studied(result, {"replay": flag_values(config) | config.theirs}, config.output_dir, config.thresholds)


def _recipe(file: Path | None) -> Callable[[], contextlib.AbstractContextManager[object]] | None:
    if file is None:
        return None
    from strobe.deploy import loading

    loading.read(file)  # raises UserError for an invalid recipe
    return lambda: loading.attach_recipe_on_load(file)


run = Command("replay", __doc__, ReplayConfig, read, study)
