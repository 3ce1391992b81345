"""A rollout for virtual time: its loop's turns, its settings, its policy, its result; and LeRobot's engines for it.

The engines run on a clock of Strobe's. Their module gets stand-ins for what it takes time and threads from. The queue
and the tracker of latencies are LeRobot's own classes with a few lines around them, which report merges to the loop
and, where that is requested, fix what LeRobot's pull request 4454 fixes.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from lerobot.configs import RTCAttentionSchedule
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.rollout.inference import RTCInferenceConfig, SyncInferenceConfig, create_inference_engine, rtc
from lerobot.utils.feature_utils import build_dataset_frame

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Observation
from strobe.core.untrusted import JsonObject

_NAMES = ["one", "two"]  # LeRobot's sync engine squeezes a single one away
_FEATURE = {"action": {"dtype": "float32", "shape": (2,), "names": _NAMES}}


@dataclass(frozen=True)
class Beat:
    """One turn of the control loop: moments in nanoseconds from its start.

    Args:
        notify_ns, get_ns, send_ns: when the engine is given the observation, when it is asked for an action, and when
            the action is sent; without the time that a call of the sync engine takes.
        work_ns: when it sleeps, likewise.
        over_ns: how much later than its work, or the requested period, the next turn begins.
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
    """The settings of a rollout.

    Args:
        engine: 'sync' or 'rtc', as of --inference.type; 'async': LeRobot's robot client and policy server.
        threshold: --inference.queue_threshold, in actions.
        rtc: fields of LeRobot's RTCConfig.
        client: fields of LeRobot's RobotClientConfig, for 'async'.
        chunk: actions of a chunk; of the sync engine those that it executes.
        warmups: calls that torch.compile warms up with; 0 without it.
        delay: inference_delay to assume: 'max' of all latencies, as LeRobot does; 'p95' of the latest hundred; or a
            number of actions.
        pr_4454: merge and track as LeRobot's pull request 4454 does.
    """

    engine: str
    fps: float
    multiplier: int = 1
    threshold: int = 30
    rtc: JsonObject = field(default_factory=dict)
    client: JsonObject = field(default_factory=dict)
    chunk: int = 50
    warmups: int = 0
    delay: str = "max"
    pr_4454: bool = False

    @property
    def period_ns(self) -> float:
        """Nanoseconds from tick to tick, as requested."""
        return 1e9 / (self.fps * self.multiplier)

    @property
    def is_guided(self) -> bool:
        """Whether a chunk replaces the one before, rather than being queued behind it."""
        return self.engine == "sync" or bool(self.rtc.get("enabled", True))


class World(Protocol):
    """The robot and its surroundings, or what stands in for them. Moments are nanoseconds from the first tick.

    The loop asks in the order of time: an observation at the start of a tick, then an action of that tick.
    """

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended by the latest moment that was given."""
        ...

    def observe(self, moment: int, /) -> Callable[[], Observation]:
        """Return a function that returns the observation of ``moment``."""
        ...

    def act(self, moment: int, action: torch.Tensor | None, /) -> None:
        """Execute the action of a tick, (action dim,), sent at ``moment``; None if the tick has none."""
        ...


@dataclass(frozen=True)
class RecordedWorld:
    """A world that no action changes, and that does not end: a recording."""

    observe: Callable[[int], Callable[[], Observation]]
    is_over: bool = False

    def act(self, moment: int, action: torch.Tensor | None) -> None:
        """Do nothing: a recording stays as it was."""


@dataclass
class EngineInputs:
    """A policy, and everything else that LeRobot's engines are made from.

    Args:
        real: whether the policy's actions mean anything.
    """

    policy: Any
    preprocessor: Any
    postprocessor: Any
    robot: Any
    hw_features: JsonObject
    dataset_features: JsonObject
    keys: list[str]
    task: str
    device: str
    world: World
    real: bool = True


def make_zero_inputs(setting: Setting) -> EngineInputs:
    """Return inputs whose policy makes chunks of zeros, as long as ``setting`` says."""
    policy, plain = _NoPolicy(setting.chunk), _Plain()
    robot = SimpleNamespace(robot_type="none", action_features={})
    world = RecordedWorld(lambda _: dict)
    return EngineInputs(policy, plain, plain, robot, {}, _FEATURE, _NAMES, "", "cpu", world, real=False)


def rtc_config(given: JsonObject) -> RTCConfig:
    """Return LeRobot's config of Real-Time Chunking from plain data, without fields that this LeRobot does not have.

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
    """A policy whose chunks are zeros."""

    def __init__(self, length: int) -> None:
        self.config = SimpleNamespace(use_amp=False)
        self._length = length
        self._action_queue: deque[torch.Tensor] = deque()
        self._chunk = torch.zeros(1, length, len(_NAMES))

    def predict_action_chunk(self, batch: object, **_: object) -> torch.Tensor:
        return self._chunk

    def select_action(self, batch: object) -> torch.Tensor:
        if not self._action_queue:
            self._action_queue.extend(itertools.repeat(self._chunk[:, 0], self._length))
        return self._action_queue.popleft()

    def reset(self) -> None:
        self._action_queue.clear()


