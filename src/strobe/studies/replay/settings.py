"""A rollout to be played: the turns of its loop, its set-up, the policy that is asked, and all that came of it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from lerobot.configs import RTCAttentionSchedule
from lerobot.policies.rtc.configuration_rtc import RTCConfig

from strobe.errors import UserError
from strobe.measure.rollout import Action, Call, Tick

_NAMES = ["one", "two"]  # LeRobot's sync engine squeezes a single one away
_FEATURE = {"action": {"dtype": "float32", "shape": (2,), "names": _NAMES}}


@dataclass(frozen=True)
class Beat:
    """One turn of the control loop: moments in nanoseconds from its start.

    Args:
        notify_ns, get_ns, send_ns: when the engine is told of the observation, is asked for an action, and when the
            action is sent; without the time that a call of the sync engine takes.
        work_ns: when it sleeps, likewise.
        over_ns: how much later than its work, or the period asked for, the next turn begins.
        wanted: whether it wants an action; a loop that is paused or resets its scene wants none.
        reset: whether the engine is reset before it.
    """

    notify_ns: int
    get_ns: int
    send_ns: int
    work_ns: int
    over_ns: int = 0
    wanted: bool = True
    reset: bool = False


@dataclass(frozen=True)
class Setting:
    """How a rollout is set up.

    Args:
        engine: 'sync' or 'rtc', as of --inference.type.
        threshold: --inference.queue_threshold, in actions.
        rtc: fields of LeRobot's RTCConfig.
        chunk: actions of a chunk; of the sync engine those that it executes.
        warmups: calls that torch.compile warms up with; 0 without it.
        delay: inference_delay to assume: 'max' of all latencies, as LeRobot does; 'p95' of the latest hundred; or a
            number of actions.
        mended: merge and track as LeRobot's pull request 4454 does.
    """

    engine: str
    fps: float
    multiplier: int = 1
    threshold: int = 30
    rtc: dict[str, Any] = field(default_factory=dict)
    chunk: int = 50
    warmups: int = 0
    delay: str = "max"
    mended: bool = False

    @property
    def period_ns(self) -> float:
        """Nanoseconds from tick to tick, as asked for."""
        return 1e9 / (self.fps * self.multiplier)

    @property
    def guided(self) -> bool:
        """Whether a chunk replaces the one before, rather than being queued behind it."""
        return self.engine == "sync" or bool(self.rtc.get("enabled", True))


class World(Protocol):
    """The robot and all around it, or what stands for them. Moments are nanoseconds from the first tick.

    The loop asks in the order of time: an observation at the start of a tick, then an action of that tick.
    """

    @property
    def over(self) -> bool:
        """Whether the episode has ended, by the moment that was told last."""
        ...

    def observe(self, moment: int, /) -> Callable[[], dict[str, Any]]:
        """Return what gives the observation of ``moment`` when it is wanted."""
        ...

    def act(self, moment: int, action: torch.Tensor | None, /) -> None:
        """Take the action of a tick, (action dim,), sent at ``moment``; None where the tick has none."""
        ...


@dataclass(frozen=True)
class Watched:
    """A world that no action changes, and that does not end: a recording."""

    observe: Callable[[int], Callable[[], dict[str, Any]]]
    over: bool = False

    def act(self, moment: int, action: torch.Tensor | None) -> None:
        """Nothing: what was recorded stays as it was."""


@dataclass
class Brain:
    """A policy and all that LeRobot's engines want beside it.

    Args:
        real: whether its actions mean anything.
    """

    policy: Any
    preprocessor: Any
    postprocessor: Any
    robot: Any
    hw_features: dict[str, Any]
    dataset_features: dict[str, Any]
    keys: list[str]
    task: str
    device: str
    world: World
    real: bool = True


@dataclass
class Played:
    """All that was played; times are nanoseconds from the first tick."""

    ticks: list[Tick] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)


def no_policy(setting: Setting) -> Brain:
    """A brain whose chunks are as long as ``setting`` says, and mean nothing."""
    policy, plain = _NoPolicy(setting.chunk), _Plain()
    robot = SimpleNamespace(robot_type="none", action_features={})
    return Brain(policy, plain, plain, robot, {}, _FEATURE, _NAMES, "", "cpu", Watched(lambda _: dict), real=False)


def rtc_config(given: dict[str, Any]) -> RTCConfig:
    """LeRobot's config of Real-Time Chunking, from plain data; fields that this LeRobot does not have are left out.

    Raises:
        UserError: a value that LeRobot refuses.
    """
    known = {name: value for name, value in given.items() if name in RTCConfig.__dataclass_fields__}
    try:
        if "prefix_attention_schedule" in known:
            known["prefix_attention_schedule"] = RTCAttentionSchedule(known["prefix_attention_schedule"])
        return RTCConfig(**known)
    except ValueError as error:
        raise UserError(f"--inference.rtc: {error}") from None


class _NoPolicy:
    """Chunks of zeros, as long as asked for."""

    def __init__(self, length: int) -> None:
        self.config = SimpleNamespace(use_amp=False)
        self._length = length
        self._action_queue: deque[torch.Tensor] = deque()
        self._chunk = torch.zeros(1, length, len(_NAMES))

    def predict_action_chunk(self, batch: Any, **_: Any) -> torch.Tensor:
        return self._chunk

    def select_action(self, batch: Any) -> torch.Tensor:
        if not self._action_queue:
            self._action_queue.extend(itertools.repeat(self._chunk[:, 0], self._length))
        return self._action_queue.popleft()

    def reset(self) -> None:
        self._action_queue.clear()


class _Plain:
    """A processor that changes nothing."""

    steps: tuple[Any, ...] = ()

    def __call__(self, batch: Any) -> Any:
        return batch

    def reset(self) -> None:
        pass
