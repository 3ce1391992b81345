"""Who plays an episode here: by lerobot-eval's own rollout, or true to time, while the simulator goes on.

True to time, LeRobot's own inference engines run in virtual time (`strobe.loops.virtual_time`), around a
simulator that moves by each control period that has passed (`strobe.simulators.realtime_simulator`). Nobody waits:
300 ms of latency are 300 ms of the simulator's clock, however long the call took here.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from lerobot.envs.configs import EnvConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.rollout.inference.rtc import supports_rtc_inference

from strobe.core.errors import UserError, error_line
from strobe.core.timeline.clock import synchronise
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Attached, Hook
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.play import FIRST, Candidate
from strobe.evaluate.episodes.timings import RequestedTiming
from strobe.evaluate.results import EpisodeTiming
from strobe.lerobot.config_fields import ENSEMBLED
from strobe.lerobot.envs import environments, libero
from strobe.lerobot.envs.seldom_rendered import Rendering, SeldomRendered
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.versions import types_with_rtc
from strobe.loops.measure.robot import motion
from strobe.loops.measure.rollout import LoopRun
from strobe.loops.results.motion import Motion
from strobe.loops.virtual_client import unserved_reason
from strobe.loops.virtual_rollout import Beat, EngineInputs, Setting
from strobe.loops.virtual_time import PlayOptions, play
from strobe.simulators.realtime_simulator import TICKET, ActedWorld
from strobe.simulators.simulator import EpisodeTimes, Played, TimedSimulator, Watch, outcomes_reported

# An episode with its times, how smooth its actions are, and its timing if it was true to time.
PlayedAndTimed = tuple[Played, EpisodeTimes, Motion | None, EpisodeTiming | None]


class LocalEpisodeRunner:
    """Plays one episode of one variant at a time, by lerobot-eval's own rollout.

    The simulator of the first policy starts at once, those of other variants when they are played.

    Args:
        env: LeRobot's ``EnvConfig``.
        subjects: the policies, all in memory, by the names that candidates have for them.
        rendering: whether only the observations that the policy looks at are drawn, as `Simulator` has it.

    Raises:
        UserError: the simulator is not installed or cannot be started.
    """

    def __init__(self, env: EnvConfig, subjects: Mapping[str, PolicySubject], rendering: Rendering = "needed") -> None:
        self.env, self.subjects = env, subjects
        self.watch: Watch | None = None  # sees each episode, as `Simulator.watch`
        self.rendering: Rendering = rendering
        policy = next(iter(subjects))
        first = self._start_simulator(subjects[policy])
        self.simulators = {policy or FIRST: first}  # by the name of the policy or the variant
        self.tasks = first.tasks

    @property
    def environment(self) -> str:
        """Name of the simulator, as `environments.display_name`."""
        return environments.display_name(self.env, self.tasks)

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        """Play one episode. Raises UserError for whatever fails in it."""
        name, subject = candidate.name, self.subjects[candidate.policy]
        try:
            simulator = self._simulator(candidate)
            simulator.watch = self.watch
            undo = candidate.variant.apply(subject)
            try:
                played, times, moved, timing = self._play_episode(simulator, candidate, task, seed)
            finally:
                subject.policy.reset()  # nothing of the episode may be left in its queues
                undo()
        except Exception as error:  # whatever a treatment raises: the episodes before it are kept
            words = error_line(error, 300)
            why = words if isinstance(error, UserError) else f"{type(error).__name__}: {words}"
            raise UserError(f"'{name}' failed on {task}, seed {seed}: {why}") from error
        episode = played.episode
        return EpisodeLine(
            variant=name,
            task=task,
            seed=seed,
            start=played.start,
            success=episode.success,
            reward=episode.reward,
            best_reward=episode.best_reward,
            ticks=episode.ticks,
            call_ms=[round(ms, 4) for ms in times.call_ms],
            policy_ms=times.policy_ms,
            step_ms=times.step_ms,
            render_ms=times.render_ms,
            reset_ms=times.reset_ms,
            drawn=played.drawn,
            seconds=episode.seconds,
            limit_s=episode.limit_s,
            motion=moved,
            timing=timing,
        )

    def _start_simulator(self, subject: PolicySubject) -> TimedSimulator:
        return TimedSimulator(self.env, subject, self.rendering)

    def _simulator(self, candidate: Candidate) -> TimedSimulator:
        """Return the variant's: a simulator may go through a list of starts, and all variants must get the same."""
        if candidate.name not in self.simulators:
            self.simulators[candidate.name] = self._start_simulator(self.subjects[candidate.policy])
        return self.simulators[candidate.name]

    def _play_episode(self, simulator: TimedSimulator, _candidate: Candidate, task: str, seed: int) -> PlayedAndTimed:
        played, times = simulator.play_timed(task, seed)
        return played, times, motion(played.actions.numpy(), times.call_ticks), None

    def close(self) -> None:
        """Close the simulators."""
        for simulator in self.simulators.values():
            simulator.close()


T = TypeVar("T")
FOREVER_NS = 10**15  # the episode ends itself
POLL_NS = 10_000_000  # interval between two looks at LeRobot's inference thread


