"""The flags of `strobe evaluate` where it plays episodes: the timings, and the checkpoints, that they ask for."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import choice_bound, custom_bound, exclusive_minimum_bound, minimum_bound
from strobe.core.errors import UserError
from strobe.evaluate.episode_flags import (
    ENGINES_NAMED,
    JOINS_NAMED,
    LIVE,
    SHARES,
    STEPS,
    EpisodeFlags,
    each_bound,
    hold_refused,
    is_positive,
)
from strobe.lerobot.flags.lazy_flags import lerobot_placeholder
from strobe.lerobot.policies.options import PolicyOptions, check_checkpoint
from strobe.policy_cli.subject_flags import check_overrides
from strobe.preflight.command import DataFlags

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig
    from lerobot.policies.rtc.configuration_rtc import RTCConfig

    from strobe.evaluate.episode_log import EpisodeLine
    from strobe.evaluate.episodes.timings import RequestedTiming
else:
    RTCConfig = lerobot_placeholder("lerobot.policies.rtc.configuration_rtc:RTCConfig")


EXECUTED = each_bound(is_positive, "is not a number of actions: write --n_action_steps=10,25,50")
WHOLE = each_bound(is_positive, "must be a whole number above zero")
TICKS = each_bound(lambda ticks: ticks >= 0, "is not a number of control ticks: write --delay_ticks=0,2,5")
OF_RTC = ("execution_horizon", "queue_threshold")
OF_ASYNC = ("aggregate_fn_name", "chunk_size_threshold")
# Simulators whose reward in a control tick says how much of the task is done → the reward of all of it: the share of
# the goal that is covered over the share that is a success, and the number of the stage. MetaWorld's rewards are shaped
# for training, and LIBERO's say no more than success.
FULL_REWARDS = {"pusht": 1.0, "aloha": 4.0}


@dataclass
class InferenceFlags:
    """LeRobot's inference engines, and the settings of rtc."""

    # LeRobot's engines, separated by commas: sync, in which the loop stands still for each call; rtc (Real-Time
    # Chunking) and async (the robot client with the policy server), which call the policy while the loop goes on.
    type: tuple[str, ...] = field(default=("sync",), metadata=ENGINES_NAMED)
    # For rtc: a call begins when the queue has this number of actions or fewer.
    queue_threshold: int = field(default=30, metadata=minimum_bound(0))
    # For rtc: its own settings.
    rtc: RTCConfig = field(default_factory=RTCConfig)


@dataclass
class RealtimeFlags:
    """Episodes that are true to time."""

    # Let the simulator go on while the policy computes, on a virtual clock.
    realtime: bool = False
    # With --realtime, the latency of each call: a number of ms; live, the time that it takes here (the default); or the
    # folder of a rollout, rehearsal or evaluation, from whose calls it is drawn. Several, separated by commas, give a
    # row each: 0,100,live,runs/RUN.
    latency: tuple[str, ...] = ()
    # With --realtime, the latency in control ticks of the simulator: 0,2,5,20.
    delay_ticks: tuple[int, ...] = field(default=(), metadata=TICKS)
    # With --realtime: as lerobot-rollout's --inference.type=sync or rtc, or async for LeRobot's robot client; several:
    # sync,rtc,async. For rtc --inference.queue_threshold=30, --inference.rtc.execution_horizon=10 and its other fields.
    inference: InferenceFlags = field(default_factory=InferenceFlags)
    # With --realtime, execution horizons of rtc, a row each: 10,20 (one: --inference.rtc.execution_horizon).
    execution_horizon: tuple[int, ...] = field(default=(), metadata=WHOLE)
    # With --realtime, thresholds of rtc's queue, a row each: 20,40 (one: --inference.queue_threshold).
    queue_threshold: tuple[int, ...] = field(default=(), metadata=WHOLE)
    # With --realtime, how async joins two chunks where they overlap, a row each, as LeRobot's robot client spells it:
    # weighted_average (its own), latest_only, average, conservative.
    aggregate_fn_name: tuple[str, ...] = field(default=(), metadata=JOINS_NAMED)
    # With --realtime, share of a chunk at which async sends the next observation, a row each: 0.5,0.8 (its own: 0.5).
    chunk_size_threshold: tuple[float, ...] = field(default=(), metadata=SHARES)
    # With --realtime, what happens in a tick without an action: last repeats the last action, zero moves nothing. By
    # default the one that fits the simulator: zero if actions are movements (metaworld, libero), else last.
    hold: str = field(default="", metadata=custom_bound(hold_refused))


