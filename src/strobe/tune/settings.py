"""The flags of `strobe tune`, and the settings that it plays: all that can work at the latency."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import custom_bound, minimum_bound
from strobe.core.errors import UserError, nearest
from strobe.evaluate.episode_flags import (
    ENGINES_NAMED,
    JOINS,
    JOINS_NAMED,
    POSITIVE,
    SHARES,
    STEPS,
    EpisodeFlags,
    hold_refused,
)

if TYPE_CHECKING:
    from strobe.evaluate.episodes.timings import Latency
    from strobe.evaluate.results import Engine

THRESHOLD, HORIZON = 30, 10  # LeRobot's own --inference.queue_threshold and --inference.rtc.execution_horizon
SCHEDULES = ("ZEROS", "ONES", "LINEAR", "EXP")  # LeRobot's RTCAttentionSchedule, LINEAR by default
SHARE = 0.5  # LeRobot's own chunk_size_threshold of its robot client
ENSEMBLE = 0.01  # ACT's own temporal_ensemble_coeff (Zhao et al. 2023)
MOST_LENGTHS = 6  # numbers of executed actions that are tried where none is given


@dataclass
class EngineFlag:
    """LeRobot's types of inference."""

    # Types of inference to try, separated by commas: sync, rtc, async. By default all that LeRobot has for the policy.
    type: tuple[str, ...] = field(default=(), metadata=ENGINES_NAMED)


@dataclass
class TuneConfig(EpisodeFlags):
    """Flags of `strobe tune`."""

    # The latency of each call: a number of ms, or the folder of a rollout, rehearsal or evaluation, from whose calls it
    # is drawn. Several, separated by commas, are tuned one after the other: 0,100,runs/RUN.
    latency: tuple[str, ...] = ()
    # LeRobot's types of inference to try.
    inference: EngineFlag = field(default_factory=EngineFlag)
    # Numbers of actions that sync executes before the next call: 5,10,25. By default a chunk, its halves, and its own.
    n_action_steps: tuple[int, ...] = field(default=(), metadata=POSITIVE)
    # Execution horizons of rtc to try, in actions: 10,20.
    execution_horizon: tuple[int, ...] = field(default=(), metadata=POSITIVE)
    # Thresholds of rtc's queue to try, in actions: a call begins when the queue has so many or fewer.
    queue_threshold: tuple[int, ...] = field(default=(), metadata=POSITIVE)
    # Largest guidance weights of rtc to try: 5,10.
    max_guidance_weight: tuple[float, ...] = field(default=(), metadata=POSITIVE)
    # Schedules of rtc's prefix weights to try, as LeRobot writes them: LINEAR,EXP.
    prefix_attention_schedule: tuple[str, ...] = ()
    # Coefficients of ACT's temporal ensembling to try: 0.01,0.1. By default the paper's 0.01, where a call lasts a tick
    # at most.
    temporal_ensemble_coeff: tuple[float, ...] = field(default=(), metadata=POSITIVE)
    # Ways of async to join two chunks: weighted_average,latest_only,average,conservative. By default all.
    aggregate_fn_name: tuple[str, ...] = field(default=(), metadata=JOINS_NAMED)
    # Shares of a chunk at which async sends the next observation: 0.5,0.8. By default LeRobot's own, 0.5.
    chunk_size_threshold: tuple[float, ...] = field(default=(), metadata=SHARES)
    # Denoising steps to try in addition to the policy's own: 10,5. The simulated latency stays the same for all
    # of them, unless it comes from a run.
    steps: tuple[int, ...] = field(default=(), metadata=STEPS)
    # The most starts of each setting in the selection phase, on each task.
    starts: int = field(default=100, metadata=minimum_bound(8))
    # The most held-out pairs of the winner and the default, on each task.
    pairs: int = field(default=200, metadata=minimum_bound(8))
    # What happens in a tick without an action: last repeats the last action, zero moves nothing. By default the one
    # that fits the simulator.
    hold: str = field(default="", metadata=custom_bound(hold_refused))


@dataclass(frozen=True)
class PolicyFacts:
    """The values that a policy's settings can have.

    Args:
        chunk: actions of a chunk.
        most_executed: of them that it can execute before the next call.
        executed: its own n_action_steps.
        steps: its own denoising steps; None if it has none. ``steps_field`` is the field of its config.
        guided: whether LeRobot's Real-Time Chunking can guide it.
        not_served: why LeRobot's policy server cannot serve it, in words.
        averages: whether it can average chunks (ACT's temporal ensembling), and with which coefficient it does.
    """

    chunk: int
    most_executed: int
    executed: int
    steps: int | None = None
    steps_field: str = ""
    guided: bool = False
    not_served: str | None = "not looked at"
    averages: bool = False
    coefficient: float | None = None


