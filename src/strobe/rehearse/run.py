"""Run a real loop of LeRobot on emulated arms, watch it, and report the final state of the servos.

Faults strike from this process's side too: slower calls, busy threads and processes, faults on time.
"""

from __future__ import annotations

import contextlib
import functools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from strobe.core.errors import UserError
from strobe.core.runs import store
from strobe.core.timeline.clock import host_ns
from strobe.core.timeline.probe import Attached, Hook
from strobe.lerobot.versions import actions_left
from strobe.loops import rollout
from strobe.loops.registry import ROLLOUT
from strobe.loops.results.arm import Rehearsal, ServoLeft
from strobe.loops.results.rollout import RolloutResult
from strobe.rehearse.emulator.arm import ArmEndedError, EmulatedArm
from strobe.rehearse.faults import BusFault, Busy, SlowInference
from strobe.rehearse.stage import RehearsalOptions, RehearsalPlan, RehearsalStage, lend_policy, plan, stage_rehearsal
from strobe.rollout.run import NotStartedError, WatchedRollout, watch

if TYPE_CHECKING:
    from strobe.core.timeline.layers import Call


def rehearse(
    arguments: Sequence[str],
    events: Path,
    options: RehearsalOptions,
    *,
    depth: int = 1,
    record_s: float = 1800.0,
    observations: Path | None = None,
    command: str = ROLLOUT,
    config: object = None,
) -> WatchedRollout:
    """Run ``command`` with ``arguments`` on emulated arms, and watch it as `watch` does.

    Args:
        command: see `stage.plan`.
        config: LeRobot's config of ``arguments``, of a checkpoint. None: they are parsed here.

    Raises:
        UserError: see `with_policy`, `stage.plan` and `watch`, which then says how the servos were left.
        KeyboardInterrupt: it was interrupted before its second tick.
    """
    with ExitStack() as stack:
        if command == ROLLOUT:
            arguments = stack.enter_context(lend_policy(arguments))
        made = plan(arguments, options, command, config)
        drawn = draws([fault.like for fault in made.slow if fault.like is not None])
        stage = stack.enter_context(stage_rehearsal(made, options.latency_ms))
        with disturb_run(stage.arms, made.on_bus, made.slow, made.busy, drawn, command):
            try:
                watched = watch(stage.arguments, events, depth, record_s, observations, command)
            except NotStartedError as error:
                holding = describe(made, stage, options).holding
                torque = f"still on in {', '.join(holding)}" if holding else "off"
                raise NotStartedError(f"{str(error).rpartition(' (torque is')[0]} (torque is {torque})") from None
        watched.result.rollout.rehearsal = describe(made, stage, options)
    watched.result.title = watched.result.title.replace(f" of {command}", f" of {command}, rehearsed,")
    if made.records:
        watched.result.notes.append("the recorded data set was temporary and is deleted")
    return watched


def describe(made: RehearsalPlan, stage: RehearsalStage, options: RehearsalOptions) -> Rehearsal:
    """Return the emulated robot, and the present state of its servos."""
    robots = {name: arm.calibration_text for name, arm in made.arms.items() if arm.part == "robot"}
    rehearsal = Rehearsal(
        frames=made.shown,
        calibration="; ".join(about if len(robots) == 1 else f"{name}: {about}" for name, about in robots.items()),
        latency_ms=options.latency_ms,
        planted=list(options.faults),
    )
    for name, arm in stage.arms.items():
        joints = {joint.id: joint_name for joint_name, joint in made.arms[name].calibration.items()}
        try:
            state = arm.state()
        except ArmEndedError as error:
            rehearsal.ended = str(error)
            continue
        rehearsal.arms[name] = [
            ServoLeft(
                joint=joints.get(id, str(id)),
                id=id,
                torque=servo.torque,
                lock=servo.lock,
                goal=servo.goal,
                present=servo.present,
                celsius=servo.temperature,
            )
            for id, servo in sorted(state.servos.items())
        ]
        rehearsal.goals += state.packets.get("sync_write", 0)
        for kind, count in (state.struck or {}).items():
            rehearsal.struck[kind] = rehearsal.struck.get(kind, 0) + count
    return rehearsal


def draws(runs: Sequence[str], seed: int = 0) -> Callable[[str, int], float]:
    """Return a function for the milliseconds of a call like a run's, given its folder and the call's number.

    The first call takes as long as that run's first; the others are drawn from its others.

    Raises:
        UserError: no such run, or one without calls of a policy.
    """
    known = {run: _load_call_times(run) for run in runs}
    chance = random.Random(seed)

    def draw_latency(run: str, number: int) -> float:
        first, others = known[run]
        return first if number == 0 else chance.choice(others)

    return draw_latency


def _load_call_times(run: str) -> tuple[float, list[float]]:
    answer = store.load(Path(run))
    if isinstance(answer, RolloutResult):
        calls = answer.rollout.series.call_ms
    else:
        measured = getattr(answer, "measurements", [])
        calls = [*measured[0].samples.warmup, *measured[0].samples.values] if measured else []
    if not calls:
        raise UserError(f"{run} has no policy calls: name a run of `strobe rollout` or `strobe breakdown`")
    return calls[0], calls[1:] or calls


# A process that ends with its parent, however that ends.
_SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10000): pass"


