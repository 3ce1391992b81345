"""The flags of an evaluation that is true to time, and the timings that they ask for."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strobe.core.cli.bounds import at_least
from strobe.core.errors import UserError
from strobe.lerobot.flags.lazy_flags import of_lerobot

if TYPE_CHECKING:
    from lerobot.policies.rtc.configuration_rtc import RTCConfig

    from strobe.evaluate.episode_log import EpisodeLine
    from strobe.evaluate.episodes.timings import RequestedTiming
else:
    RTCConfig = of_lerobot("lerobot.policies.rtc.configuration_rtc:RTCConfig")

OF_RTC = ("execution_horizon", "queue_threshold")
OF_ASYNC = ("aggregate_fn_name", "chunk_size_threshold")


@dataclass
class InferenceFlags:
    """LeRobot's inference engines, and the settings of rtc."""

    # LeRobot's engines, separated by commas: sync, in which the loop stands still for each call; rtc (Real-Time
    # Chunking) and async (the robot client with the policy server), which call the policy while the loop goes on.
    type: str = "sync"
    # For rtc: a call begins when the queue has this number of actions or fewer.
    queue_threshold: int = field(default=30, metadata=at_least(0))
    # For rtc: its own settings.
    rtc: RTCConfig = field(default_factory=RTCConfig)


@dataclass
class RealtimeFlags:
    """Episodes that are true to time."""

    # True to time: while the policy computes, the simulator goes on, on a virtual clock.
    realtime: bool = False
    # With --realtime, the latency of each call: a number of ms; live, the time that it takes here (the default); or the
    # folder of a rollout, rehearsal or evaluation, from whose calls it is drawn. Several, separated by commas, give a
    # row each: 0,100,live,runs/RUN.
    latency: str = ""
    # With --realtime, the latency in control ticks of the simulator: 0,2,5,20.
    delay_ticks: str = ""
    # With --realtime: as lerobot-rollout's --inference.type=sync or rtc, or async for LeRobot's robot client; several:
    # sync,rtc,async. For rtc --inference.queue_threshold=30, --inference.rtc.execution_horizon=10 and its other fields.
    inference: InferenceFlags = field(default_factory=InferenceFlags)
    # With --realtime, execution horizons of rtc, a row each: 10,20 (one: --inference.rtc.execution_horizon).
    execution_horizon: str = ""
    # With --realtime, thresholds of rtc's queue, a row each: 20,40 (one: --inference.queue_threshold).
    queue_threshold: str = ""
    # With --realtime, how async joins two chunks where they overlap, a row each, as LeRobot's robot client spells it:
    # weighted_average (its own), latest_only, average, conservative.
    aggregate_fn_name: str = ""
    # With --realtime, share of a chunk at which async sends the next observation, a row each: 0.5,0.8 (its own: 0.5).
    chunk_size_threshold: str = ""
    # With --realtime, what happens in a tick without an action: last repeats the last action, zero moves nothing. By
    # default the one that fits the simulator: zero if actions are movements (metaworld, libero), else last.
    hold: str = ""


def check(config: RealtimeFlags, env: object) -> None:
    """Check the flags that are about time, as far as possible without a policy. Raises UserError."""
    own = ("latency", "delay_ticks", "hold", *OF_RTC, *OF_ASYNC)
    given = [f"--{name}" for name in own if getattr(config, name)]
    given += ["--inference"] * (_values(config.inference) != _values(InferenceFlags()))
    if given and not config.realtime:
        raise UserError(f"{given[0]} needs --realtime: without it the simulator waits for the policy")
    if config.realtime:
        timings(config, env)


