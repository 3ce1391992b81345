"""LeRobot's inference engines in virtual time: what a rollout would have been, without waiting and without a robot.

`RTCInferenceEngine` runs its own thread's function, unmodified, here on the caller's thread. The module's ``time`` is a
clock of ours: while the engine sleeps, or its policy predicts, the control loop's ticks that fall into that time are
played. So the queue, the tracker of latencies, the delay assumed, the prefix of the chunk before and the warm-up are
those of the LeRobot that is installed, whatever its version. `SyncInferenceEngine` is asked as the loop asks it.

Not played: that threads slow each other down, beyond what the recorded ticks and calls show of it; and the arm, which
stays where it was in the recording, whatever it is told now.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from lerobot.configs import RTCAttentionSchedule
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.rollout.inference import RTCInferenceConfig, SyncInferenceConfig, create_inference_engine, rtc
from lerobot.utils.action_interpolator import ActionInterpolator
from lerobot.utils.feature_utils import build_dataset_frame

from strobe.errors import UserError
from strobe.measure.rollout import Action, Call, Tick
from strobe.subjects.rollout_log import LastError
from strobe.subjects.rollout_robot import actions_left

AT_ONCE_NS = 1_000_000  # a call that is shorter takes no time
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


@dataclass
class Brain:
    """A policy and all that LeRobot's engines want beside it.

    Args:
        observe: of a moment, in nanoseconds from the first tick, what gives its observation when that is wanted.
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
    observe: Callable[[int], Callable[[], dict[str, Any]]]
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
    return Brain(policy, plain, plain, robot, {}, _FEATURE, _NAMES, "", "cpu", lambda _: dict, real=False)


def play(
    beats: Iterable[Beat],
    setting: Setting,
    latencies: Iterator[int],
    brain: Brain,
    *,
    until_ns: int,
    seed: int = 0,
    phase_ns: int = 0,
    most_calls: int | None = None,
    answered: Callable[[int], None] = lambda _: None,
) -> Played:
    """Play a rollout.

    Args:
        beats: the turns of its loop, in order; what is past ``until_ns`` is not played.
        latencies: nanoseconds of each call, without end.
        seed: of the policy's noise; the same call draws the same noise under every setting.
        phase_ns: how long before the first tick the inference thread began to look for work.
        most_calls: end after so many.
        answered: is told of each call of the policy: how many there were.

    Raises:
        UserError: the policy failed.
    """
    loop = _Loop(setting, latencies, brain, seed, until_ns, most_calls, answered)
    threads: list[Any] = []
    errors, logger = LastError(), logging.getLogger(rtc.__name__)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        logger.addHandler(errors)
        stack.callback(logger.removeHandler, errors)
        names = _stand_ins(loop, threads) | _mended(setting)
        if missing := [name for name in names if not hasattr(rtc, name)]:
            raise UserError(f"this LeRobot's engine cannot be replayed: {rtc.__name__} has no {', '.join(missing)}")
        stack.enter_context(mock.patch.multiple(rtc, **names))
        stack.enter_context(loop.predicting())
        if brain.real:
            _guide(brain.policy, setting)
        engine = loop.engine = _engine(setting, brain)
        engine.reset()
        engine.start()
        engine.resume()
        loop.begin(beats, phase_ns)
        for thread in threads:
            thread.target()
        loop.advance(math.inf)
        engine.stop()
    if errors.text or loop.failed:
        raise UserError(f"the policy failed in the replay: {loop.failed or errors.text}")
    return loop.played