def require_engine(policy: PreTrainedPolicy, engine: str) -> None:
    """Raises UserError where LeRobot cannot run ``policy`` with ``engine``: 'rtc' guides it, 'async' serves it.

    Both take whole chunks, so that they ignore a policy's own averaging of chunks (strands-labs/robots #731).
    """
    coefficient = getattr(policy.config, ENSEMBLED, None)
    if engine != "sync" and coefficient is not None:
        raise UserError(
            f"--inference.type={engine}: it takes whole chunks and would ignore {ENSEMBLED}={coefficient:g} of the "
            f"policy, which averages them in sync: leave {engine} out, or give --policy.{ENSEMBLED}=null"
        )
    if engine == "async" and (why := unserved_reason(policy)):
        raise UserError(f"--inference.type=async: {why}")
    if engine == "rtc" and not supports_rtc_inference(policy):
        raise UserError(
            f"--inference.type=rtc: LeRobot's Real-Time Chunking cannot guide the policy type '{policy.config.type}'; "
            f"it guides {', '.join(types_with_rtc())}"
        )


class RealtimeSimulator(TimedSimulator):
    """A `TimedSimulator` whose episodes are true to time, as `use` says.

    The noise is that of lerobot-eval's rollout: seeded once for the episode and drawn by calls alone. So the same call
    draws the same noise at every latency.

    Attributes:
        begun: ticks of the last episode in which the simulator took the first action of a chunk.
    """

    begun: Sequence[int] = ()

    def use(self, timing: RequestedTiming, variant: str, watch: Watch | None = None) -> None:
        """Play the next episodes at ``timing``.

        Args:
            variant: whose latencies are drawn, where a run has several.
            watch: as of `ActedWorld`.
        """
        self._timing, self._variant, self.watch = timing, variant, watch

    def play_true(self, task: str, seed: int) -> tuple[Played, EpisodeTimes, EpisodeTiming]:
        """An episode, what it cost here, and what its latencies did. Raises UserError as `play` does."""
        played, times = self.play_timed(task, seed)
        times.call_ms = self._meter.call_ms
        self.begun = _chunk_start_ticks(self._world, self._loop)
        if self._timing.engine != "sync":
            times.policy_ms = sum(times.call_ms)
        return played, times, _episode_timing(self._world, self._loop, self._meter)

    def play(self, task: str, seed: int) -> Played:
        """One episode of ``task`` from ``seed``, which is also that of the noise and of the latencies drawn."""
        subject, timing = self.actor, self._timing
        subject.policy.eval()
        setting = Setting(timing.engine, timing.fps, threshold=timing.threshold, rtc=timing.rtc, client=timing.client)
        vector = self.vectors[task]
        libero.choose_starts(vector, [seed])
        world = ActedWorld(vector, self._to_policy, self._to_env, setting.period_ns, timing.hold)
        world.watch = self.watch
        meter = Meter(subject, world)
        self._world, self._meter = world, meter
        torch.manual_seed(seed)
        # The loop may look at the observation of the tick before. The other engines look at any moment.
        needed = self.rendering == "needed" and timing.engine == "sync"
        seldom = SeldomRendered(self._looks(early=1) if needed else None)
        drawing = Attached(seldom.hooks(vector), seldom.wrap)
        called = Hook(subject.policy, "select_action" if timing.engine == "sync" else "predict_action_chunk", "call")
        with (
            drawing,
            _restore_rtc_setup(subject.policy),
            Attached([called], meter.wrap_method),
            outcomes_reported(vector),
        ):
            with environments.errors_in_a_line(self.name, "failed in an episode"):
                world.begin(seed)
            self._loop = play(
                itertools.repeat(Beat(0, 0, 0, 0)),
                setting,
                meter.impose_latencies(timing.latency.source(self._variant, seed, lambda: meter.took_ns)),
                _engine_inputs(subject, world, meter),
                PlayOptions(
                    until_ns=FOREVER_NS,
                    seed_call=lambda calls: None,  # seeded above
                    phase_ns=int(np.random.default_rng(seed).integers(POLL_NS)),
                ),
            )
        return replace(world.finished_episode(), drawn=seldom.drawn if seldom.seen else None)