def timings(config: RealtimeFlags, env: Any) -> list[RequestedTiming]:
    """Return each engine with each latency, in the order of the flags. Raises UserError."""
    from strobe.evaluate.episodes.timings import LIVE, RequestedTiming, parse_engines, parse_latency, parse_ticks
    from strobe.simulators.held_action import HOLDS, hold_for

    fps, inference = env.fps, config.inference
    if not fps > 0:
        raise UserError(f"--env.fps={fps}: must be above 0")
    if config.hold not in ("", *HOLDS):
        raise UserError(f"--hold={config.hold}: {' or '.join(HOLDS)}")
    if config.latency and config.delay_ticks:
        raise UserError("--latency and --delay_ticks set the same thing, in ms and in control ticks: give one of them")
    ticks = config.delay_ticks
    latencies = parse_ticks(ticks, fps) if ticks else parse_latency(config.latency or LIVE)
    engines = parse_engines(inference.type)
    if "rtc" not in engines and _values(inference) != _values(InferenceFlags(inference.type)):
        raise UserError("--inference.queue_threshold and --inference.rtc.* need --inference.type=rtc, or sync,rtc")
    for engine, own in (("rtc", OF_RTC), ("async", OF_ASYNC)):
        if engine not in engines and (given := next((name for name in own if getattr(config, name)), "")):
            raise UserError(f"--{given} needs --inference.type={engine}, or sync,{engine}")
    if inference.rtc.execution_horizon < 1:
        raise UserError(f"--inference.rtc.execution_horizon={inference.rtc.execution_horizon}: must be at least 1")
    rtc = {name: value for name, value in _values(inference)["rtc"].items() if not name.startswith("debug")}
    hold = hold_for(env, config.hold)
    ways: list[dict[str, Any]] = []
    for engine in engines:
        if engine == "rtc":
            ways += _of_rtc(config, rtc)
        elif engine == "async":
            ways += _of_async(config)
        else:
            ways.append({"engine": engine})
    return [RequestedTiming(latency=latency, hold=hold, fps=fps, **way) for way in ways for latency in latencies]


def _of_rtc(config: RealtimeFlags, rtc: dict[str, object]) -> list[dict[str, object]]:
    """Return fields of a `RequestedTiming` for each horizon with each threshold. Raises UserError."""
    horizons = _numbers("execution_horizon", config.execution_horizon) or [config.inference.rtc.execution_horizon]
    thresholds = _numbers("queue_threshold", config.queue_threshold) or [config.inference.queue_threshold]
    made = []
    for horizon, threshold in itertools.product(horizons, thresholds):
        words = [f"horizon {horizon}"] if config.execution_horizon else []
        words += [f"queue {threshold}"] if config.queue_threshold else []
        fields = {"rtc": {**rtc, "execution_horizon": horizon}, "threshold": threshold}
        made.append({"engine": "rtc", **fields, "differing": ", ".join(words)})
    return made


def _of_async(config: RealtimeFlags) -> list[dict[str, object]]:
    """Return the same for each way to join chunks with each share of a chunk. Raises UserError."""
    from strobe.evaluate.episodes.timings import parse_joins, parse_shares

    joins: list[str | None] = [*parse_joins(config.aggregate_fn_name)]
    shares: list[float | None] = [*parse_shares(config.chunk_size_threshold)]
    made = []
    for join, share in itertools.product(joins or [None], shares or [None]):
        client = {"aggregate_fn_name": join, "chunk_size_threshold": share}
        words = [join] if join else []
        words += [f"below {share:g}"] if share is not None else []
        given = {name: value for name, value in client.items() if value is not None}
        made.append({"engine": "async", "client": given, "differing": ", ".join(words)})
    return made


def _numbers(flag: str, text: str) -> list[int]:
    from strobe.evaluate.episodes.settings import parse_numbers

    return list(parse_numbers(f"--{flag}", text, _whole, "must be a whole number above zero"))


def _whole(part: str) -> int | None:
    return int(part) if part.isdecimal() and int(part) > 0 else None


def timed_live(config: RealtimeFlags) -> bool:
    """Return whether the latency of an episode's call is what the call takes here."""
    if not config.realtime or config.delay_ticks:
        return False
    from strobe.evaluate.episodes.timings import LIVE

    return LIVE in (config.latency or LIVE).split(",")


def _values(inference: InferenceFlags) -> dict[str, Any]:
    """Return the flags as plain values, the same before and after LeRobot's own class holds them."""
    rtc = dataclasses.asdict(inference.rtc)
    plain = {name: value.value if isinstance(value, enum.Enum) else value for name, value in rtc.items()}
    return {**{item.name: getattr(inference, item.name) for item in dataclasses.fields(inference)}, "rtc": plain}


def notes(
    config: RealtimeFlags, env: Any, requested: list[RequestedTiming], played: Iterable[EpisodeLine]
) -> list[str]:
    """Return notes on the requested timings, once episodes were ``played``."""
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
