"""The settings that a tuning plays: all that can work at the latency, and the sums of those that cannot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strobe.core.errors import UserError, nearest
from strobe.evaluate.episodes.timings import JOINS

if TYPE_CHECKING:
    from strobe.evaluate.episodes.timings import Latency
    from strobe.evaluate.results.evaluate import Engine

THRESHOLD, HORIZON = 30, 10  # LeRobot's own --inference.queue_threshold and --inference.rtc.execution_horizon
SCHEDULES = ("ZEROS", "ONES", "LINEAR", "EXP")  # LeRobot's RTCAttentionSchedule, LINEAR by default
SHARE = 0.5  # LeRobot's own chunk_size_threshold of its robot client
ENSEMBLE = 0.01  # ACT's own temporal_ensemble_coeff (Zhao et al. 2023)
MOST_LENGTHS = 6  # numbers of executed actions that are tried where none is given


@dataclass(frozen=True)
class PolicyFacts:
    """The values that a policy's settings can have.

    Args:
        chunk: actions of a chunk.
        most_executed: of them that it can execute before the next call.
        executed: its own n_action_steps.
        steps: its own denoising steps; None if it has none. ``steps_field`` is the field of its config.
        guided: whether LeRobot's Real-Time Chunking can guide it.
        not_served: why LeRobot's policy server cannot serve it, in words; '' if it can.
        averages: whether it can average chunks (ACT's temporal ensembling), and with which coefficient it does.
    """

    chunk: int
    most_executed: int
    executed: int
    steps: int | None = None
    steps_field: str = ""
    guided: bool = False
    not_served: str = "not looked at"
    averages: bool = False
    coefficient: float | None = None


@dataclass(frozen=True)
class Ranges:
    """The values that are tried; none: what Strobe chooses for the policy.

    Args:
        engines: of LeRobot, by --inference.type; async for its robot client.
        executed: --policy.n_action_steps, for sync.
        horizons, thresholds, weights, schedules: --inference.rtc.execution_horizon, --inference.queue_threshold,
            --inference.rtc.max_guidance_weight and --inference.rtc.prefix_attention_schedule, for rtc.
        coefficients: --policy.temporal_ensemble_coeff, for sync.
        joins, shares: --aggregate_fn_name and --chunk_size_threshold, for async.
        steps: denoising steps.
        recipes: names of recipes.
    """

    engines: Sequence[Engine] = ()
    executed: Sequence[int] = ()
    horizons: Sequence[int] = ()
    thresholds: Sequence[int] = ()
    weights: Sequence[float] = ()
    schedules: Sequence[str] = ()
    coefficients: Sequence[float] = ()
    joins: Sequence[str] = ()
    shares: Sequence[float] = ()
    steps: Sequence[int] = ()
    recipes: Sequence[str] = ()


@dataclass(frozen=True)
class TunedSetting:
    """One setting. None stands for the policy's or LeRobot's own value.

    Args:
        executed: actions of a chunk that sync executes before the next call.
        horizon, threshold, weight, schedule: of rtc.
        recipe: its name; '' for none.
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

    def flags(self, steps_field: str) -> list[str]:
        """Return the flags of `program` that make this setting, without a recipe's."""
        given: dict[str, object] = {
            "inference.type": self.engine if self.engine != "async" else None,
            **self.client,
            "policy.n_action_steps": self.executed,
            "inference.rtc.execution_horizon": self.horizon,
            "inference.queue_threshold": self.threshold,
            "inference.rtc.max_guidance_weight": self.weight,
            "inference.rtc.prefix_attention_schedule": self.schedule,
            f"policy.{steps_field}": self.steps,
        }
        return [f"--{name}={value:g}" if isinstance(value, float) else f"--{name}={value}"
                for name, value in given.items() if value is not None]  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """The settings of one latency, the default first, and why others cannot work: setting → its sum, in words."""

    settings: list[TunedSetting]
    left_out: dict[str, str]


def grid(facts: PolicyFacts, ranges: Ranges, ticks: int) -> Grid:
    """Return all combinations of ``ranges`` that can work where a call lasts ``ticks`` control ticks.

    Raises:
        UserError: a value that the policy cannot have, or an engine that cannot guide it.
    """
    _check(facts, ranges)
    why_not = _why_not(facts)
    engines = ranges.engines or [engine for engine, why in why_not.items() if not why]
    made_by = {"sync": _sync(facts, ranges), "rtc": _rtc(facts, ranges, ticks), "async": _async(facts, ranges)}
    default = TunedSetting("sync", facts.executed, coefficient=facts.coefficient)
    made, left_out = [default], dict[str, str]()
    for engine in engines:
        for setting in made_by[engine]:
            if why := _impossible(setting, facts, ticks):
                left_out[setting.name] = why
            elif setting not in made:
                made.append(setting)
    if not ranges.engines:
        left_out.update({engine: why for engine, why in why_not.items() if why})
    return Grid(made, left_out)


def _why_not(facts: PolicyFacts) -> dict[Engine, str]:
    """Return for each engine why the policy cannot run with it, in words; '' if it can."""
    rtc = "" if facts.guided else "LeRobot's Real-Time Chunking cannot guide this type of policy"
    return {"sync": "", "rtc": rtc, "async": facts.not_served}


def ticks_of(latency: Latency, fps: float) -> int:
    """Return the control ticks at ``fps`` that a call lasts: of a recorded run the middle one, rounded up."""
    if latency.fixed_ns is not None:
        ns = latency.fixed_ns
    else:
        calls = sorted(latency.runs.get("", ()))
        if not calls:
            raise UserError(
                f"--latency={latency.name}: a tuning needs latencies that are known before it: ms, or a run"
            )
        ns = calls[len(calls) // 2]
    return math.ceil(ns / 1e9 * fps - 1e-9)


def _sync(facts: PolicyFacts, ranges: Ranges) -> list[TunedSetting]:
    executed: list[tuple[int, float | None]] = [(length, None) for length in ranges.executed or _halves(facts)]
    if facts.averages:
        executed += [(1, coefficient) for coefficient in ranges.coefficients or (facts.coefficient or ENSEMBLE,)]
    combined = itertools.product(executed, ranges.steps or (None,), ("", *ranges.recipes))
    return [
        TunedSetting("sync", length, steps=_other(steps, facts.steps), recipe=recipe, coefficient=coefficient)
        for (length, coefficient), steps, recipe in combined
    ]


def _rtc(facts: PolicyFacts, ranges: Ranges, ticks: int) -> list[TunedSetting]:
    horizons = ranges.horizons or sorted({min(HORIZON, facts.chunk), max(min(ticks, facts.chunk), facts.chunk // 2)})
    thresholds = ranges.thresholds or sorted(
        {min(THRESHOLD, facts.chunk), max(min(ticks, facts.chunk), facts.chunk // 2)}
    )
    weights = ranges.weights or (None,)
    schedules = [value.upper() for value in ranges.schedules] or (None,)
    combined = itertools.product(
        horizons, thresholds, weights, schedules, ranges.steps or (None,), ("", *ranges.recipes)
    )
    return [
        TunedSetting("rtc", None, horizon, threshold, weight, _other(steps, facts.steps), recipe, schedule=schedule)
        for horizon, threshold, weight, schedule, steps, recipe in combined
    ]


def _async(facts: PolicyFacts, ranges: Ranges) -> list[TunedSetting]:
    """Return the settings of LeRobot's robot client. Its server changes nothing of a policy: no steps, no recipe."""
    combined = itertools.product(ranges.joins or JOINS, ranges.shares or (SHARE,))
    return [TunedSetting("async", join=join, share=share, sent=facts.chunk) for join, share in combined]


def _halves(facts: PolicyFacts) -> list[int]:
    """Return the policy's own number of executed actions, all of a chunk, and its halves."""
    lengths, value = [facts.executed], facts.most_executed
    while value >= 1 and len(lengths) < MOST_LENGTHS:
        lengths.append(value)
        value //= 2
    return list(dict.fromkeys(lengths))


def _impossible(setting: TunedSetting, facts: PolicyFacts, ticks: int) -> str:
    """Return the sum by which a setting cannot work, in words; '' if it may."""
    if setting.engine == "sync":
        if setting.coefficient is not None and ticks > 1:
            return f"a call lasts {ticks} ticks, and an average of chunks takes one for each action"
        return ""
    if not ticks:
        return "a call takes no time: there is nothing to bridge"
    if setting.engine == "async":  # where its queue runs empty, the arm waits for the chunk, as in sync
        return ""
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
    return ""


def _check(facts: PolicyFacts, ranges: Ranges) -> None:
    for engine, why in _why_not(facts).items():
        if why and engine in ranges.engines:
            raise UserError(f"--inference.type={engine}: {why}")
    if too_many := [value for value in ranges.executed if not 1 <= value <= facts.most_executed]:
        raise UserError(f"--n_action_steps={too_many[0]}: this policy can execute 1 to {facts.most_executed} actions")
    for flag, values in (("execution_horizon", ranges.horizons), ("queue_threshold", ranges.thresholds)):
        if wrong := [value for value in values if not 1 <= value <= facts.chunk]:
            raise UserError(f"--{flag}={wrong[0]}: a chunk of this policy has {facts.chunk} actions")
    if unknown := [value for value in ranges.schedules if value.upper() not in SCHEDULES]:
        raise UserError(f"--prefix_attention_schedule={unknown[0]}: {nearest(unknown[0], SCHEDULES)}")
    if ranges.coefficients and not facts.averages:
        raise UserError("--temporal_ensemble_coeff: this policy cannot average chunks: leave it out")
    if ranges.steps and facts.steps is None:
        raise UserError("--steps: this policy has no denoising steps: leave it out")


def _other(steps: int | None, own: int | None) -> int | None:
    return None if steps == own else steps
