"""strobe replay: what would a kept rollout have been under other settings, and did its loop starve or its policy err?

Plays the rollout again in virtual time, in seconds: the ticks and the latencies that were recorded, LeRobot's own
inference engine, queue and tracker of latencies. Beside what was recorded it shows the run as it was set up (the check
of the replay itself), as you ask for with lerobot-rollout's own flags, and in an ideal loop, whose calls take no time
and whose ticks are never late: what is bad there too, is the policy's.

RUN is the folder of a `strobe rollout`. Starvation and the age of observations need no policy. The jumps from chunk to
chunk do: for a run recorded with --observations the policy is loaded and asked again, on what the robot saw then. The
arm stays where it was in the recording.

Flags of lerobot-rollout that can be changed: --fps, --inference.type, --inference.queue_threshold, --inference.rtc.…,
--interpolation_multiplier, --policy.n_action_steps; with --observations also --policy.path, --policy.…, --device and
--task.

Examples:
  strobe replay RUN                                             who erred, and the smallest threshold that holds
  strobe replay RUN --inference.queue_threshold=40 --fps=20
  strobe replay RUN --latency=x0.5                              calls half as long; +20: 20 ms longer; 120: all 120 ms
  strobe replay RUN --latency=OTHER                             the latencies of another rollout, on another machine
  strobe replay RUN --rtc_version=4454                          Real-Time Chunking as LeRobot's pull request mends it
  strobe replay RUN --inference_delay=4 --inference.rtc.execution_horizon=20
  strobe replay RUN --recipe=recipe.yaml --latency=x0.6         seams of the policy with these treatments

Ctrl-C keeps what was played. Exit code: 0, 2 for wrong input, 130 when it was interrupted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.cli.bounds import at_least
from strobe.cli.live import Live, importing
from strobe.cli.parse import help_text, pairs, parse
from strobe.errors import UserError
from strobe.findings.thresholds import Thresholds
from strobe.results.recorded import events_of


@dataclass
class ReplayConfig:
    # Latencies of the calls: recorded, x0.5, +20 or 120 (ms), or another rollout's folder.
    latency: str = "recorded"
    # What Real-Time Chunking assumes: max (of all latencies, as LeRobot does), p95, or a number of actions.
    inference_delay: str | None = None
    # LeRobot's Real-Time Chunking as installed, or mended as in its pull request 4454: chunks are merged by what was
    # executed, the first call is left out of the latencies, the last action is held in a short prefix.
    rtc_version: str = "installed"
    # A recipe that is put on the policy. Needs a run with --observations.
    recipe: Path | None = None
    # Replays with drawn latencies for the intervals; fewer of a long run.
    draws: int = field(default=100, metadata=at_least(1))
    # Calls of the policy under each setting, at most; 0: it is not asked.
    calls: int = field(default=200, metadata=at_least(0))
    # Of the draws, and of the policy's noise: the same in each setting.
    seed: int = field(default=0, metadata=at_least(0))
    # Where run folders go.
    output_dir: Path = Path("runs")
    # Limits at which findings fire, e.g. --thresholds.seam_jump=5
    thresholds: Thresholds = field(default_factory=Thresholds)


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring."""
    started = time.monotonic()
    if {"-h", "--help"} & set(argv):
        print(help_text(__doc__ or "", ReplayConfig))
        return 0
    rollout, rest = _which(argv)
    from strobe.studies.replay.asked import Changes, is_lerobots

    ours, theirs = [], {}
    for name, value in pairs([argument for argument in rest if argument != "--"]):
        if is_lerobots(name[2:]):
            if value is None:
                raise UserError(f"{name} needs a value")
            theirs[name[2:]] = value
        else:
            ours.append(name if value is None else f"{name}={value}")
    config = parse(ReplayConfig, ours, extra=["--fps", "--inference.type", "--inference.queue_threshold"])
    events_of(rollout)  # it is there
    if config.rtc_version not in ("installed", "4454"):
        raise UserError(f"--rtc_version={config.rtc_version}: installed, or 4454")
    asked = Changes(
        lerobot=theirs,
        latency=config.latency,
        delay=config.inference_delay,
        mended=config.rtc_version == "4454",
        recipe=config.recipe.name if config.recipe is not None else "",
    )
    return _replay(rollout, config, asked, argv, started)


def _which(argv: Sequence[str]) -> tuple[Path, list[str]]:
    """RUN, wherever it stands, and the other arguments. Raises UserError without one."""
    values = {at + 1 for at, one in enumerate(argv) if one.startswith("--") and one != "--" and "=" not in one}
    for at, argument in enumerate(argv):
        if not argument.startswith("-") and at not in values:
            return Path(argument), [*argv[:at], *argv[at + 1 :]]
    raise UserError("which rollout? strobe replay RUN, with the folder that `strobe rollout` made")


def _replay(rollout: Path, config: ReplayConfig, asked: Any, argv: Sequence[str], started: float) -> int:
    from strobe.cli.keep import complete, keep, plain

    with importing():
        from strobe.measure.sampling import Progress
        from strobe.studies.replay.replay import Options, replay

    with Live() as live:

        def tell(done: int, of: int) -> None:
            live.progress(Progress(done, of, time.monotonic() - started, None, "plays"))

        options = Options(
            draws=config.draws, seed=config.seed, calls=config.calls, recipe=_recipe(config.recipe),
            thresholds=config.thresholds, stage=live.stage, tell=tell,
        )  # fmt: skip
        result = replay(rollout, asked, options)
    complete(result, ["replay", *argv], started, {"replay": plain(config) | asked.lerobot}, config.thresholds)
    keep(result, config.output_dir)
    return 130 if result.status == "interrupted" else 0


def _recipe(file: Path | None) -> Callable[[], contextlib.AbstractContextManager[Any]] | None:
    if file is None:
        return None
    from strobe.deploy.loading import read, with_recipe

    read(file)  # a recipe that is none ends here
    return lambda: with_recipe(file)
