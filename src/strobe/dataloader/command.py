"""strobe dataloader: which settings of lerobot-train's data loader feed the training step?

Measures how many samples per second the training step needs, then searches the loader's settings until one delivers
that. Prints it in lerobot-train's spelling, with the gain over your flags. If your own loader feeds the step, the
answer says so.

The loader is lerobot-train's own: its dataset, sampler, collation, and DataLoader. Each candidate runs in a process of
its own. The command trains, writes and pushes nothing. It takes a minute or two.

Strobe's flags come first, then --, then the dataset and policy flags of lerobot-train.

Examples:
  strobe dataloader -- --dataset.repo_id=me/data --dataset.root=FOLDER --policy.type=diffusion --batch_size=64
  strobe dataloader --needed=500 -- …                      what a GPU elsewhere needs: 500 samples/s

More:
Ctrl-C ends the search and saves the measurements so far.

Further examples:
  strobe dataloader --needed=max -- --dataset.repo_id=me/data --policy.path=FOLDER      the fastest loader
  strobe dataloader --batch_sizes=32,64 --workers=0,4,8,16 -- …
  strobe dataloader --encodings --encoding_episodes=4 -- …  also what other encodings of the videos would gain
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import Bound, custom_bound, exclusive_minimum_bound, minimum_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live
from strobe.core.cli.parse import parse, require_lerobot, split_lerobot
from strobe.core.cli.placeholders import option_names
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.lerobot.flags.argument_names import check
from strobe.policy_cli.run_flags import NO_TRAINING_RECIPE

if TYPE_CHECKING:
    from lerobot.configs.train import TrainPipelineConfig

    from strobe.dataloader.results import Dataloader, LoaderSettings, StepNeed
    from strobe.dataloader.settings import SearchOptions


def _whole_numbers(least: int) -> dict[str, Bound]:
    words = f"whole numbers from {least}, separated by commas, such as 2,4"
    return custom_bound(lambda numbers: words if min(numbers, default=least) < least else None)


@dataclass
class DataloaderConfig(OutputFlags):
    """Flags of `strobe dataloader`."""

    # Samples per second that the training step needs: a number, or max for the fastest loader (default: measured).
    needed: str | None = None
    # Numbers of workers to try in addition to yours, e.g. 0,2,4 (default: 0, 1, 2, 4 … up to twice the
    # cores, then more as long as they are faster).
    workers: tuple[int, ...] = field(default=(), metadata=_whole_numbers(0))
    # Prefetch factors to try (default: 2,4,8): the batches that each worker prepares ahead.
    prefetch: tuple[int, ...] = field(default=(), metadata=_whole_numbers(1))
    # Further batch sizes to find a loader for, e.g. 16,32.
    batch_sizes: tuple[int, ...] = field(default=(), metadata=_whole_numbers(1))
    # The longest time to measure a candidate, in seconds. The first round takes a sixteenth of it.
    seconds: float = field(default=12.0, metadata=exclusive_minimum_bound(0, finite=True))
    # Do not measure the start of the chosen loader by fork, forkserver and spawn, nor the cost of a new epoch.
    skip_start_up: bool = False
    # Do not measure the settings that lerobot-train has no flag for: threads in the workers, transforms, pinned memory,
    # and caches (samples decoded beforehand; the files in /dev/shm).
    skip_what_ifs: bool = False
    # Write a sample of the episodes in other encodings and load them with the chosen settings.
    encodings: bool = False
    # Number of episodes in that sample.
    encoding_episodes: int = field(default=2, metadata=minimum_bound(1))
    theirs: list[str] = field(init=False, default_factory=list)  # lerobot-train's arguments


def read(argv: Sequence[str]) -> DataloaderConfig:
    """Return the command's flags, and lerobot-train's, checked. Raises UserError."""
    own, after = split_lerobot(argv)
    config = parse(DataloaderConfig, own, refused=NO_TRAINING_RECIPE, behind="lerobot-train")
    search_options(config)  # checks them
    config.theirs = require_lerobot(after, "lerobot-train", "dataloader -- --dataset.repo_id=… --policy.type=…")
    check(config.theirs, "lerobot-train", ours=option_names(DataloaderConfig))
    return config


def study(config: DataloaderConfig, live: Live) -> Studied:
    """Search for the settings. Raises UserError; KeyboardInterrupt if nothing was measured by then."""
    flags = {"dataloader": config, "lerobot-train": config.theirs}
    return Studied(search(config, live), flags, config.output_dir, config.thresholds)


def search(config: DataloaderConfig, live: Live) -> Dataloader:
    """Parse lerobot-train's flags, measure the step, search. Raises UserError, KeyboardInterrupt."""
    live.stage("reading lerobot-train's flags")
    from strobe.dataloader import process as loading

    loading.warm_up()  # imports in the background, while the policy is built here
    import torch

    from strobe.core.measure import machine
    from strobe.dataloader import run as dataloader
    from strobe.dataloader.preparation import StepNeeds, training_device
    from strobe.train.watch import train_config

    train = train_config(config.theirs, measuring=True)
    if train.dataset.streaming:
        raise UserError("--dataset.streaming: a streamed dataset has another loader, for which there is no search")
    device = torch.device(training_device(train))
    steps, options = StepNeeds(train, live), search_options(config)

    def need(batch_size: int) -> StepNeed | None:
        if options.needed is not None:
            from strobe.dataloader.results import StepNeed

            if math.isinf(options.needed):
                return None
            return StepNeed(batch_size=batch_size, samples_per_s=options.needed, source="given")
        return steps(batch_size)

    def more(answer: Dataloader, chosen: LoaderSettings) -> None:
        if config.encodings:
            _encodings(answer, train, chosen, config, live)

    answer = dataloader.study(
        train, options, machine.describe(device), need, live, pin_memory=device.type == "cuda", more=more
    )
    answer.notes += [note for note in steps.notes if note not in answer.notes]
    return answer


def search_options(config: DataloaderConfig) -> SearchOptions:
    """Return the candidates and times of the search. Raises UserError."""
    from strobe.dataloader.settings import SearchOptions

    needed: float | None = None
    if config.needed is not None:
        try:
            needed = math.inf if config.needed == "max" else float(config.needed)
        except ValueError:
            needed = math.nan
        if not needed > 0:
            raise UserError(f"--needed={config.needed}: samples per second, such as 120, or max")
    return SearchOptions(
        needed=needed,
        batch_sizes=config.batch_sizes,
        workers=config.workers,
        prefetch=config.prefetch,
        first_s=config.seconds / 16,
        last_s=config.seconds,
        start_ups=not config.skip_start_up,
        what_ifs=not config.skip_what_ifs,
    )


def _encodings(
    answer: Dataloader, train: TrainPipelineConfig, chosen: LoaderSettings, config: DataloaderConfig, live: Live
) -> None:
    from strobe.dataloader.encodings import encodings

    if not answer.dataset.cameras:
        answer.notes.append("the dataset has no cameras, so no encodings were compared")
        return
    episodes = min(config.encoding_episodes, answer.dataset.episodes)
    for row in encodings(train, chosen, episodes, config.seconds / 2, live):
        answer.encodings.append(row)


run = Command("dataloader", __doc__, DataloaderConfig, read, study, heavy="timed")
