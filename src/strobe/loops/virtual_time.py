"""LeRobot's inference engines in virtual time: what a rollout would have been, without waiting and without a robot.

`RTCInferenceEngine` runs its own thread's function, unmodified, here on the caller's thread. The module's ``time`` is a
clock of ours: while the engine sleeps, or its policy predicts, the control loop's ticks that fall into that time are
played. So the queue, the tracker of latencies, the delay assumed, the prefix of the chunk before and the warm-up are
those of the LeRobot that is installed, whatever its version. `SyncInferenceEngine` is asked as the loop asks it. So are
LeRobot's robot client and its policy server (`strobe.loops.virtual_client`).

The world around the loop is the caller's (`virtual_rollout.World`): a recording, in which the arm stays where it was
whatever command it gets now, or a simulator that goes on while the policy computes.

What threads cost one another is not played, beyond what the given ticks and latencies show of it.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from lerobot.rollout.inference import rtc
from lerobot.utils.action_interpolator import ActionInterpolator
from lerobot.utils.feature_utils import build_dataset_frame

from strobe.core.cli.placeholders import errors_alone
from strobe.core.errors import UserError
from strobe.lerobot.versions import actions_left
from strobe.loops.event_log import LastError
from strobe.loops.measure.rollout import Action, Call, LoopRun, Tick
from strobe.loops.virtual_client import LOGGERS, AsyncEngine, replace_network
from strobe.loops.virtual_rollout import Beat, EngineInputs, Setting, guide, make_engine, padding, stand_ins

AT_ONCE_NS = 1_000_000  # a call that is shorter takes no time


@dataclass(kw_only=True)
class PlayOptions:
    """How a rollout is played, in addition to its settings.

    Args:
        until_ns: turns that begin later are not played.
        seed: of the policy's noise; the same call draws the same noise under every setting.
        seed_call: seeds the noise instead, before each call, given how many there were before it.
        phase_ns: how long before the first tick the inference thread began to look for work.
        most_calls: the play ends after so many.
        on_call: called after each call of the policy with the number of calls so far.
    """

    until_ns: int
    seed: int = 0
    seed_call: Callable[[int], None] | None = None
    phase_ns: int = 0
    most_calls: int | None = None
    on_call: Callable[[int], None] = lambda _: None


def play(
    beats: Iterable[Beat], setting: Setting, latencies: Iterator[int], inputs: EngineInputs, options: PlayOptions
) -> LoopRun:
    """Play a rollout; times are nanoseconds from the first tick.

    Args:
        beats: the turns of its loop, in order.
        latencies: nanoseconds of each call, without end; one is taken right after each call of the policy.

    Raises:
        UserError: the policy failed. Whatever the world raises is raised unchanged.
    """
    loop = _Loop(setting, latencies, inputs, options)
    threads: list[Any] = []
    errors, served = LastError(), setting.engine == "async"
    with contextlib.ExitStack() as stack:
        # LeRobot's queue warns of every merge whose delay is not the one that happened.
        stack.enter_context(errors_alone())
        for name in (rtc.__name__, *LOGGERS):
            logging.getLogger(name).addHandler(errors)
            stack.callback(logging.getLogger(name).removeHandler, errors)
        names = stand_ins(loop, threads) | padding(setting)
        if missing := [name for name in names if not hasattr(rtc, name)]:
            raise UserError(f"this LeRobot's engine cannot be replayed: {rtc.__name__} has no {', '.join(missing)}")
        stack.enter_context(mock.patch.multiple(rtc, **names))
        if served:
            stack.enter_context(replace_network())
        stack.enter_context(loop.predicting())
        if inputs.real:
            guide(inputs.policy, setting)
        engine: Any = AsyncEngine(setting, inputs, loop, threads) if served else make_engine(setting, inputs)
        loop.engine = engine
        engine.reset()
        engine.start()
        engine.resume()
        loop.begin(beats)
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

    def __init__(self, setting: Setting, latencies: Iterator[int], inputs: EngineInputs, options: PlayOptions) -> None:
        self.setting, self.latencies, self.inputs, self.options = setting, latencies, inputs, options
        self._seed_call = options.seed_call or (lambda calls: torch.manual_seed(options.seed + calls))
        self.now: float = 0
        self.over = False
        self.failed: str | None = None
        self.broken: Exception | None = None  # outside of LeRobot's engine
        self.engine: Any = None
        self.queue: Any = None  # of the engine, where it has one
        self.played = LoopRun()
        self.chunk = 0  # number of the one that actions come from
        self.observed: int | None = None  # the start of the tick whose observation is behind that chunk
        self.latest = 0  # the start of the tick whose observation the engine was given last
        self._call: Call | None = None  # that goes on
        self._calls = 0
        self._at_once: int | None = None  # the tick observed by the last call, where that took no time
        self._due: float = math.inf
        self._control: Iterator[float] = iter(())

    def begin(self, beats: Iterable[Beat]) -> None:
        self.now = -self.options.phase_ns
        self._control = self._ticks(beats)
        self._due = self._next()
        self.over = self._due == math.inf

    def _next(self) -> float:
        try:
            return next(self._control, math.inf)
        except Exception as error:  # LeRobot's engine, which may have called this, would go on as if it were its own
            self.broken = error
            return math.inf

    def advance(self, until: float) -> None:
        """Let the time pass until then, and play the ticks in it."""
        while not self.over and self._due <= until:
            self.now = self._due
            self._due = self._next()
            if self._due == math.inf:
                self.over = True
                self.engine.stop()
        if until < math.inf:
            self.now = max(self.now, until)

    def wait(self) -> None:
        """Let the time pass until the control loop goes on."""
        self.advance(self._due)

    def look(self) -> None:
        """Let time pass before the engine looks whether to call, so that a call of no time is not repeated for ever.

        Otherwise no time would pass where calls begin at more actions than a chunk has.
        """
        while not self.over and self._at_once is not None and self._at_once == self.latest:
            self.advance(self._due)

    def _ticks(self, beats: Iterable[Beat]) -> Iterator[float]:
        setting, inputs, engine, played = self.setting, self.inputs, self.engine, self.played
        world, most_calls = inputs.world, self.options.most_calls
        interpolator = ActionInterpolator(multiplier=setting.multiplier)
        observation: Any = None
        start, warm, follows, joined = 0, setting.warmups == 0, False, False
        behind: int | None = None
        for beat in beats:
            if start >= self.options.until_ns or (most_calls is not None and self._calls > most_calls):
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
                if world.is_over:
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
                    action, waited = self._action(observation, start)
                    if action is not None:
                        behind = self.observed if setting.is_guided else None
                        if inputs.real:
                            played.actions.append(Action(self.chunk, action.tolist(), joined, start))
                        joined = True
                        interpolator.add(action.cpu())
                left = self.queue.remaining() if self.queue is not None else actions_left(inputs.policy)
                depth = left if left >= 0 else None
                command = interpolator.get()
                joined = joined and command is not None
            sent = command is not None
            world.act(start + beat.send_ns + waited, command)
            work = beat.work_ns + waited
            if wanted:
                age = start + beat.send_ns + waited - behind if sent and behind is not None else None
                played.ticks.append(Tick(start, work, sent, follows, depth, age))
            if world.is_over:
                return
            follows = wanted
            start = round(start + max(work, setting.period_ns) + beat.over_ns)

    def _action(self, observation: Any, start: int) -> tuple[Any, int]:
        """Return the next action, and the nanoseconds that the loop stood still for it."""
        inputs = self.inputs
        if self.queue is not None:
            return self.engine.get_action(None), 0
        frame = build_dataset_frame(inputs.dataset_features, observation(), prefix="observation")
        predicts = actions_left(inputs.policy) <= 0
        if predicts and inputs.real:
            self._seed_call(self._calls)
        action = self.engine.get_action(frame)
        if not predicts:
            return action, 0
        waited = next(self.latencies)
        self._calls += 1
        self.options.on_call(self._calls)
        self.chunk, self.observed = self.chunk + 1, start
        at = round(self.now)
        length = actions_left(inputs.policy) + 1
        self.played.calls.append(Call(at, at + waited, length, observed_ns=start, chunk=self.chunk))
        return action, waited

    def predicting(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which a call of the policy takes the time that it is given."""
        if self.setting.engine == "sync":
            return contextlib.nullcontext()
        inner = self.inputs.policy.predict_action_chunk

        def predict_in_virtual_time(*args: object, **kwargs: Any) -> Any:
            start, latest = self.now, self.latest
            if self.inputs.real:
                self._seed_call(self._calls)
            try:
                actions = inner(*args, **kwargs)
            except Exception as error:
                self.failed = f"{type(error).__name__}: {error}".splitlines()[0]
                self.over = True
                self.engine.stop()
                raise
            self._calls += 1
            self.options.on_call(self._calls)
            length, assumed = actions.shape[-2], kwargs.get("inference_delay")
            self._call = Call(round(start), round(start), length, assumed, observed_ns=latest)
            took = next(self.latencies)
            self._at_once = latest if took < AT_ONCE_NS else None
            self.advance(start + took)
            return actions

        return mock.patch.object(self.inputs.policy, "predict_action_chunk", predict_in_virtual_time)

    def note_merge(self, queue: Any, delay: int, executed: int) -> None:
        """Note that ``queue`` took the chunk of the call at hand."""
        self.chunk += 1
        call, self._call = self._call, None
        if call is None or self.over:
            return
        self.observed = call.observed_ns
        call.chunk = self.chunk
        call.merge(round(self.now), delay, executed, queue.remaining())
        self.played.calls.append(call)