class _Plain:
    """A processor that changes nothing."""

    steps: tuple[object, ...] = ()

    def __call__(self, batch: object) -> Any:
        return batch

    def reset(self) -> None:
        pass


class VirtualLoop(Protocol):
    """The control loop, as what stands in for LeRobot's clock, queue, robot and network uses it."""

    setting: Setting
    now: float
    queue: Any

    def advance(self, until: float) -> None: ...
    def wait(self) -> None: ...
    def look(self) -> None: ...
    def note_merge(self, queue: object, delay: int, executed: int) -> None: ...


def make_engine(setting: Setting, inputs: EngineInputs) -> object:
    """Return lerobot-rollout's inference engine for ``setting``."""
    config: Any = SyncInferenceConfig()
    if setting.engine == "rtc":
        config = RTCInferenceConfig(rtc=rtc_config(setting.rtc), queue_threshold=setting.threshold)
    return create_inference_engine(
        config,
        policy=inputs.policy,
        preprocessor=inputs.preprocessor,
        postprocessor=inputs.postprocessor,
        robot_wrapper=inputs.robot,
        hw_features=inputs.hw_features,
        dataset_features=inputs.dataset_features,
        ordered_action_keys=inputs.keys,
        task=inputs.task,
        fps=setting.fps,
        device=inputs.device,
        use_torch_compile=setting.warmups > 0,
        compile_warmup_inferences=setting.warmups,
    )


def guide(policy: Any, setting: Setting) -> None:
    """Set the policy up for Real-Time Chunking or not, as LeRobot does when a rollout begins."""
    if setting.engine == "rtc" or hasattr(policy.config, "rtc_config"):
        policy.config.rtc_config = rtc_config(setting.rtc) if setting.engine == "rtc" else None
    if hasattr(policy, "init_rtc_processor"):
        policy.init_rtc_processor()


def stand_ins(loop: VirtualLoop, threads: list[object]) -> dict[str, Any]:
    """Return stand-ins for names of LeRobot's module: the clock, the thread, the queue, the tracker, the frame."""

    class Clock:
        def __getattr__(self, name: str) -> object:
            return getattr(time, name)

        def perf_counter(self) -> float:
            return loop.now / 1e9

        def sleep(self, seconds: float) -> None:
            loop.advance(loop.now + seconds * 1e9)

    class Thread:
        """A thread whose function the caller runs."""

        def __init__(self, target: Callable[[], None], **_: object) -> None:
            self.target = target
            threads.append(self)

        def start(self) -> None:
            pass

        def join(self, timeout: float | None = None) -> None:
            pass

        def is_alive(self) -> bool:
            return False

    def make_frame(features: Any, observation: Callable[[], Any], *args: Any, **kwargs: object) -> object:
        return build_dataset_frame(features, observation(), *args, **kwargs)

    names = {"time": Clock(), "Thread": Thread, "ActionQueue": _queue(loop), "LatencyTracker": _tracker(loop.setting)}
    return names | {"build_dataset_frame": make_frame}


def _queue(loop: VirtualLoop) -> Any:
    plain: Any = rtc.ActionQueue
    clamped = loop.setting.pr_4454

    class Queue(plain):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            loop.queue = self

        def qsize(self) -> int:
            loop.look()
            return super().qsize()

        def remaining(self) -> int:
            return super().qsize()

        def merge(
            self,
            original: object,
            processed: object,
            real_delay: int,
            index: int | None = None,
            *more: object,
            **named: object,
        ) -> None:
            executed = 0 if index is None else self.last_index - index
            delay = max(0, min(real_delay, executed)) if clamped else real_delay
            super().merge(original, processed, delay, index, *more, **named)
            loop.note_merge(self, delay, executed)

    return Queue


def _tracker(setting: Setting) -> Any:
    plain: Any = rtc.LatencyTracker

    class Tracker(plain):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self._first = setting.pr_4454

        def add(self, latency: float) -> None:
            if self._first:  # the first call is slow for reasons of its own
                self._first = False
                return
            super().add(latency)

        def max(self) -> float | None:
            if setting.delay == "p95":
                return self.p95()
            if setting.delay == "max":
                return super().max()
            return max(0.0, int(setting.delay) - 0.5) / setting.fps  # the engine rounds up

    return Tracker


def padding(setting: Setting) -> dict[str, Any]:
    """Return a stand-in that pads a short prefix as LeRobot's pull request 4454 does, by its last action; or none."""
    name = "_normalize_prev_actions_length"
    plain = getattr(rtc, name, None)
    if not setting.pr_4454 or plain is None:
        return {}

    def repeat_last_action(actions: torch.Tensor, target_steps: int) -> torch.Tensor:
        missing = target_steps - len(actions)
        if missing <= 0 or not len(actions):
            return plain(actions, target_steps=target_steps)
        return torch.cat([actions, actions[-1:].expand(missing, -1)])

    return {name: repeat_last_action}