class Meter:
    """Times the policy's calls here, and keeps the latencies that were imposed instead.

    Attributes:
        call_ms: of each call of the policy alone.
        imposed_ms: of each call, by which the simulator went on.
    """

    def __init__(self, subject: PolicySubject, world: ActedWorld) -> None:
        self._subject, self._world = subject, world
        self._before = self._call = self._after = 0  # nanoseconds of the latest
        self.call_ms: list[float] = []
        self.imposed_ms: list[float] = []

    @property
    def took_ns(self) -> int:
        """The call that has just ended, with its processors; of Real-Time Chunking the postprocessor's time before."""
        return self._before + self._call + self._after

    def impose_latencies(self, source: Iterator[int]) -> Iterator[int]:
        """``source``, with each call noted."""
        while True:
            self.call_ms.append(self._call / 1e6)
            took = next(source)
            self.imposed_ms.append(took / 1e6)
            yield took

    def wrap_method(self, inner: Call, _hook: Hook, _takes_self: bool) -> Call:
        """Return ``inner``, a method of the policy, timed to the end of the device's work."""

        def call(*args: object, **kwargs: object) -> object:
            synchronise(self._subject.device)
            result, self._call = self._time_work(lambda: inner(*args, **kwargs))
            return result

        return call

    def preprocess(self, _ticket: object) -> environments.Observation:
        """The policy's preprocessor on the observation that the engine has a ticket for."""
        subject = self._subject
        looked = dict(self._world.looked)
        batch, self._before = self._time_work(lambda: subject.prepare(looked))
        return batch

    def postprocess(self, action: torch.Tensor) -> torch.Tensor:
        """The policy's postprocessor."""
        action, self._after = self._time_work(lambda: self._subject.postprocessor(action))
        return action

    def _time_work(self, work: Callable[[], T]) -> tuple[T, int]:
        begun = time.perf_counter_ns()
        result = work()
        synchronise(self._subject.device)
        return result, time.perf_counter_ns() - begun


class _Processor:
    """A processor of LeRobot's, run by a function of ours."""

    def __init__(self, inner: Any, run: Callable[[Any], object]) -> None:
        self.steps, self.reset, self._run = inner.steps, inner.reset, run

    def __call__(self, batch: object) -> Any:
        return self._run(batch)


def _engine_inputs(subject: PolicySubject, world: ActedWorld, meter: Meter) -> EngineInputs:
    names = [str(number) for number in range(world.size)]
    ticket = {f"observation.{TICKET}": {"dtype": "float32", "shape": (1,), "names": [TICKET]}}
    action = {"action": {"dtype": "float32", "shape": (world.size,), "names": names}}
    return EngineInputs(
        policy=subject.policy,
        preprocessor=_Processor(subject.preprocessor, meter.preprocess),
        postprocessor=_Processor(subject.postprocessor, meter.postprocess),
        robot=SimpleNamespace(robot_type="", action_features=dict.fromkeys(names, float)),
        hw_features=ticket,
        dataset_features=ticket | action,
        keys=names,
        task="",
        device=str(subject.device),
        world=world,
    )


@contextlib.contextmanager
def _restore_rtc_setup(policy: Any) -> Iterator[None]:
    has = hasattr(policy.config, "rtc_config")
    before = getattr(policy.config, "rtc_config", None)
    try:
        yield
    finally:
        if has or hasattr(policy.config, "rtc_config"):
            policy.config.rtc_config = before
        if hasattr(policy, "init_rtc_processor"):
            policy.init_rtc_processor()


def _chunks(loop: LoopRun) -> list[int | None]:
    """Return the chunk of the action that each tick of the loop sent; None if it sent none."""
    sent = iter(loop.actions)
    return [next(sent).chunk if tick.sent else None for tick in loop.ticks]


def _chunk_start_ticks(world: ActedWorld, loop: LoopRun) -> list[int]:
    chunks, begun, last = _chunks(loop), list[int](), None
    for tick, number in enumerate(world.taken):
        if number is not None and (chunk := chunks[number]) != last:
            begun, last = [*begun, tick], chunk
    return begun


def _episode_timing(world: ActedWorld, loop: LoopRun, meter: Meter) -> EpisodeTiming:
    chunks = _chunks(loop)
    taken = [(number, action) for number, action in zip(world.taken, world.actions, strict=True) if number is not None]
    steps, jumps = list[float](), list[float]()
    for (before, old), (now, new) in pairwise(taken):
        (steps if chunks[before] == chunks[now] else jumps).append(_round_figure(float(np.linalg.norm(new - old))))
    ages = [age for number, _ in taken if (age := loop.ticks[number].age_ns) is not None]
    return EpisodeTiming(
        imposed_ms=[_round_figure(ms) for ms in meter.imposed_ms],
        held=sum(number is None for number in world.taken),
        lost=world.lost,
        age_ms=[_round_figure(age / 1e6) for age in ages],
        steps=steps,
        jumps=jumps,
        rests=world.rests,
    )


def _round_figure(value: float) -> float:
    return float(f"{value:.5g}")


class RealtimeEpisodeRunner(LocalEpisodeRunner):
    """Plays one episode of one row at a time, true to time, in one simulator for all rows: an `EpisodeRunner`."""

    def _start_simulator(self, subject: PolicySubject) -> RealtimeSimulator:
        return RealtimeSimulator(self.env, subject, self.rendering)

    def _simulator(self, candidate: Candidate) -> TimedSimulator:
        return next(iter(self.simulators.values()))

    def _play_episode(self, simulator: TimedSimulator, candidate: Candidate, task: str, seed: int) -> PlayedAndTimed:
        assert isinstance(simulator, RealtimeSimulator)
        assert candidate.timing is not None
        simulator.use(candidate.timing, candidate.variant.name, self.watch)
        played, times, timing = simulator.play_true(task, seed)
        return played, times, motion(played.actions.numpy(), simulator.begun), timing