class _Loop:
    """The control loop, and the clock."""

    def __init__(
        self,
        setting: Setting,
        latencies: Iterator[int],
        brain: Brain,
        seed: int,
        until_ns: int,
        most: int | None,
        answered: Callable[[int], None],
    ) -> None:
        self.setting, self.latencies, self.brain, self.seed = setting, latencies, brain, seed
        self.until_ns, self.most, self.answered = until_ns, most, answered
        self.now: float = 0
        self.over = False
        self.failed = ""
        self.engine: Any = None
        self.queue: Any = None  # of the engine, where it has one
        self.played = Played()
        self.chunk = 0  # number of the one that actions come from
        self.observed: int | None = None  # the start of the tick whose observation is behind that chunk
        self.latest = 0  # the start of the tick that the engine was told of last
        self._call: tuple[float, int, Any, int] | None = None  # start, tick observed, delay assumed, length
        self._calls = 0
        self._at_once: int | None = None  # the tick observed by the last call, where that took no time
        self._due: float = math.inf
        self._control: Iterator[float] = iter(())

    def begin(self, beats: Iterable[Beat], phase_ns: int) -> None:
        self.now = -phase_ns
        self._control = self._ticks(beats)
        self._due = next(self._control, math.inf)
        self.over = self._due == math.inf

    def advance(self, until: float) -> None:
        """Let the time pass until then, and play the ticks that fall into it."""
        while not self.over and self._due <= until:
            self.now = self._due
            self._due = next(self._control, math.inf)
            if self._due == math.inf:
                self.over = True
                self.engine.stop()
        if until < math.inf:
            self.now = max(self.now, until)

    def look(self) -> None:
        """Before the engine looks whether to call: let the time pass in which a call of no time would only be repeated.

        Where calls begin at more actions than a chunk has, it would else call for ever, and no time would pass.
        """
        while not self.over and self._at_once is not None and self._at_once == self.latest:
            self.advance(self._due)

    def _ticks(self, beats: Iterable[Beat]) -> Iterator[float]:
        """Play the ticks, and yield the moments at which the loop goes on."""
        setting, brain, engine, played = self.setting, self.brain, self.engine, self.played
        interpolator = ActionInterpolator(multiplier=setting.multiplier)
        observation: Any = None
        start, warm, follows, joined = 0, setting.warmups == 0, False, False
        behind: int | None = None
        for beat in beats:
            if start >= self.until_ns or (self.most is not None and self._calls > self.most):
                return
            yield start
            if beat.reset:
                engine.reset()
                interpolator.reset()
                observation, follows, joined = None, False, False
            waited, depth = 0, None
            if beat.wanted and (observation is None or interpolator.needs_new_action()):
                yield start + beat.notify_ns
                observation, self.latest = brain.observe(start), start
                engine.notify_observation(observation)
            wanted = beat.wanted and bool(engine.ready)
            if wanted and not warm:
                engine.reset()
                interpolator.reset()
                engine.resume()
                warm = True
            sent = False
            if wanted:
                if interpolator.needs_new_action():
                    yield start + beat.get_ns
                    action, waited = self._asked(observation, start)
                    if action is not None:
                        behind = self.observed if setting.guided else None
                        if brain.real:
                            played.actions.append(Action(self.chunk, action.tolist(), joined))
                        joined = True
                        interpolator.add(action.cpu())
                depth = self._depth()
                sent = interpolator.get() is not None
                joined = joined and sent
            work = beat.work_ns + waited
            if wanted:
                age = start + beat.send_ns + waited - behind if sent and behind is not None else None
                played.ticks.append(Tick(start, work, sent, follows, depth, age))
            follows = wanted
            start = round(start + max(work, setting.period_ns) + beat.over_ns)

    def _asked(self, observation: Any, start: int) -> tuple[Any, int]:
        """The next action, and the nanoseconds that the loop stood still for it."""
        brain = self.brain
        if self.queue is not None:
            return self.engine.get_action(None), 0
        frame = build_dataset_frame(brain.dataset_features, observation(), prefix="observation")
        asks = actions_left(brain.policy) <= 0
        if asks and brain.real:
            torch.manual_seed(self.seed + self._calls)
        action = self.engine.get_action(frame)
        if not asks:
            return action, 0
        waited = next(self.latencies)
        self._calls += 1
        self.answered(self._calls)
        self.chunk, self.observed = self.chunk + 1, start
        at = round(self.now)
        self.played.calls.append(Call(at, at + waited, actions_left(brain.policy) + 1))
        return action, waited

    def _depth(self) -> int | None:
        left = self.queue.left() if self.queue is not None else actions_left(self.brain.policy)
        return left if left >= 0 else None

    def predicting(self) -> contextlib.AbstractContextManager[Any]:
        """Inside, a call of the policy takes the time that it is given."""
        if self.setting.engine == "sync":
            return contextlib.nullcontext()
        inner = self.brain.policy.predict_action_chunk

        def predicted(*args: Any, **kwargs: Any) -> Any:
            start, latest = self.now, self.latest
            if self.brain.real:
                torch.manual_seed(self.seed + self._calls)
            try:
                actions = inner(*args, **kwargs)
            except Exception as error:
                self.failed = f"{type(error).__name__}: {error}".splitlines()[0]
                self.over = True
                self.engine.stop()
                raise
            self._calls += 1
            self.answered(self._calls)
            self._call = (start, latest, kwargs.get("inference_delay"), actions.shape[-2])
            took = next(self.latencies)
            self._at_once = latest if took < AT_ONCE_NS else None
            self.advance(start + took)
            return actions

        return mock.patch.object(self.brain.policy, "predict_action_chunk", predicted)

    def merged(self, queue: Any, delay: int, executed: int) -> None:
        """Note that ``queue`` took the chunk of the call at hand."""
        self.chunk += 1
        call, self._call = self._call, None
        if call is None or self.over:
            return
        start, self.observed, assumed, length = call
        self.played.calls.append(
            Call(round(start), round(self.now), length, assumed, delay, max(0, executed), queue.left())
        )


