"""LeRobot's inference engines in virtual time: what a rollout would have been, without waiting and without a robot.

`RTCInferenceEngine` runs its own thread's function, unmodified, here on the caller's thread. The module's ``time`` is a
clock of ours: while the engine sleeps, or its policy predicts, the control loop's ticks that fall into that time are
played. So the queue, the tracker of latencies, the delay assumed, the prefix of the chunk before and the warm-up are
those of the LeRobot that is installed, whatever its version. `SyncInferenceEngine` is asked as the loop asks it.

The world around the loop is the caller's (`settings.World`): a recording, in which the arm stays where it was whatever
it is told now, or a simulator that goes on while the policy thinks.

Not played: that threads slow each other down, beyond what the ticks and latencies given show of it.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import torch
from lerobot.rollout.inference import rtc
from lerobot.utils.action_interpolator import ActionInterpolator
from lerobot.utils.feature_utils import build_dataset_frame

from strobe.errors import UserError
from strobe.lerobot.action_queue import actions_left
from strobe.lerobot.quiet import errors_alone
from strobe.loops.event_log import LastError
from strobe.measure.rollout import Action, Call, Tick
from strobe.studies.replay.engine import engine_for, guide, mended, stand_ins
from strobe.studies.replay.settings import Beat, Brain, Played, Setting

AT_ONCE_NS = 1_000_000  # a call that is shorter takes no time


def play(
    beats: Iterable[Beat],
    setting: Setting,
    latencies: Iterator[int],
    brain: Brain,
    *,
    until_ns: int,
    seed: int = 0,
    noise: Callable[[int], None] | None = None,
    phase_ns: int = 0,
    most_calls: int | None = None,
    answered: Callable[[int], None] = lambda _: None,
) -> Played:
    """Play a rollout.

    Args:
        beats: the turns of its loop, in order; what is past ``until_ns`` is not played.
        latencies: nanoseconds of each call, without end; one is taken right after each call of the policy.
        seed: of the policy's noise; the same call draws the same noise under every setting.
        noise: seeds the noise instead, before each call, given how many there were before it.
        phase_ns: how long before the first tick the inference thread began to look for work.
        most_calls: end after so many.
        answered: is told of each call of the policy: how many there were.

    Raises:
        UserError: the policy failed. Whatever the world raises is raised as it is.
    """
    noise = noise or (lambda calls: _seed(seed + calls))
    loop = _Loop(setting, latencies, brain, noise, until_ns, most_calls, answered)
    threads: list[Any] = []
    errors, logger = LastError(), logging.getLogger(rtc.__name__)
    with contextlib.ExitStack() as stack:
        # LeRobot's queue warns of every merge whose delay is not the one that happened.
        stack.enter_context(errors_alone())
        logger.addHandler(errors)
        stack.callback(logger.removeHandler, errors)
        names = stand_ins(loop, threads) | mended(setting)
        if missing := [name for name in names if not hasattr(rtc, name)]:
            raise UserError(f"this LeRobot's engine cannot be replayed: {rtc.__name__} has no {', '.join(missing)}")
        stack.enter_context(mock.patch.multiple(rtc, **names))
        stack.enter_context(loop.predicting())
        if brain.real:
            guide(brain.policy, setting)
        engine = loop.engine = engine_for(setting, brain)
        engine.reset()
        engine.start()
        engine.resume()
        loop.begin(beats, phase_ns)
        for thread in threads:
            thread.target()
        loop.advance(math.inf)
        engine.stop()
    if loop.broken is not None:
        raise loop.broken
    if errors.text or loop.failed:
        raise UserError(f"the policy failed: {loop.failed or errors.text}")
    return loop.played


class _Loop:
    """The control loop, and the clock."""

    def __init__(
        self,
        setting: Setting,
        latencies: Iterator[int],
        brain: Brain,
        noise: Callable[[int], None],
        until_ns: int,
        most: int | None,
        answered: Callable[[int], None],
    ) -> None:
        self.setting, self.latencies, self.brain, self.noise = setting, latencies, brain, noise
        self.until_ns, self.most, self.answered = until_ns, most, answered
        self.now: float = 0
        self.over = False
        self.failed = ""
        self.broken: Exception | None = None  # outside of LeRobot's engine
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
        self._due = self._next()
        self.over = self._due == math.inf

    def _next(self) -> float:
        """The moment at which the control loop goes on; infinity where it has ended."""
        try:
            return next(self._control, math.inf)
        except Exception as error:  # LeRobot's engine, which may have called this, would go on as if it were its own
            self.broken = error
            return math.inf

    def advance(self, until: float) -> None:
        """Let the time pass until then, and play the ticks that fall into it."""
        while not self.over and self._due <= until:
            self.now = self._due
            self._due = self._next()
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
        world = brain.world
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
            waited, depth, command = 0, None, None
            if beat.wanted and (observation is None or interpolator.needs_new_action()):
                yield start + beat.notify_ns
                observation, self.latest = world.observe(start), start
                if world.over:
                    return
                engine.notify_observation(observation)
            wanted = beat.wanted and bool(engine.ready)
            if wanted and not warm:
                engine.reset()
                interpolator.reset()
                engine.resume()
                warm = True
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
                command = interpolator.get()
                joined = joined and command is not None
            sent = command is not None
            world.act(start + beat.send_ns + waited, command)
            work = beat.work_ns + waited
            if wanted:
                age = start + beat.send_ns + waited - behind if sent and behind is not None else None
                played.ticks.append(Tick(start, work, sent, follows, depth, age))
            if world.over:
                return
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
            self.noise(self._calls)
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
                self.noise(self._calls)
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


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