@dataclass(frozen=True)
class TunedSetting:
    """One setting. None stands for the policy's or LeRobot's own value.

    Args:
        executed: actions of a chunk that sync executes before the next call.
        horizon, threshold, weight, schedule: of rtc.
        recipe: its name; else empty.
        coefficient: of the average of chunks, with which each action takes a call; None for no average.
        join, share, sent: of async: how chunks are joined, at which share of a chunk the next observation is sent, and
            the actions of a chunk that are sent.
    """

    engine: Engine
    executed: int | None = None
    horizon: int | None = None
    threshold: int | None = None
    weight: float | None = None
    steps: int | None = None
    recipe: str = ""
    coefficient: float | None = None
    schedule: str | None = None
    join: str | None = None
    share: float | None = None
    sent: int | None = None

    @property
    def name(self) -> str:
        """The setting in words: 'sync, 10 actions'; 'rtc, horizon 10, queue 30'."""
        words: list[str] = [self.engine]
        if self.executed is not None:
            words.append(f"{self.executed} action{'s' * (self.executed != 1)}")
        if self.coefficient is not None:
            words.append(f"averaged with {self.coefficient:g}")
        for what, value in (("horizon", self.horizon), ("queue", self.threshold), ("weight", self.weight)):
            if value is not None:
                words.append(f"{what} {value:g}")
        if self.join is not None:
            words.append(self.join)
        if self.share is not None:
            words.append(f"below {self.share:g}")
        if self.schedule is not None:
            words.append(f"schedule {self.schedule.lower()}")
        if self.steps is not None:
            words.append(f"{self.steps} step{'s' * (self.steps != 1)}")
        return ", ".join([*words, *([self.recipe] if self.recipe else [])])

    @property
    def program(self) -> str:
        """The program of LeRobot that takes the `flags`."""
        return "lerobot-rollout" if self.engine != "async" else "python -m lerobot.async_inference.robot_client"

    @property
    def client(self) -> dict[str, object]:
        """Fields of LeRobot's RobotClientConfig."""
        fields = {"aggregate_fn_name": self.join, "chunk_size_threshold": self.share, "actions_per_chunk": self.sent}
        return {name: value for name, value in fields.items() if value is not None}

    def flags(self, facts: PolicyFacts) -> list[str]:
        """Return the flags of `program` that make this setting, without a recipe's."""
        given: dict[str, object] = {
            "inference.type": self.engine if self.engine != "async" else None,
            **self.client,
            "policy.n_action_steps": self.executed,
            "inference.rtc.execution_horizon": self.horizon,
            "inference.queue_threshold": self.threshold,
            "inference.rtc.max_guidance_weight": self.weight,
            "inference.rtc.prefix_attention_schedule": self.schedule,
            f"policy.{facts.steps_field}": self.steps,
        }
        if self.coefficient != facts.coefficient:
            given["policy.temporal_ensemble_coeff"] = "null" if self.coefficient is None else self.coefficient
        return [f"--{name}={value:g}" if isinstance(value, float) else f"--{name}={value}"
                for name, value in given.items() if value is not None]  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """The settings of one latency.

    Args:
        ticks: control ticks that a call lasts.
        settings: the default first.
        left_out: why others cannot work: setting → its sum, in words.
    """

    ticks: int
    settings: list[TunedSetting]
    left_out: dict[str, str]


def grid(facts: PolicyFacts, flags: TuneConfig, ticks: int) -> Grid:
    """Return all combinations of the values in ``flags`` that can work where a call lasts ``ticks`` control ticks.

    Where a flag names none, Strobe chooses for the policy.

    Raises:
        UserError: a value that the policy cannot have, or an engine that cannot guide it.
    """
    _check(facts, flags)
    why_not, named = _engine_obstacles(facts), flags.inference.type
    engines = named or [engine for engine, why in why_not.items() if not why]
    made_by = {"sync": _sync(facts, flags), "rtc": _rtc(facts, flags, ticks), "async": _async(facts, flags)}
    default = TunedSetting("sync", facts.executed, coefficient=facts.coefficient)
    made, left_out = [default], dict[str, str]()
    for engine in engines:
        for setting in made_by[engine]:
            if why := _impossible(setting, facts, ticks):
                left_out[setting.name] = why
            elif setting not in made:
                made.append(setting)
    if not named:
        left_out.update({engine: why for engine, why in why_not.items() if why})
    return Grid(ticks, made, left_out)


def _engine_obstacles(facts: PolicyFacts) -> dict[Engine, str | None]:
    """Return for each engine why the policy cannot run with it, in words."""
    rtc = None if facts.guided else "LeRobot's Real-Time Chunking cannot guide this type of policy"
    return {"sync": None, "rtc": rtc, "async": facts.not_served}