@contextlib.contextmanager
def disturb_run(
    arms: Mapping[str, EmulatedArm],
    on_bus: Sequence[BusFault],
    slow: Sequence[SlowInference],
    busy: Sequence[Busy],
    drawn: Callable[[str, int], float],
    command: str = ROLLOUT,
) -> Iterator[None]:
    """While open, a run of ``command`` in this process meets these faults; they begin with its loop.

    Args:
        slow: none but with lerobot-rollout.
        drawn: the milliseconds of a call like those of a run: takes the run's name and the call's number.
    """
    if command != ROLLOUT:
        with _disturb_led_loop(command, arms, on_bus, busy):
            yield
        return
    loop = rollout.loop
    build, create = loop.build_rollout_context, loop.create_strategy

    def build_slowed_context(*args: Any, **kwargs: Any) -> object:
        context = build(*args, **kwargs)
        if slow:
            slow_down(context.policy.policy, context.runtime.cfg.inference.type == "sync", slow, drawn)
        return context

    def create_disturbed_strategy(*args: Any, **kwargs: Any) -> object:
        strategy = create(*args, **kwargs)
        run = strategy.run

        def disturbed_run(*args: Any, **kwargs: Any) -> None:
            with ExitStack() as stack:
                for each in busy:
                    stack.enter_context(working(each))
                stack.enter_context(planting(arms, on_bus))
                return run(*args, **kwargs)

        strategy.run = disturbed_run
        return strategy

    loop.build_rollout_context, loop.create_strategy = build_slowed_context, create_disturbed_strategy
    try:
        yield
    finally:
        loop.build_rollout_context, loop.create_strategy = build, create


@contextlib.contextmanager
def _disturb_led_loop(
    command: str, arms: Mapping[str, EmulatedArm], on_bus: Sequence[BusFault], busy: Sequence[Busy]
) -> Iterator[None]:
    """`disturbed` for a loop that a leader drives: until robot or leader is let go, over episodes and rests."""
    from strobe.loops.teleoperation import LOOPS

    module, name = LOOPS[command]
    loop, begun, trouble = getattr(module, name), [False], ExitStack()

    @functools.wraps(loop)
    def run_disturbed_loop(*args: object, **kwargs: object) -> Any:
        if not begun[0]:
            begun[0] = True
            for each in busy:
                trouble.enter_context(working(each))
            trouble.enter_context(planting(arms, on_bus))
        return loop(*args, **kwargs)

    def ending(inner: Call, *_: object) -> Call:
        @functools.wraps(inner)
        def disconnect(*args: object, **kwargs: object) -> Any:
            trouble.close()
            return inner(*args, **kwargs)

        return disconnect

    def make_attached_device(make: Call, *args: object, **kwargs: object) -> Any:
        device = make(*args, **kwargs)
        # On its class: an object that holds itself would let its motors go in another order than LeRobot's does.
        attached.enter_context(Attached([Hook(type(device), "disconnect", "")], ending))
        return device

    with ExitStack() as attached, trouble:
        attached.enter_context(mock.patch.object(module, name, run_disturbed_loop))
        for maker in ("make_robot_from_config", "make_teleoperator_from_config"):
            attached.enter_context(
                mock.patch.object(module, maker, functools.partial(make_attached_device, getattr(module, maker)))
            )
        yield


def slow_down(
    policy: object, each_tick: bool, slow: Sequence[SlowInference], drawn: Callable[[str, int], float], seed: int = 0
) -> None:
    """Let ``policy``'s calls for a chunk take longer.

    Args:
        each_tick: the policy is asked in every tick, and predicts only when its queue is empty.
    """
    name = "select_action" if each_tick else "predict_action_chunk"
    inner = getattr(policy, name)
    unwrap = getattr(policy, "get_base_model", lambda: policy)
    chance, calls = random.Random(seed), [0]

    @functools.wraps(inner)
    def call(*args: object, **kwargs: object) -> object:
        predicts = not each_tick or actions_left(unwrap()) <= 0
        start = host_ns()
        result = inner(*args, **kwargs)
        if predicts:
            number, calls[0] = calls[0], calls[0] + 1
            for fault in slow:
                if fault.call is not None and fault.call != number:
                    continue
                if fault.like is not None:
                    time.sleep(max(0.0, drawn(fault.like, number) / 1e3 - (host_ns() - start) / 1e9))
                else:
                    time.sleep((fault.ms + chance.random() * fault.spread_ms) / 1e3)
        return result

    setattr(policy, name, call)


@contextlib.contextmanager
def working(busy: Busy) -> Iterator[None]:
    """Keep CPUs and the interpreter busy while open."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            for _ in range(1000):
                pass

    processes = [
        subprocess.Popen([sys.executable, "-c", _SPIN], stdin=subprocess.DEVNULL, start_new_session=True)
        for _ in range(busy.processes)
    ]
    threads = [threading.Thread(target=spin, name="strobe-busy", daemon=True) for _ in range(busy.threads)]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        stop.set()
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def planting(arms: Mapping[str, EmulatedArm], faults: Sequence[BusFault]) -> Iterator[None]:
    """Plant each of ``faults`` at its second while open, and those of the end when it closes."""
    closed = threading.Event()

    def later(seconds: float, arm: str, fault: Any) -> None:
        if not closed.wait(seconds):
            with contextlib.suppress(ArmEndedError):
                arms[arm].plant(fault)

    timed = [(each.when, each.arm, each.fault) for each in faults if isinstance(each.when, int | float)]
    threads = [threading.Thread(target=later, args=each, name="strobe-fault", daemon=True) for each in timed]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        closed.set()
        for thread in threads:
            thread.join()
        for each in faults:
            if each.when == "end":
                with contextlib.suppress(ArmEndedError):
                    arms[each.arm].plant(each.fault)