@dataclass
class EvaluateConfig(EpisodeFlags, RealtimeFlags):
    """Flags of `strobe evaluate` where it plays episodes."""

    # Checkpoints to choose the best of: folders, separated by commas or spaces. They take the place of --policy.path.
    policies: tuple[str, ...] = ()
    # Numbers of denoising steps to try in addition to the policy's own, separated by commas: 10,5,2.
    steps: tuple[int, ...] = field(default=(), metadata=STEPS)
    # Numbers of actions to execute of each chunk, in addition to the policy's own, separated by commas: 10,25,50.
    n_action_steps: tuple[int, ...] = field(default=(), metadata=EXECUTED)
    # What decides: success, or progress, which is 1 for a success, and else the best reward of a control tick in an
    # episode ÷ --full_reward. --margin is then a loss of progress.
    score: str = field(default="success", metadata=choice_bound("success", "progress"))
    # With --score=progress, the reward of a control tick that means the whole task. Known for pusht (1) and aloha (4).
    full_reward: float | None = field(default=None, metadata=exclusive_minimum_bound(0, finite=True))
    # The most episodes of each variant on each task.
    episodes: int = field(default=50, metadata=minimum_bound(1))
    # Make videos of each variant's episodes on this many first starts, for the report and the run's folder; 0 for none.
    videos: int = field(default=2, metadata=minimum_bound(0))
    # Its training set: --dataset.root=DATA. After the episodes the policy also runs on recorded frames, for up to 45 s:
    # what did it learn? --dataset.episodes=[0,1,2,3] chooses its episodes.
    dataset: DataFlags = field(default_factory=DataFlags)
    # Rounds that measure the latency of a chunk after the episodes, all variants in turn; 0 skips it.
    latency_iterations: int = field(default=10, metadata=minimum_bound(0))


def full_reward(config: EvaluateConfig) -> float | None:
    """Return the reward that is progress 1 if progress decides; None if success does. Raises UserError."""
    if config.score == "success":
        if config.full_reward is not None:
            raise UserError("--full_reward needs --score=progress: without it success decides")
        return None
    if config.policies:
        raise UserError(f"--score=progress is for variants of one policy: leave it or {FLAG} out")
    kind = config.simulator.type
    if (full := config.full_reward or FULL_REWARDS.get(kind)) is None:
        raise UserError(
            f"--score=progress: the rewards of '{kind}' are not known to say how much of the task is done; if they do, "
            "--full_reward=R is the reward of the whole task"
        )
    return full


def check_timing(config: RealtimeFlags, env: EnvConfig) -> None:
    """Check the flags that are about time, as far as possible without a policy. Raises UserError."""
    own = ("latency", "delay_ticks", "hold", *OF_RTC, *OF_ASYNC)
    given = [f"--{name}" for name in own if getattr(config, name)]
    given += ["--inference"] * (_values(config.inference) != _values(InferenceFlags()))
    if given and not config.realtime:
        raise UserError(f"{given[0]} needs --realtime: without it the simulator waits for the policy")
    timings(config, env)


def timings(config: RealtimeFlags, env: EnvConfig) -> list[RequestedTiming]:
    """Return each engine with each latency, in the order of the flags; none without --realtime. Raises UserError."""
    if not config.realtime:
        return []
    from strobe.evaluate.episodes.timings import RequestedTiming, parse_latency, parse_ticks
    from strobe.simulators.held_action import choose_hold

    fps, inference = env.fps, config.inference
    if not fps > 0:
        raise UserError(f"--env.fps={fps}: must be above 0")
    if config.latency and config.delay_ticks:
        raise UserError("--latency and --delay_ticks set the same thing, in ms and in control ticks: give one of them")
    ticks = config.delay_ticks
    latencies = parse_ticks(ticks, fps) if ticks else parse_latency(config.latency or (LIVE,))
    engines = inference.type
    if "rtc" not in engines and _values(inference) != _values(InferenceFlags(inference.type)):
        raise UserError("--inference.queue_threshold and --inference.rtc.* need --inference.type=rtc, or sync,rtc")
    for engine, own in (("rtc", OF_RTC), ("async", OF_ASYNC)):
        if engine not in engines and (given := next((name for name in own if getattr(config, name)), "")):
            raise UserError(f"--{given} needs --inference.type={engine}, or sync,{engine}")
    if inference.rtc.execution_horizon < 1:
        raise UserError(f"--inference.rtc.execution_horizon={inference.rtc.execution_horizon}: must be at least 1")
    made_by = {"sync": lambda _, first: [first], "rtc": _rtc_timings, "async": _async_timings}
    first = RequestedTiming("sync", latencies[0], choose_hold(env, config.hold), fps)
    ways = [way for engine in engines for way in made_by[engine](config, first)]
    return [dataclasses.replace(way, latency=latency) for way in ways for latency in latencies]


