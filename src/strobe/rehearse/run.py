"""Run a real loop of LeRobot on emulated arms, watch it, and say how the servos were left."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from strobe.core.errors import UserError
from strobe.core.runs import store
from strobe.rehearse.emulator.arm import ArmEndedError
from strobe.rehearse.emulator.rehearsal.disturb import disturbed
from strobe.rehearse.emulator.rehearsal.policy import with_policy
from strobe.rehearse.emulator.rehearsal.stage import RehearsalOptions, RehearsalPlan, RehearsalStage, plan, staged
from strobe.rollout.loops.registry import ROLLOUT
from strobe.rollout.results.rollout import Rehearsal, RolloutResult, ServoLeft
from strobe.rollout.run import WatchedRollout, watch


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
            arguments = stack.enter_context(with_policy(arguments))
        made = plan(arguments, options, command, config)
        drawn = draws([fault.like for fault in made.slow if fault.like is not None])
        stage = stack.enter_context(staged(made, options.latency_ms))
        with disturbed(stage.arms, made.on_bus, made.slow, made.busy, drawn, command):
            try:
                watched = watch(stage.arguments, events, depth, record_s, observations, command)
            except UserError as error:
                holding = describe(made, stage, options).holding
                torque = f"torque is left on in: {', '.join(holding)}" if holding else "no servo holds torque"
                raise UserError(f"{error} ({torque})") from None
        watched.result.rollout.rehearsal = describe(made, stage, options)
    watched.result.title = watched.result.title.replace(f" of {command}", f" of {command}, rehearsed,")
    if made.records:
        watched.result.notes.append("the data set was written to a temporary folder, and is gone")
    return watched


def describe(made: RehearsalPlan, stage: RehearsalStage, options: RehearsalOptions) -> Rehearsal:
    """Return what stands in for the robot, and how its servos are left now."""
    robots = {name: arm.about for name, arm in made.arms.items() if arm.part == "robot"}
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
    known = {run: _calls_of(run) for run in runs}
    chance = random.Random(seed)

    def drawn(run: str, number: int) -> float:
        first, others = known[run]
        return first if number == 0 else chance.choice(others)

    return drawn


def _calls_of(run: str) -> tuple[float, list[float]]:
    answer = store.load(Path(run))
    if isinstance(answer, RolloutResult):
        calls = answer.rollout.series.call_ms
    else:
        measured = getattr(answer, "measurements", [])
        calls = [*measured[0].samples.warmup, *measured[0].samples.values] if measured else []
    if not calls:
        raise UserError(f"{run} holds no calls of a policy: a run of `strobe rollout` or `strobe breakdown` does")
    return calls[0], calls[1:] or calls
