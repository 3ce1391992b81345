"""strobe rollout on LeRobot's own loop, with a robot without hardware.

What the robot is told stays the same, whatever ends the run it is put to rest, and what was recorded is kept.
Only one of these looks at times: a planted pause of 0.7 s, judged against calls of a few hundredths.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import signal
import threading
import time
import weakref
from pathlib import Path

import pytest
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.rtc import ActionQueue
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from lerobot.processor.pipeline import DataProcessorPipeline
from lerobot.rollout.inference import rtc
from lerobot.rollout.robot_wrapper import ThreadSafeRobot
from lerobot.scripts import lerobot_rollout
from lerobot.utils.action_interpolator import ActionInterpolator
from support.builders.checkpoints import tiny_checkpoint
from support.fakes.watched_robot import watched_robot

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.kinds import advise, document
from strobe.core.runs import store
from strobe.deploy.trial import log_unused_recipe
from strobe.lerobot.flags.lerobot_flags import patched_arguments
from strobe.lerobot.policies.standins import stand_ins
from strobe.loops import bench_calls, rollout
from strobe.loops.rollout import rollout_config
from strobe.rollout import run as benches
from strobe.rollout.run import watch

RTC = ("--inference.type=rtc", "--inference.rtc.execution_horizon=10")
# Rules on a loop that is slow because this machine is busy.
BUSY = {"slow-pace", "slow-loop", "slow-inference", "slow-bus", "slow-camera", "repeated-frames", "starvation"}
BUSY |= {"camera-stall", "device-stall", "busy-machine", "busy-process", "threads-fight"}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rollout")
    tiny_checkpoint("act", folder / "act", "--n_action_steps=5", "--chunk_size=10")
    tiny_checkpoint("smolvla", folder / "smolvla")
    return folder


@pytest.fixture
def robot(monkeypatch):
    with stand_ins("smolvla", random_weights=True, tiny=True):
        yield from watched_robot(monkeypatch)


def arguments(policy: Path, told: Path, *more: str) -> list[str]:
    return [
        "--robot.type=dummy", f"--robot.told={told}", "--robot.id=test", f"--robot.calibration_dir={told.parent}",
        f"--policy.path={policy}", "--device=cpu", "--task=push", "--return_to_initial_position=false",
        "--play_sounds=false", "--duration=1.5", *more,
    ]  # fmt: skip


def actions(told: Path) -> list[list[float]]:
    return [json.loads(line)[1:] for line in told.read_text().splitlines()]


def test_the_robot_is_told_the_same_and_every_probe_comes_off(robot, checkpoints, tmp_path):
    with patched_arguments(arguments(checkpoints / "act", tmp_path / "bare.jsonl"), "lerobot-rollout"):
        lerobot_rollout.main()
    owners = (ThreadSafeRobot, ActionQueue, ActionInterpolator, DataProcessorPipeline, rtc, lerobot_rollout, ACTPolicy)
    before = [dict(vars(owner)) for owner in owners]
    given = arguments(checkpoints / "act", tmp_path / "told.jsonl")
    result = watch(given, tmp_path / "run.events").result
    assert [dict(vars(owner)) for owner in owners] == before
    bare, watched = actions(tmp_path / "bare.jsonl"), actions(tmp_path / "told.jsonl")
    both = min(len(bare), len(watched))
    assert both > 1
    assert watched[:both] == bare[:both]

    rollout = result.rollout
    assert result.status == "complete"
    assert (rollout.engine, rollout.strategy, rollout.queue.starved) == ("sync", "base", 0)
    assert rollout.pace is not None
    assert rollout.pace.ticks == len(watched), "each tick sends one action"
    assert rollout.inference is not None
    assert (rollout.inference.chunk, rollout.inference.calls) == (5, -(-len(watched) // 5))
    assert {camera.name: camera.reads for camera in rollout.cameras} == dict.fromkeys(("front", "wrist"), len(watched))
    paths = {tuple(part.path) for part in result.measurement("control tick").components}
    assert {("observation", "read motors"), ("observation", "camera front"), ("action", "write motors"),
            ("get action", "select action", "predict chunk"), ("process observation",)} <= paths  # fmt: skip
    parts = {part.name for part in result.measurement("inference call").components}
    assert {"backbone", "encoder", "decoder"} <= parts
    assert rollout.overhead_ms > 0  # how much is the business of benchmarks/rollout_overhead.py
    timed = importlib.util.find_spec("lerobot.utils.cycle_timer") is not None  # LeRobot's own, after 0.6.1
    assert ("Cadence summary" in (rollout.cadence or "")) == timed


def test_a_recipe_that_the_robots_process_refuses_stands_beside_the_verdict(robot, checkpoints, tmp_path, monkeypatch):
    inner = ACTPolicy.reset
    monkeypatch.setattr(
        ACTPolicy, "reset", lambda self: (log_unused_recipe("fast.yaml", "flips 1 > 0"), inner(self))[1]
    )
    result = watch(arguments(checkpoints / "act", tmp_path / "told.jsonl"), tmp_path / "run.events").result
    assert result.caveats == ["fast.yaml is not used: flips 1 > 0; the policy ran unchanged"]
    assert "Fast.yaml is not used: flips 1 > 0; the policy ran unchanged." in document(result).answers


@pytest.mark.slow("a rollout in real time")
def test_a_slow_first_call_is_found_in_the_real_loop(robot, checkpoints, tmp_path, monkeypatch):
    inner, calls = SmolVLAPolicy.predict_action_chunk, [0]

    def slow(
        self, batch, noise=None, *, inference_delay=None, prev_chunk_left_over=None, execution_horizon=None, **kwargs
    ):
        calls[0] += 1
        if calls[0] == 1:
            time.sleep(0.7)
        kwargs |= {"inference_delay": inference_delay, "prev_chunk_left_over": prev_chunk_left_over}
        return inner(self, batch, noise, **kwargs)

    monkeypatch.setattr(SmolVLAPolicy, "predict_action_chunk", slow)
    given = arguments(checkpoints / "smolvla", tmp_path / "told.jsonl", *RTC, "--duration=4")
    result = watch(given, tmp_path / "run.events").result
    assert {finding.rule for finding in advise(result)} - BUSY == {"poisoned-delay"}
    assert result.rollout.inference is not None
    delays = result.rollout.inference.delays
    assert delays is not None
    assert delays.first_needed >= 21
    assert abs(delays.assumed.median - delays.first_needed) <= 1, "LeRobot still goes by the first call"
    assert (result.rollout.queue.first_action_ms or 0.0) >= 700
    parts = {part.name for part in result.measurement("inference call").components}
    assert {"preprocessing", "RTC step", "denoise step", "merge into the queue"} <= parts
    assert result.rollout.age is not None
    assert result.rollout.seams


@pytest.mark.slow("a rollout in real time, and its calls once more")
@pytest.mark.parametrize(
    ("policy", "more"),
    [("act", ("--policy.n_action_steps=2",)), ("smolvla", (*RTC, "--inference.queue_threshold=48"))],
    ids=["sync", "rtc"],
)
def test_once_the_robot_is_at_rest_its_calls_are_made_again(robot, checkpoints, tmp_path, monkeypatch, policy, more):
    run_over = threading.Event()

    def hold_the_interpreter(tick: int) -> None:
        def spin() -> None:
            while not run_over.is_set():
                until = time.perf_counter() + 0.04  # so long that nearly every call meets it, of however few
                while time.perf_counter() < until:  # whoever gives the interpreter away gets it back 5 ms later
                    sum(range(1000))
                time.sleep(0.02)

        if tick == 1:
            threading.Thread(target=spin, daemon=True).start()

    monkeypatch.setattr(robot, "before", staticmethod(hold_the_interpreter))
    made_again: list[float] = []
    again = bench_calls.CallWatch.repeat_call

    def note_call(self):
        made_again.append(time.perf_counter())
        return again(self)

    monkeypatch.setattr(bench_calls.CallWatch, "repeat_call", note_call)
    given = arguments(checkpoints / policy, tmp_path / "told.jsonl", *more, "--duration=4")
    try:
        found = watch(given, tmp_path / "run.events")
    finally:
        run_over.set()
    assert not made_again
    assert found.calls is not None
    assert found.calls.refusal_reason is None
    robot.made[-1]._connected = True
    assert found.calls.refusal_reason == "the robot is still connected"
    held = weakref.ref(robot.made.pop())
    gc.collect()
    assert held() is None, "a robot switches its torque off when nobody holds it any more"
    monkeypatch.setattr(benches, "ENOUGH", 6)
    monkeypatch.setattr(benches, "PRECISION", 100.0)
    benches.bench(found)
    assert made_again
    told = found.result.rollout.bench
    assert told is not None, "seven calls or more"
    here, there = told.call_times("robot"), told.call_times("bench")
    assert here is not None
    assert there is not None, found.result.notes
    for one in told.times:
        assert 0 < one.cpu_ms <= 1.2 * one.wall_ms
        assert one.wall_ms == pytest.approx(one.cpu_ms + (one.waiting_ms or 0) + one.blocked_ms, rel=0.2)
    assert here.blocked_ms > 0, "the other thread has the GIL"
    assert sum(share.ms for share in told.shares) == pytest.approx(here.wall_ms - there.wall_ms)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_puts_the_robot_to_rest_and_keeps_the_profile(
    robot, checkpoints, tmp_path, monkeypatch, number, capsys
):
    monkeypatch.setattr(
        robot, "before", staticmethod(lambda tick: os.kill(os.getpid(), number) if tick == 12 else None)
    )
    found = signal.getsignal(signal.SIGINT)
    given = arguments(checkpoints / "act", tmp_path / "told.jsonl", "--duration=60")
    previous = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["rollout", f"--output_dir={tmp_path / 'runs'}", "--", *given]) == 130
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert signal.getsignal(signal.SIGINT) is found
    assert not robot.made[-1].is_connected
    (folder,) = (tmp_path / "runs").iterdir()  # the file of events is gone
    kept = store.load(folder)
    assert kept.status == "interrupted"
    assert 10 <= len(actions(tmp_path / "told.jsonl")) <= 14
    assert (folder / store.REPORT).exists()
    assert "Interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (
            ConnectionError("There is no\nstatus packet!"),
            "failed",
            "ended with ConnectionError: There is no status packet!",
        ),
        (SystemExit(3), "failed", "ended with SystemExit: 3"),
        (KeyboardInterrupt(), "interrupted", None),  # LeRobot itself then ends as if nothing was
    ],
)
def test_a_robot_that_fails_is_put_to_rest_and_named(robot, checkpoints, tmp_path, monkeypatch, error, status, told):
    def fail(tick: int) -> None:
        if tick == 12:
            raise error

    monkeypatch.setattr(robot, "before", staticmethod(fail))
    given = arguments(checkpoints / "act", tmp_path / "told.jsonl", "--duration=60")
    found = watch(given, tmp_path / "run.events")
    assert found.calls is None, "nothing is called on the bench after a run that failed"
    result = found.result
    assert (result.status, result.rollout.error) == (status, told and f"lerobot-rollout {told}")
    assert not robot.made[-1].is_connected
    assert result.rollout.pace is not None
    assert result.rollout.pace.ticks >= 10


def test_a_run_that_does_not_start_is_no_wrong_input(robot, checkpoints, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(robot, "connect", lambda *_: 1 / 0)
    given = arguments(checkpoints / "act", tmp_path / "told.jsonl")
    assert main(["rollout", f"--output_dir={tmp_path / 'runs'}", "--", *given]) == 1
    said = "lerobot-rollout ended with ZeroDivisionError: division by zero (torque is not known: "
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"strobe: {said}")


def test_an_inference_thread_that_gives_up_fails_the_run(robot, checkpoints, tmp_path, monkeypatch):
    def raise_planted_error(self, batch, *, inference_delay=None, prev_chunk_left_over=None, **kwargs):
        raise ValueError("a shape of its own")

    monkeypatch.setattr(SmolVLAPolicy, "predict_action_chunk", raise_planted_error)
    monkeypatch.setattr(rtc, "_RTC_ERROR_RETRY_DELAY_S", 0.01)
    given = arguments(checkpoints / "smolvla", tmp_path / "told.jsonl", *RTC, "--duration=30")
    result = watch(given, tmp_path / "run.events").result
    assert result.status == "failed"
    assert "a shape of its own" in (result.rollout.error or "")
    assert result.rollout.sentence == "The robot was never sent an action."


def test_a_probe_that_cannot_be_attached_leaves_the_robot_alone(robot, checkpoints, tmp_path, monkeypatch):
    monkeypatch.setattr(rollout, "motor_buses", lambda robot: 1 / 0)
    with pytest.raises(UserError, match="could not watch the run: ZeroDivisionError"):
        watch(arguments(checkpoints / "act", tmp_path / "told.jsonl"), tmp_path / "run.events")
    assert len(actions(tmp_path / "told.jsonl")) > 5
    assert not robot.made[-1].is_connected


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="this system knows no scheduling policies")
def test_an_encoder_that_makes_the_control_thread_real_time_is_found(robot, checkpoints, tmp_path, monkeypatch):
    """As SVT-AV1 does for root, played here: nothing changes the test's own thread."""
    now = [os.SCHED_OTHER, os.sched_param(0)]
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: now[0])
    monkeypatch.setattr(os, "sched_getparam", lambda _: now[1])

    def encode(tick):
        if tick == 3:
            now[:] = [os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(99)]

    robot.before = staticmethod(encode)
    given = arguments(checkpoints / "act", tmp_path / "told.jsonl", "--duration=1.5")
    result = watch(given, tmp_path / "run.events").result
    found = result.rollout.scheduling
    assert found is not None
    assert (found.before, found.after) == ("SCHED_OTHER", "SCHED_FIFO 99")
    assert "real-time-thread" in {finding.rule for finding in advise(result)}


def test_after_the_time_to_record_the_run_goes_on_alone(robot, checkpoints, tmp_path):
    given = arguments(checkpoints / "act", tmp_path / "told.jsonl", "--duration=2")
    result = watch(given, tmp_path / "run.events", record_s=0.7).result
    assert result.status == "complete"
    assert result.rollout.pace is not None
    assert 0 < result.rollout.pace.ticks < len(actions(tmp_path / "told.jsonl"))
    assert any("the rest ran without it" in note for note in result.notes)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--fpss=30"], "lerobot-rollout has no flag --fpss: did you mean '--fps'?"),
        (["--fps=0"], "--fps=0: must be above 0"),
        (["--strategy.type=sentry"], "sentry strategy requires --dataset.repo_id to be set"),
        (["oops"], "'oops' is not a flag; lerobot-rollout's flags start with --"),
    ],
)
def test_wrong_arguments_are_a_line_before_the_robot_is_connected(robot, checkpoints, tmp_path, more, said):
    with pytest.raises(UserError) as refused:
        rollout_config([*arguments(checkpoints / "act", tmp_path / "told.jsonl"), *more])
    assert str(refused.value) == said
    assert not robot.made