def _rtc_timings(config: RealtimeFlags, first: RequestedTiming) -> list[RequestedTiming]:
    inference = config.inference
    rtc = {name: value for name, value in _rtc_values(inference).items() if not name.startswith("debug")}
    horizons = config.execution_horizon or (inference.rtc.execution_horizon,)
    thresholds = config.queue_threshold or (inference.queue_threshold,)
    made = []
    for horizon, threshold in itertools.product(horizons, thresholds):
        words = [f"horizon {horizon}"] if config.execution_horizon else []
        words += [f"queue {threshold}"] if config.queue_threshold else []
        own = {**rtc, "execution_horizon": horizon}
        made.append(dataclasses.replace(first, engine="rtc", rtc=own, threshold=threshold, differing=", ".join(words)))
    return made


def _async_timings(config: RealtimeFlags, first: RequestedTiming) -> list[RequestedTiming]:
    made = []
    joins, shares = config.aggregate_fn_name or (None,), config.chunk_size_threshold or (None,)
    for join, share in itertools.product(joins, shares):
        words = ([join] if join else []) + ([f"below {share:g}"] if share is not None else [])
        client = {"aggregate_fn_name": join, "chunk_size_threshold": share}
        own = {name: value for name, value in client.items() if value is not None}
        made.append(dataclasses.replace(first, engine="async", client=own, differing=", ".join(words)))
    return made


def timed_live(config: RealtimeFlags) -> bool:
    """Return whether the latency of an episode's call is what the call takes here."""
    return config.realtime and not config.delay_ticks and LIVE in (config.latency or (LIVE,))


def _rtc_values(inference: InferenceFlags) -> dict[str, object]:
    rtc = dataclasses.asdict(inference.rtc)
    return {name: value.value if isinstance(value, enum.Enum) else value for name, value in rtc.items()}


def _values(inference: InferenceFlags) -> dict[str, object]:
    return {**vars(inference), "rtc": _rtc_values(inference)}


def notes(
    config: RealtimeFlags, env: EnvConfig, requested: Sequence[RequestedTiming], played: Iterable[EpisodeLine]
) -> list[str]:
    """Return notes on the requested timings, once episodes were ``played``; none without a timing."""
    if not requested:
        return []
    hold = requested[0].hold
    gripper = "; a gripper keeps its goal" if hold.gripper is not None else ""
    meaning = {
        "last": "a tick without an action repeats the last one, as an arm that takes positions holds its goal",
        "zero": f"a tick without an action moves nothing (zeros{gripper})",
    }[hold.kind]
    lines = [f"{meaning}: --hold={hold.kind}"]
    if not hold.known and not config.hold:
        lines.append(
            f"Strobe does not know what the actions of '{env.type}' mean: if they are movements, add --hold=zero"
        )
    if any(not line.timing.rests for line in played if line.timing is not None):
        lines.append("the simulator stood still until the first action of an episode: its arm's position is not known")
    runs = {timing.latency.name: timing.latency.runs for timing in requested if timing.latency.runs}
    for name, calls in runs.items():
        source = "of policies alone, without processors" if len(calls) > 1 else "of a rollout"
        lines.append(f"latencies of {name} are drawn from {len(calls[''])} calls {source}, without its first call")
    if any(len(calls[""]) < 30 for calls in runs.values()):
        lines.append("few calls were recorded: no call of an episode is longer than the longest of them")
    return lines


FLAG = "--policies"


