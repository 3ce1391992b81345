"""Flags of evaluations that are true to time, and the timings that they ask for."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strobe.cli.bounds import at_least
from strobe.cli.late import of_lerobot
from strobe.errors import UserError

if TYPE_CHECKING:
    from lerobot.policies.rtc.configuration_rtc import RTCConfig

    from strobe.runs.episode_log import EpisodeLine
else:
    RTCConfig = of_lerobot("lerobot.policies.rtc.configuration_rtc:RTCConfig")


@dataclass
class InferenceFlags:
    # LeRobot's engines, separated by commas: sync, in which the loop stands still for each call; rtc (Real-Time
    # Chunking), which calls beside the loop.
    type: str = "sync"
    # Of rtc: actions in the queue, at which or below which a call begins.
    queue_threshold: int = field(default=30, metadata=at_least(0))
    # Of rtc: its own settings.
    rtc: RTCConfig = field(default_factory=RTCConfig)


def spelt_out(argv: Sequence[str]) -> list[str]:
    """``argv`` with --inference=sync,rtc as LeRobot spells it: --inference.type=sync,rtc."""
    return [f"--inference.type{one[11:]}" if one.partition("=")[0] == "--inference" else one for one in argv]


def check(config: Any) -> None:
    """Check the flags that are about time, as far as that goes without a policy. Raises UserError."""
    given = [f"--{name}" for name in ("latency", "delay_ticks", "hold") if getattr(config, name)]
    given += ["--inference"] * (_said(config.inference) != _said(InferenceFlags()))
    if given and not config.realtime:
        raise UserError(f"{given[0]} needs --realtime: without it the simulator waits for the policy")
    if config.realtime:
        timings(config)


def timings(config: Any) -> list[Any]:
    """Each engine with each latency, in the order in which they were asked for, as `AskedTiming`. Raises UserError."""
    from strobe.simulators.held_action import HOLDS, hold_for
    from strobe.studies.evaluate.latencies import LIVE, parse_latency, parse_ticks
    from strobe.studies.evaluate.timings import AskedTiming, parse_engines

    fps, inference = config.env.fps, config.inference
    if not fps > 0:
        raise UserError(f"--env.fps={fps}: must be above 0")
    if config.hold not in ("", *HOLDS):
        raise UserError(f"--hold={config.hold}: {' or '.join(HOLDS)}")
    if config.latency and config.delay_ticks:
        raise UserError("--latency and --delay_ticks say the same, in ms and in control ticks: give one of them")
    ticks = config.delay_ticks
    latencies = parse_ticks(ticks, fps) if ticks else parse_latency(config.latency or LIVE)
    engines = parse_engines(inference.type)
    if "rtc" not in engines and _said(inference) != _said(InferenceFlags(inference.type)):
        raise UserError("--inference.queue_threshold and --inference.rtc.* are of --inference.type=rtc, or sync,rtc")
    if inference.rtc.execution_horizon < 1:
        raise UserError(f"--inference.rtc.execution_horizon={inference.rtc.execution_horizon}: must be at least 1")
    rtc = {name: value for name, value in _said(inference)["rtc"].items() if not name.startswith("debug")}
    hold = hold_for(config.env, config.hold)
    return [
        AskedTiming(engine, latency, hold, fps, rtc if engine == "rtc" else {}, inference.queue_threshold)
        for engine in engines
        for latency in latencies
    ]


def timed_live(config: Any) -> bool:
    """Whether an evaluation takes latencies as they come here."""
    if not config.realtime or config.delay_ticks:
        return False
    from strobe.studies.evaluate.latencies import LIVE

    return LIVE in (config.latency or LIVE).split(",")


def _said(inference: InferenceFlags) -> dict[str, Any]:
    """The flags as plain values, the same before and after LeRobot's own class holds them."""
    rtc = dataclasses.asdict(inference.rtc)
    plain = {name: value.value if isinstance(value, enum.Enum) else value for name, value in rtc.items()}
    return {**{item.name: getattr(inference, item.name) for item in dataclasses.fields(inference)}, "rtc": plain}


def notes(config: Any, asked: list[Any], played: Iterable[EpisodeLine]) -> list[str]:
    """Notes on the timings ``asked`` for, once episodes were ``played``."""
    hold = asked[0].hold
    gripper = "; a gripper keeps its goal" if hold.gripper is not None else ""
    held = {
        "last": "a tick without an action repeats the last one, as an arm that takes positions holds its goal",
        "zero": f"a tick without an action moves nothing (zeros{gripper})",
    }[hold.kind]
    said = [f"{held}: --hold={hold.kind}"]
    if not hold.known and not config.hold:
        said.append(f"it is not known what actions of '{config.env.type}' are: if they are movements, add --hold=zero")
    if any(not line.timing.rests for line in played if line.timing is not None):
        said.append("the simulator stood still until the first action of an episode: its arm's position is not known")
    runs = {one.latency.name: one.latency.runs for one in asked if one.latency.runs}
    for name, calls in runs.items():
        count = len(calls[""])
        of = "of policies alone, without processors" if len(calls) > 1 else "of a rollout"
        said.append(f"latencies of {name} are drawn from {count} calls {of}; its first call is left out")
    if any(len(calls[""]) < 30 for calls in runs.values()):
        said.append("few calls were kept: an episode knows no call longer than the longest of them")
    return said