def _engine(setting: Setting, brain: Brain) -> Any:
    config: Any = SyncInferenceConfig()
    if setting.engine == "rtc":
        config = RTCInferenceConfig(rtc=rtc_config(setting.rtc), queue_threshold=setting.threshold)
    return create_inference_engine(
        config,
        policy=brain.policy,
        preprocessor=brain.preprocessor,
        postprocessor=brain.postprocessor,
        robot_wrapper=brain.robot,
        hw_features=brain.hw_features,
        dataset_features=brain.dataset_features,
        ordered_action_keys=brain.keys,
        task=brain.task,
        fps=setting.fps,
        device=brain.device,
        use_torch_compile=setting.warmups > 0,
        compile_warmup_inferences=setting.warmups,
    )


def _guide(policy: Any, setting: Setting) -> None:
    """Set the policy up for Real-Time Chunking or not, as LeRobot does when a rollout begins."""
    if setting.engine == "rtc" or hasattr(policy.config, "rtc_config"):
        policy.config.rtc_config = rtc_config(setting.rtc) if setting.engine == "rtc" else None
    if hasattr(policy, "init_rtc_processor"):
        policy.init_rtc_processor()


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


def _stand_ins(loop: _Loop, threads: list[Any]) -> dict[str, Any]:
    """The names in LeRobot's module that the clock, the thread, the queue and the tracker come from."""

    class Clock:
        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

        def perf_counter(self) -> float:
            return loop.now / 1e9

        def sleep(self, seconds: float) -> None:
            loop.advance(loop.now + seconds * 1e9)

    class Thread:
        """Its function is run by the caller."""

        def __init__(self, target: Callable[[], None], **_: Any) -> None:
            self.target = target
            threads.append(self)

        def start(self) -> None:
            pass

        def join(self, timeout: float | None = None) -> None:
            pass

        def is_alive(self) -> bool:
            return False

    plain: Any = rtc.ActionQueue
    mended = loop.setting.mended

    class Queue(plain):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            loop.queue = self

        def qsize(self) -> int:
            loop.look()
            return super().qsize()

        def left(self) -> int:
            return super().qsize()

        def merge(
            self, original: Any, processed: Any, real_delay: int, index: int | None = None, *more: Any, **named: Any
        ) -> None:
            executed = 0 if index is None else self.last_index - index
            delay = max(0, min(real_delay, executed)) if mended else real_delay
            super().merge(original, processed, delay, index, *more, **named)
            loop.merged(self, delay, executed)

    def frame_of(features: Any, observation: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        return build_dataset_frame(features, observation(), *args, **kwargs)

    names = {"time": Clock(), "Thread": Thread, "ActionQueue": Queue, "LatencyTracker": _tracker(loop.setting)}
    return names | {"build_dataset_frame": frame_of}


def _tracker(setting: Setting) -> Any:
    plain: Any = rtc.LatencyTracker

    class Tracker(plain):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._first = setting.mended

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


def _mended(setting: Setting) -> dict[str, Any]:
    """The padding of a short prefix as LeRobot's pull request 4454 pads it: its last action is held."""
    name = "_normalize_prev_actions_length"
    plain = getattr(rtc, name, None)
    if not setting.mended or plain is None:
        return {}

    def held(actions: torch.Tensor, target_steps: int) -> torch.Tensor:
        missing = target_steps - len(actions)
        if missing <= 0 or not len(actions):
            return plain(actions, target_steps=target_steps)
        return torch.cat([actions, actions[-1:].expand(missing, -1)])

    return {name: held}


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


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Inside, LeRobot logs errors alone: its queue warns of every merge whose delay is not the one that happened."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