def take_policies(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with ``--policies A B C``, as a shell expands ``*``, as ``--policies=A,B,C``.

    Raises:
        UserError: the flag names nothing.
    """
    rest, folders, taking = [], list[str](), False
    for argument in argv:
        name, equals, value = argument.partition("=")
        if name == FLAG:
            folders += [value] * bool(equals)
            taking = not equals
        elif taking and not argument.startswith("--"):
            folders.append(argument)
        else:
            taking = False
            rest.append(argument)
    if any(argument.partition("=")[0] == FLAG for argument in argv):
        if not any(folders):
            raise UserError(f"{FLAG} names no checkpoint: {FLAG}=FOLDER_A,FOLDER_B")
        rest.append(f"{FLAG}={','.join(folders)}")
    return rest


def check_several(config: EvaluateConfig) -> None:
    """Check the flags of several checkpoints. Raises UserError."""
    if config.subject.path or config.subject.type:
        raise UserError(f"{FLAG} names the checkpoints: leave out --policy.path and --policy.type")
    refused = {"--realtime": config.realtime, "--steps": config.steps, "--recipe": config.recipe}
    refused["--n_action_steps"] = config.n_action_steps
    if given := next((name for name, value in refused.items() if value), None):
        raise UserError(f"{given} is for variants of one policy, and {FLAG} plays several: leave one of them out")
    if config.launcher == "ray":
        raise UserError(f"{FLAG} plays on this machine: leave out --launcher=ray, and give --parallel=auto")
    policy_options(name_checkpoints(config.policies), config)


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint: the part of its path that tells it from the others, and its folder or Hub id."""

    name: str
    path: str


@dataclass(frozen=True)
class NamedCheckpoints:
    """The checkpoints that are played, and notes on links that name one of them again."""

    all: list[NamedCheckpoint]
    notes: list[str]


def name_checkpoints(paths: Sequence[str]) -> NamedCheckpoints:
    """Return the checkpoints at ``paths``, named.

    LeRobot's folder of checkpoints has a link ``last`` to the last one. A folder that two names lead to is played once,
    and a note says so.

    Raises:
        UserError: a folder that is no checkpoint, the same one twice, or fewer than two.
    """
    for path in paths:
        try:
            check_checkpoint(path)
        except UserError as error:
            raise UserError(f"--policies: {error}") from None
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UserError(f"--policies: {twice} is named twice: give each checkpoint once")
    folders = [Path(path).resolve() if Path(path).is_dir() else Path(path) for path in paths]
    chosen: dict[Path, str] = {}
    for path, folder in zip(paths, folders, strict=True):
        # The folder's own name is shown, not that of a link to it.
        if folder not in chosen or folder.parts[-2:] == Path(path).parts[-2:]:
            chosen[folder] = path
    if len(chosen) < 2:
        raise UserError(
            f"--policies={','.join(paths)}: name two checkpoints or more, as FOLDER_A,FOLDER_B; for one, --policy.path"
        )
    kept = [path for path, folder in zip(paths, folders, strict=True) if chosen[folder] == path]
    again = [(path, chosen[folder]) for path, folder in zip(paths, folders, strict=True) if chosen[folder] != path]
    notes = [f"{path} is the folder {other} by another name: it is played once" for path, other in again]
    return NamedCheckpoints([NamedCheckpoint(*each) for each in zip(_names(kept), kept, strict=True)], notes)


def _names(paths: Sequence[str]) -> list[str]:
    """Return the parts of each path in which the paths differ: '010000' of 'outputs/a/checkpoints/010000/…'."""
    parts = [Path(path).parts for path in paths]
    if len({len(each) for each in parts}) == 1:
        differing = [place for place, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
        return ["/".join(each[place] for place in differing) for each in parts]
    shortest = min(map(len, parts))
    before = next((n for n in range(shortest) if len({each[n] for each in parts}) > 1), shortest - 1)
    before = min(before, shortest - 1)
    after = next((n for n in range(shortest - before) if len({each[-1 - n] for each in parts}) > 1), 0)
    return [str(Path(*each[before : len(each) - after])) for each in parts]


def policy_options(named: NamedCheckpoints, config: EvaluateConfig) -> dict[str, PolicyOptions]:
    """Return the checkpoints by name, each with the settings that ``--policy.*`` gives to all. Raises UserError."""
    options = {each.name: PolicyOptions(path=each.path, overrides=list(config.subject.overrides)) for each in named.all}
    for each in options.values():
        check_overrides(each, config.device)
    return options
