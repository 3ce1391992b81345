"""Shared by the commands that play episodes: their flags, what these may hold, and who plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from strobe.core.cli.bounds import Bound, choice_bound, custom_bound, minimum_bound, open_interval_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.parse import parse
from strobe.core.cli.runner import Studied
from strobe.core.errors import UserError
from strobe.core.measure.other_work import usable_processors
from strobe.lerobot.flags.lazy_flags import lerobot_placeholder
from strobe.lerobot.policies.options import FactoryOptions, PolicyOptions
from strobe.policy_cli.run_flags import RayFlags, check_recipe_file
from strobe.policy_cli.subject_flags import (
    MODEL_NAMES,
    POLICY_NAMES,
    ModelFlags,
    check_overrides,
    require_subject,
    split_subject,
    subject_fields,
    subject_values,
)

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig

    from strobe.core.results.answer import Result
    from strobe.lerobot.envs.seldom_rendered import Rendering
else:
    EnvConfig = lerobot_placeholder("lerobot.envs.configs:EnvConfig")

C = TypeVar("C", bound="EpisodeFlags")


def each_bound(holds: Callable[[float], bool], wrong: str, value: str = "number") -> dict[str, Bound]:
    """Metadata of a field with several values, each of which ``holds`` and stands there once.

    Args:
        wrong: what one is that does not hold, in words.
        value: what each is, in a word.
    """

    def refuses(values: Sequence[float]) -> str | None:
        if unfit := [each for each in values if not holds(each)]:
            return f"'{unfit[0]}' {wrong}"
        return f"give each {value} once" if len(set(values)) < len(values) else None

    return custom_bound(refuses)


def _names_bound(names: Sequence[str], value: str) -> dict[str, Bound]:
    return each_bound(names.__contains__, f"is none of {', '.join(names)}", value)


def is_positive(number: float) -> bool:
    """Return whether a number is above zero, and no slip of the hand."""
    return 0 < number < 1e6


LIVE = "live"  # latency of a call: what it takes here
JOINS = ("weighted_average", "latest_only", "average", "conservative")  # LeRobot's AGGREGATE_FUNCTIONS, its own first
ENGINES_NAMED = _names_bound(("sync", "rtc", "async"), "engine")
JOINS_NAMED = _names_bound(JOINS, "way")
SHARES = each_bound(lambda share: 0 <= share <= 1, "must be a share of a chunk, from 0 to 1")
STEPS = each_bound(is_positive, "is not a number of denoising steps: write --steps=10,5,2")
POSITIVE = each_bound(is_positive, "must be a number above zero")


def hold_refused(kind: str) -> str | None:
    """Return what is wrong with ``kind`` as the action of a tick without one, in words."""
    return None if kind in ("", "last", "zero") else "last or zero"


def _recipes_refused(recipes: Sequence[Path]) -> str | None:
    names = [path.name for path in recipes]  # by these the answer tells them apart
    twice = next((name for name in names if names.count(name) > 1), None)
    return f"two recipes called {twice}: give each a name of its own" if twice is not None else None


@dataclass
class EpisodeFlags(OutputFlags):
    """Flags of a command that plays episodes."""

    # The simulator that plays the episodes: --env.type=pusht, metaworld, aloha …, --env.task=TASK, and its other
    # fields.
    env: EnvConfig | None = None
    # Recipes to try, separated by commas. Each is one variant.
    recipe: tuple[Path, ...] = field(default=(), metadata=custom_bound(_recipes_refused))
    # Loss of success rate that still counts as not worse, as a share: 0.1 is 10 points.
    margin: float = field(default=0.1, metadata=open_interval_bound(0, 1))
    # Seed of the first episode's start and noise; the next episodes count up from it. Also the seed of random weights.
    seed: int = field(default=0, metadata=minimum_bound(0))
    # Observations to draw: needed draws those that the policy looks at, with equal actions; always draws every tick.
    render: str = field(default="needed", metadata=choice_bound("needed", "always"))
    # Processes that play episodes at the same time: 1, 2 … or auto, one for each core. Each holds a copy of the policy.
    # On a cluster, the number on each device: on each GPU, or on each node if the policy runs on the CPU.
    parallel: str = "1"
    # Where Strobe plays episodes: local, or ray.
    launcher: str = field(default="local", metadata=choice_bound("local", "ray"))
    # The Ray cluster: --ray.address=auto or HOST:PORT (default: a cluster that is found here, else this machine only).
    ray: RayFlags = field(default_factory=RayFlags)
    # Continue the episodes of this run's folder.
    resume: Path | None = None
    # Names in the simulator's observations → names that the policy knows: '{"observation.image": "observation.x"}'.
    rename_map: dict[str, str] = field(default_factory=dict)
    # Device to run on (cpu, cuda, cuda:1, mps); the same as --policy.device.
    device: str | None = None
    # torch's threads on the CPU, in each process. By default torch chooses, or the processes share the cores.
    threads: int | None = field(default=None, metadata=minimum_bound(1))
    subject: PolicyOptions = field(init=False, default_factory=PolicyOptions)  # the policy

    @property
    def rendering(self) -> Rendering:
        """What is drawn."""
        return "always" if self.render == "always" else "needed"

    @property
    def simulator(self) -> EnvConfig:
        """The simulator. Raises UserError where none is named."""
        if self.env is None:
            raise UserError("name the simulator that plays the episodes: --env.type=pusht, metaworld, aloha …")
        return self.env


def read_policy(command: str, kind: type[C], argv: Sequence[str], extra: Sequence[str] = ()) -> C:
    """Return the command's flags, with the policy if one is named. Raises UserError."""
    flags, rest = split_subject(argv)
    config = parse(kind, rest, extra=[*POLICY_NAMES, *MODEL_NAMES, *extra], exact=subject_fields(flags))
    assert not isinstance(flags, FactoryOptions)  # refused before
    if isinstance(flags, ModelFlags):
        raise UserError(f"strobe {command} is for policies: a model has no actions")
    config.subject = flags
    return config


