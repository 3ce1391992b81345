r"""strobe train: what limits a training, and how long will it take?

Runs `lerobot-train` unchanged, with the arguments after --, and times the parts of each step: waiting for data,
transfer, preprocessing, forward and backward (by the policy's parts), clipping, optimizer, checkpoint, evaluation.
Inside the loader's workers it times video decoding, row reads, image transforms and collate. The computation does not
change: the losses are those of a run without Strobe.

The answer says whether data, compute, the host or memory limits the training, how much faster loading would gain, the
MFU, why some steps stall, and how many hours the planned training will take. A hundred steps show most of it.

Examples:
  strobe train -- --policy.type=act --dataset.repo_id=local/mine --dataset.root=DATASET --policy.push_to_hub=false \
      --steps=100 --save_freq=1000
  torchrun --nproc-per-node=2 -m strobe train -- …            every rank records; rank 0 shows them side by side

More:
If a run fails (exit code 1) or is interrupted (Ctrl-C), the answer shows the steps so far. With --python_profile the
profiler slows every step.

Further examples:
  strobe train --planned_steps=200000 --depth=2 -- --policy.path=FOLDER --dataset.repo_id=OWNER/NAME --steps=200 …
  strobe train --python_profile=cprofile -- …                 also training_profile.prof, and the top functions
  accelerate launch --num_processes=2 -m strobe train -- …
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import choice_bound, minimum_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import parse, require_lerobot, split_lerobot
from strobe.core.cli.placeholders import option_names
from strobe.core.cli.runner import Command, Studied
from strobe.lerobot.flags.argument_names import check
from strobe.policy_cli.run_flags import NO_TRAINING_RECIPE

if TYPE_CHECKING:
    from strobe.traces.python_profile import Tool
    from strobe.traces.results import PythonFunction, PythonProfile


@dataclass
class TrainConfig(OutputFlags):
    """Flags of `strobe train`."""

    # 1: the policy's parts; 2: their blocks; 3: the inside of blocks.
    depth: int = field(default=1, metadata=minimum_bound(1))
    # Steps to record. After them the run goes on without Strobe.
    record_steps: int = field(default=1000, metadata=minimum_bound(2))
    # Number of steps of the planned training, for its hours (default: lerobot-train's own default).
    planned_steps: int = field(default=100_000, metadata=minimum_bound(1))
    # Synchronise the device around every part. Each part's host time is then true, but nothing overlaps, and the whole
    # is slower.
    serialised: bool = False
    # Run the training under a profiler of Python. The profiler does not see the workers.
    python_profile: str | None = field(default=None, metadata=choice_bound("cprofile", "pyinstrument"))
    theirs: list[str] = field(init=False, default_factory=list)  # lerobot-train's arguments


def read(argv: Sequence[str]) -> TrainConfig:
    """Return the command's flags, and lerobot-train's, checked. Raises UserError."""
    ours, after = split_lerobot(argv)
    config = parse(TrainConfig, ours, refused=NO_TRAINING_RECIPE, behind="lerobot-train")
    config.theirs = require_lerobot(after, "lerobot-train", "train -- --policy.type=act --dataset.root=…")
    given = {argument.partition("=")[0] for argument in config.theirs}
    if "--policy.type" in given and not {"--policy.repo_id", "--policy.push_to_hub"} & given:
        config.theirs.append("--policy.push_to_hub=false")  # by default lerobot-train refuses to train without a name
    check(config.theirs, "lerobot-train", ours=option_names(TrainConfig))
    with importing():
        from strobe.train.watch import train_config

    train_config(config.theirs)  # a wrong flag ends in an error of one line, before anything is built
    return config


def study(config: TrainConfig, live: Live) -> Studied:
    """Run the training and watch it. What was recorded by a failure or an interrupt is in the answer."""
    from strobe.train.run import STEP, Meeting, WatchOptions, train

    profiler = _Profiler(config.python_profile) if config.python_profile else None
    options = WatchOptions(config.depth, config.record_steps, config.planned_steps, config.serialised, profiler)
    meeting = Meeting.from_environment(config.output_dir)
    trained = train(config.theirs, options, report=lambda line: print(f"note: {line}", file=sys.stderr, flush=True))
    result = trained.result
    answer = Studied(
        result,
        {"train": config, "lerobot-train": config.theirs},
        config.output_dir,
        config.thresholds,
        [trained.sections],
        code=2 if trained.mistake else None,
    )
    if meeting is not None:
        met = meeting.hand_over(result.training.ranks[0])
        if met is None:  # rank 0 shows all of them
            answer.shown, answer.code = False, None
            return answer
        result.training.ranks = met
        result.notes += meeting.missing(met)
    if profiler is not None:
        step = result.measurement(STEP).samples
        result.python = profiler.profile(STEP, len(step.warmup) + len(step.values), step.summary.mean)
        result.notes += profiler.notes
        answer.files = profiler.files
    sys.stderr.flush()
    print()
    return answer


class _Profiler:
    """Run a training under a profiler of Python, and keep its profile even if the training fails."""

    def __init__(self, tool: str) -> None:
        from strobe.traces.python_profile import TOOLS, require_tool

        require_tool(tool)
        self.tool: Tool = next(known for known in TOOLS if known == tool)
        self.files: dict[str, bytes] = {}
        self.notes: list[str] = []
        self._rows: list[PythonFunction] = []

    def __call__(self, run: Callable[[], None]) -> None:
        from strobe.traces.python_profile import mixed_threads, profile_run

        failed: list[BaseException] = []

        def safely() -> None:
            try:
                run()
            except BaseException as error:
                failed.append(error)

        self._rows, files = profile_run(safely, self.tool)
        self.notes = mixed_threads(self.tool)
        self.files = {f"training_{name}": content for name, content in files.items()}
        if failed:
            raise failed[0]

    def profile(self, measurement: str, iterations: int, iteration_ms: float) -> PythonProfile:
        from strobe.traces.python_profile import profile_per_iteration

        return profile_per_iteration(self._rows, self.tool, measurement, iterations, iteration_ms, list(self.files))


run = Command("train", __doc__, TrainConfig, read, study, bar=False, heavy="timed")