def latency_ticks(latency: Latency, fps: float) -> int:
    """Return the control ticks at ``fps`` that a call lasts: of a recorded run the middle one, rounded up."""
    if latency.fixed_ns is not None:
        ns = latency.fixed_ns
    else:
        calls = sorted(latency.runs.get("", ()))
        if not calls:
            raise UserError(
                f"--latency={latency.name}: strobe tune needs latencies that are known beforehand: ms, or a run"
            )
        ns = calls[len(calls) // 2]
    return math.ceil(ns / 1e9 * fps - 1e-9)


def _sync(facts: PolicyFacts, flags: TuneConfig) -> list[TunedSetting]:
    lengths = flags.n_action_steps or _halves(facts)
    executed: list[tuple[int, float | None]] = [(length, None) for length in lengths]
    if facts.averages:
        coefficients = flags.temporal_ensemble_coeff or (facts.coefficient or ENSEMBLE,)
        executed += [(1, coefficient) for coefficient in coefficients]
    return [
        TunedSetting("sync", length, steps=steps, recipe=recipe, coefficient=coefficient)
        for (length, coefficient), (steps, recipe) in itertools.product(executed, _denoising_choices(facts, flags))
    ]


def _rtc(facts: PolicyFacts, flags: TuneConfig, ticks: int) -> list[TunedSetting]:
    longest = max(min(ticks, facts.chunk), facts.chunk // 2)
    combined = itertools.product(
        flags.execution_horizon or sorted({min(HORIZON, facts.chunk), longest}),
        flags.queue_threshold or sorted({min(THRESHOLD, facts.chunk), longest}),
        flags.max_guidance_weight or (None,),
        _schedules(flags) or (None,),
        _denoising_choices(facts, flags),
    )
    return [
        TunedSetting("rtc", None, horizon, threshold, weight, steps, recipe, schedule=schedule)
        for horizon, threshold, weight, schedule, (steps, recipe) in combined
    ]


def _async(facts: PolicyFacts, flags: TuneConfig) -> list[TunedSetting]:
    combined = itertools.product(flags.aggregate_fn_name or JOINS, flags.chunk_size_threshold or (SHARE,))
    return [TunedSetting("async", join=join, share=share, sent=facts.chunk) for join, share in combined]


def _denoising_choices(facts: PolicyFacts, flags: TuneConfig) -> list[tuple[int | None, str]]:
    """Return each number of denoising steps, None for the policy's own, without a recipe and with each."""
    steps = [None if count == facts.steps else count for count in flags.steps]
    return list(itertools.product(steps or [None], ["", *(path.name for path in flags.recipe)]))


def _schedules(flags: TuneConfig) -> list[str]:
    return [schedule.upper() for schedule in flags.prefix_attention_schedule]


def _halves(facts: PolicyFacts) -> list[int]:
    lengths, value = [facts.executed], facts.most_executed
    while value >= 1 and len(lengths) < MOST_LENGTHS:
        lengths.append(value)
        value //= 2
    return list(dict.fromkeys(lengths))


def _impossible(setting: TunedSetting, facts: PolicyFacts, ticks: int) -> str | None:
    """Return the sum by which a setting cannot work, in words."""
    if setting.engine == "sync":
        if setting.coefficient is not None and ticks > 1:
            return f"a call lasts {ticks} ticks, and an average of chunks takes one for each action"
        return None
    if not ticks:
        return "a call takes no time: there is nothing to bridge"
    if setting.engine == "async":  # where its queue runs empty, the arm waits for the chunk, as in sync
        return None
    if ticks >= facts.chunk:
        return (
            f"a call lasts {ticks} ticks, and a chunk has {facts.chunk} actions: each chunk is used up before the next"
        )
    if 2 * ticks > facts.chunk:
        return (
            f"a call lasts {ticks} ticks, and {facts.chunk - ticks} of a chunk's {facts.chunk} actions remain when it "
            "comes: the queue runs empty in the next call"
        )
    assert setting.horizon is not None
    assert setting.threshold is not None
    if ticks > setting.horizon:
        return f"a call lasts {ticks} ticks, and the horizon is {setting.horizon}: what is guided is past by then"
    if ticks > setting.threshold:
        return f"a call lasts {ticks} ticks, and begins with {setting.threshold} actions in the queue: it runs empty"
    return None


def _check(facts: PolicyFacts, flags: TuneConfig) -> None:
    for engine, why in _engine_obstacles(facts).items():
        if why and engine in flags.inference.type:
            raise UserError(f"--inference.type={engine}: {why}")
    if too_many := [value for value in flags.n_action_steps if not 1 <= value <= facts.most_executed]:
        raise UserError(f"--n_action_steps={too_many[0]}: this policy can execute 1 to {facts.most_executed} actions")
    given = {"execution_horizon": flags.execution_horizon, "queue_threshold": flags.queue_threshold}
    for flag, values in given.items():
        if wrong := [value for value in values if not 1 <= value <= facts.chunk]:
            raise UserError(f"--{flag}={wrong[0]}: a chunk of this policy has {facts.chunk} actions")
    if unknown := [schedule for schedule in _schedules(flags) if schedule not in SCHEDULES]:
        raise UserError(f"--prefix_attention_schedule={unknown[0]}: {nearest(unknown[0], SCHEDULES)}")
    if flags.temporal_ensemble_coeff and not facts.averages:
        raise UserError("--temporal_ensemble_coeff: this policy cannot average chunks: leave it out")
    if flags.steps and facts.steps is None:
        raise UserError("--steps: this policy has no denoising steps: leave it out")