def check_policy(config: EpisodeFlags) -> None:
    """Check that a policy is named, the settings of its config, and its recipes. Raises UserError."""
    require_subject(config.subject)
    check_overrides(config.subject, config.device)
    for path in config.recipe:
        check_recipe_file(config.subject, path, config.device)


def parse_parallel(text: str) -> int:
    """``'auto'``, one process for each core that may be used, or a number of processes. Raises UserError."""
    if text == "auto":
        return len(usable_processors())
    if not text.isdecimal() or not int(text):
        raise UserError(f"--parallel={text}: write a number of processes from 1 on, or auto")
    return int(text)


def episode_threads(requested: int | None, processes: int, resumed: Path | None) -> int | None:
    """Return torch's threads where an episode is played; None: as torch chooses.

    Sums may differ in their last bits with the number of threads, so a resumed run keeps its own.

    Args:
        requested: by the user; None: not given.
        resumed: the run that --resume continues.

    Raises:
        UserError: there is no such run.
    """
    if requested is not None:
        return requested
    if resumed is not None:
        from strobe.evaluate import episode_log

        folder = resumed if resumed.is_dir() else resumed.parent
        before, _, _ = episode_log.read(folder / episode_log.NAME)
        if before.threads is not None:
            return before.threads
    return max(1, len(usable_processors()) // processes) if processes > 1 else None


def resumable(result: Result, folder: Path, config: EpisodeFlags) -> Studied:
    """Return the answer of a command that played episodes, saved in their ``folder``, with how to go on."""

    def continue_hint(_: Path | None) -> list[str]:
        return [f"continue with the same command and --resume={folder}"] * (result.status == "interrupted")

    return Studied(
        result, subject_values(config.subject, config), None, config.thresholds, folder=folder, after=continue_hint
    )
