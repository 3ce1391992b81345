"""A replay of made-up rollouts, all in virtual time.

It is as what was recorded, predicts another setting, and separates the loop's faults from the policy's.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.examples.made_up_rollout import MS, header, motion, rtc, sync
from support.suite.matrix import matrix

from strobe.core.cli.main import main
from strobe.core.kinds import advise, document
from strobe.core.runs import store
from strobe.loops.files import EVENTS, leave
from strobe.loops.recorded_run import RecordedRun, load, recorded_run
from strobe.loops.virtual_rollout import Beat, EngineInputs, RecordedWorld, Setting, make_zero_inputs
from strobe.loops.virtual_time import PlayOptions, play
from strobe.replay import run as study
from strobe.replay.policy import FedPolicy
from strobe.replay.results import Changes, ReplayResult
from strobe.replay.run import Options, Policies, replay_run

FEW = Options(draws=8)


@pytest.fixture(autouse=True)
def few_searches(monkeypatch, caplog):
    monkeypatch.setattr(study, "SEARCHES", 1)
    caplog.set_level("ERROR")  # LeRobot's queue warns of each merge


def vary_latencies(seed: int, median: float = 330.0, spread: float = 0.35):
    """Latencies in milliseconds, by the number of the call: never twice the same."""
    drawn = median * np.exp(spread * np.random.default_rng(seed).standard_normal(1000))
    return lambda call: float(min(drawn[call], 600.0))


def make_run(latency_ms, *, threshold: int = 5, seconds: float = 25.0, **facts: Any) -> RecordedRun:
    made = header(threshold=threshold, **facts)
    return recorded_run(made, rtc(latency_ms, threshold=threshold, seconds=seconds, looks=4))


def make_replay(found: RecordedRun, *, options: Options = FEW, **changes: Any) -> ReplayResult:
    lerobot = {name.replace("__", "."): str(value) for name, value in changes.pop("lerobot", {}).items()}
    result = replay_run(found, "run", Changes(lerobot=lerobot, **changes), options)
    result.findings = advise(result)
    return result


def value(result: ReplayResult, column: str, figure: str) -> float:
    found = result.column(column)
    assert found is not None
    number = found.figures[figure].value
    assert number is not None
    return number


@pytest.mark.parametrize("threshold", [5, 25])
def test_the_runs_own_settings_are_played_as_they_were_recorded(threshold):
    result = make_replay(make_run(vary_latencies(1), threshold=threshold))
    assert result.agrees, result.checks
    starved = value(result, "recorded", "starved_ms")
    assert value(result, "as it was", "starved_ms") == pytest.approx(starved, abs=200, rel=0.1)
    assert value(result, "as it was", "age_ms") == pytest.approx(value(result, "recorded", "age_ms"), abs=40)
    assert value(result, "as it was", "held_hz") == pytest.approx(30, rel=1e-3)
    assert value(result, "ideal loop", "starved") == 0
    assert ("The robot starved" in result.verdict) == (starved > 0)


def test_late_ticks_are_as_late_again():
    events = rtc(
        vary_latencies(1), threshold=30, seconds=20, looks=4, extra=lambda n: [("camera front", 70.0)] * (n % 9 == 4)
    )
    result = make_replay(recorded_run(header(), events), lerobot={"fps": 40})
    assert result.agrees, result.checks
    held = value(result, "recorded", "held_hz")
    assert held < 28
    assert value(result, "as it was", "held_hz") == pytest.approx(held, rel=1e-3)
    assert value(result, "as it was", "late") == value(result, "recorded", "late") > 50
    assert held < value(result, "as asked", "held_hz") < 38, "they are late at a higher rate too"
    assert value(result, "ideal loop", "held_hz") == pytest.approx(30, rel=1e-3)
    assert "59 of 532 control ticks were late" in result.verdict


def later(event: tuple, after: int, by: int) -> tuple:
    """An event, later by so much where it was after that moment; all in nanoseconds."""
    places = {"s": (2, 3), "get": (1, 2), "call": (1, 2)}.get(event[0], (1,))
    return tuple(value + by if place in places and value >= after else value for place, value in enumerate(event))


def test_what_the_loop_lost_between_its_ticks_is_lost_again():
    events = rtc(lambda _: 95.0, seconds=10, looks=4)
    after = [event[1] for event in events if event[0] == "tick"][150]
    result = make_replay(recorded_run(header(), [later(event, after, 2_000 * MS) for event in events]))
    assert value(result, "recorded", "held_hz") < 26
    assert value(result, "as it was", "held_hz") == pytest.approx(value(result, "recorded", "held_hz"), rel=1e-3)


def test_a_sync_run_stands_still_as_long_again():
    facts = header(engine="sync", threshold=None, guided=False, executed=20, chunk=50)
    result = make_replay(recorded_run(facts, sync(200.0)), lerobot={"inference__type": "rtc"})
    assert result.agrees, result.checks
    assert value(result, "as it was", "late") == value(result, "recorded", "late") == 10
    own, was = result.column("as it was"), result.columns[0]
    assert own is not None
    assert own.pace is not None
    assert was.pace is not None
    assert own.pace.period.max == pytest.approx(was.pace.period.max, abs=1)
    assert value(result, "ideal loop", "late") == 0
    assert value(result, "as asked", "late") == 0, "the calls have a thread of their own"
    assert value(result, "as asked", "executed") == pytest.approx(6, abs=1)
    asked = result.column("as asked")
    assert asked is not None
    assert asked.settings["inference.rtc.enabled"] == "True"
    assert asked.age is not None, "which actions rest on which observation is told"


def test_calls_of_no_time_end_though_they_begin_at_a_full_queue():
    result = make_replay(make_run(lambda _: 95.0, threshold=60, seconds=5), latency="0")
    for column in ("as asked", "ideal loop"):
        assert value(result, column, "starved") == 0
        assert value(result, column, "calls") == pytest.approx(150, abs=2), "one for each observation"


def test_a_reset_empties_the_queue_and_the_run_goes_on():
    beats = [Beat(MS, 2 * MS, 3 * MS, 4 * MS)] * 60
    beats[30] = dataclasses.replace(beats[30], reset=True)
    setting = Setting("rtc", 30.0)
    played = play(
        beats, setting, itertools.repeat(100 * MS), make_zero_inputs(setting), PlayOptions(until_ns=2_000 * MS)
    )
    sent = [tick.sent for tick in played.ticks]
    assert all(sent[5:30])
    assert not any(sent[30:32])
    assert all(sent[36:])


@pytest.mark.parametrize(("recorded_at", "asked"), matrix([(4, 9), (25, 4), (9, 25)]))
def test_a_run_at_one_threshold_foretells_a_run_at_another(recorded_at, asked):
    found = make_run(vary_latencies(1), threshold=recorded_at)
    truth = make_run(vary_latencies(2), threshold=asked)
    foretold = make_replay(found, options=Options(draws=25), lerobot={"inference__queue_threshold": asked})
    real = make_replay(truth, options=Options(draws=1)).columns[0]
    column = foretold.column("as asked")
    assert column is not None
    for figure in ("starved_ms", "age_ms", "executed", "calls"):
        was, now = real.figures[figure].value, column.figures[figure]
        assert was is not None
        assert now.low is not None
        assert now.high is not None
        slack = 34 if figure.endswith("_ms") else 1
        assert now.low - slack <= was <= now.high + slack, figure


def test_the_smallest_threshold_is_the_value_to_set(monkeypatch):
    monkeypatch.setattr(study, "SEARCHES", 5)
    found = make_run(lambda call: 300.5 if call % 2 else 500.5, threshold=4)
    result = make_replay(found)
    assert result.least_threshold is not None
    assert math.ceil(0.5 * 30) <= result.least_threshold <= math.ceil(0.5 * 30) + 2
    (finding,) = (one for one in result.findings if one.rule == "replay-threshold")
    assert f"--inference.queue_threshold={result.least_threshold}" in finding.do
    assert result.starves_chance is None, "so few calls say nothing of the longest"
    assert "cannot rule out a longer call" in finding.title
    fixed = make_replay(found, lerobot={"inference__queue_threshold": result.least_threshold})
    assert value(fixed, "as asked", "starved") == 0
    assert "replay-fixes" in {one.rule for one in fixed.findings}


def test_the_longest_of_the_recorded_calls_is_not_the_longest_there_is():
    random = np.random.default_rng(0)
    calls = [round(ms * MS) for ms in 330 * np.exp(0.1 * random.standard_normal(40))]
    longest = math.ceil(max(calls) / MS * 30 / 1e3)
    threshold, chance = study.smallest_threshold(Setting("rtc", 30.0), calls, 60.0, 0)
    assert threshold > longest + 1
    assert chance <= 0.05
    hopeless, chance = study.smallest_threshold(Setting("rtc", 30.0), [5 * each for each in calls], 60.0, 0)
    assert hopeless == 49, "the largest there is"
    assert chance > 0.05
    assert study.smallest_threshold(Setting("rtc", 30.0), calls[:20], 60.0, 7) == (7, None)


def test_a_replay_that_is_not_the_run_says_so():
    facts = header(threshold=30)  # in truth it ran with 5
    result = make_replay(recorded_run(facts, rtc(lambda _: 400.0, threshold=5, seconds=20)))
    assert not result.agrees
    assert "replay-differs" in {one.rule for one in result.findings}
    said = "With the recorded settings the replay differs from the recording: time without"
    assert any(line.startswith(said) for line in document(result).answers)


def test_calls_longer_than_a_chunk_starve_with_every_threshold():
    result = make_replay(make_run(lambda _: 2000.0, threshold=30))
    assert "replay-starves" in {one.rule for one in result.findings}
    assert result.least_threshold is None
    assert "never sent the robot an action" in result.verdict


def test_a_slow_first_call_poisons_lerobots_delay_and_not_the_fixed_one():
    found = make_run(lambda call: 690.0 if call == 0 else 90.0, threshold=30)
    own, fixed = make_replay(found), make_replay(found, fixed=True)
    assert value(own, "as it was", "assumed") == 21
    assert value(own, "as it was", "skipped") >= 21
    assert "replay-delay" in {one.rule for one in own.findings}
    assert value(fixed, "as asked", "assumed") == 3
    assert value(fixed, "as asked", "skipped") == 0
    assert "replay-delay" not in {one.rule for one in fixed.findings}
    assert own.delay == 3


@pytest.mark.parametrize(("delay", "assumed"), [("7", 7), ("0", 0), ("p95", 3)])
def test_another_delay_is_assumed(delay, assumed):
    found = make_run(lambda call: 390.0 if call == 3 else 90.0, threshold=30)
    result = make_replay(found, delay=delay)
    assert value(result, "as it was", "assumed") == 12
    assert value(result, "as asked", "assumed") == assumed


def test_latencies_that_are_halved_starve_less():
    found = make_run(vary_latencies(1), threshold=8)
    half = make_replay(found, latency="x0.5")
    assert value(half, "as asked", "starved") < value(half, "as it was", "starved") / 2
    none = make_replay(found, latency="0")
    assert value(none, "as asked", "starved") == 0


def test_a_lower_rate_gives_calls_more_time():
    result = make_replay(make_run(vary_latencies(1), threshold=8), lerobot={"fps": 15})
    assert value(result, "as asked", "held_hz") == pytest.approx(15, rel=1e-3)
    assert value(result, "as asked", "starved_ms") < value(result, "as it was", "starved_ms") / 2


def test_what_torch_compile_warms_up_with_is_no_latency():
    beats = [Beat(MS, 2 * MS, 3 * MS, 4 * MS)] * 200
    setting = Setting("rtc", 30.0, warmups=2)
    latencies = itertools.chain([3_000 * MS, 2_000 * MS], itertools.repeat(90 * MS))
    played = play(beats, setting, latencies, make_zero_inputs(setting), PlayOptions(until_ns=10_000 * MS))
    assert played.ticks[0].start_ns >= 5_000 * MS, "the loop waits for the warm-up"
    assert {call.assumed for call in played.calls[3:]} == {3}


def test_under_sync_the_loop_stands_still_for_each_call():
    result = make_replay(make_run(lambda _: 200.0, threshold=30), lerobot={"inference__type": "sync"})
    asked = result.column("as asked")
    assert asked is not None
    assert asked.pace is not None
    assert asked.pace.late == asked.figures["calls"].value
    assert value(result, "as asked", "starved") == 0
    assert asked.pace.period.max == pytest.approx(202, abs=4)


class Made:
    """A policy with chunks of its own: they begin where ``chunk`` says, for the tick that it saw."""

    def __init__(self, chunk) -> None:
        self.config = SimpleNamespace(use_amp=False, rtc_config=None)
        self.chunk, self.calls = chunk, 0

    def predict_action_chunk(self, batch: Any, **_: Any) -> torch.Tensor:
        self.calls += 1
        seen = float(batch["observation.state"][0, 0])
        return torch.tensor([[self.chunk(self.calls, seen * 30, step) for step in range(50)]])

    def reset(self) -> None:
        pass


def replace_asked_policy(monkeypatch: pytest.MonkeyPatch, chunk) -> None:
    """Let every replay ask such a policy."""
    same = type("Same", (), {"steps": (), "reset": lambda _: None, "__call__": lambda _, batch: batch})()
    feature = {"observation.state": {"dtype": "float32", "shape": (1,), "names": ["t"]}}
    robot = SimpleNamespace(robot_type="none", action_features={})

    def policies(found: RecordedRun, *_: Any) -> Any:
        def observe(moment: int) -> Any:
            return lambda: {"t": moment / 1e9}

        world = RecordedWorld(observe)
        inputs = EngineInputs(Made(chunk), same, same, robot, feature, {}, ["pan", "lift"], "", "cpu", world)
        fed = FedPolicy(inputs)
        observations: Any = SimpleNamespace(times=[0])
        return Policies(fed, fed, observations)

    monkeypatch.setattr(study, "load_policies", policies)


def test_jumps_that_stay_in_an_ideal_loop_are_the_policys(monkeypatch):
    replace_asked_policy(
        monkeypatch, lambda call, tick, step: [motion(tick + step)[0] + 30 * (call % 2), motion(tick + step)[1]]
    )
    found = make_run(lambda _: 95.0, threshold=30, seconds=20)
    result = make_replay(found)
    assert result.verdict.startswith(
        "The loop did not starve the robot. The policy is at fault: in an ideal loop it still moves pan "
    )
    assert "The loop is at fault" not in result.verdict


def test_jumps_that_vanish_in_an_ideal_loop_are_the_loops(monkeypatch):
    """A policy that drifts away with each step: where calls come often, it has not gone far."""
    replace_asked_policy(
        monkeypatch, lambda _, tick, step: [motion(tick + step)[0] + 1.5 * step, motion(tick + step)[1]]
    )
    result = make_replay(make_run(lambda _: 595.0, threshold=48, seconds=20))
    assert result.verdict.startswith("The loop did not starve the robot. The loop is at fault: it moves pan (")
    assert "The policy is at fault" not in result.verdict


def test_an_interrupted_replay_keeps_what_it_has():
    def stop(done: int, of: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    result = make_replay(make_run(vary_latencies(1)), options=dataclasses.replace(FEW, tell=stop))
    assert result.status == "interrupted"
    assert [column.name for column in result.columns] == ["recorded", "as it was"]
    assert result.verdict


# The command.


@pytest.fixture
def rollout_folder(tmp_path):
    """The folder of a kept rollout, without observations."""
    events = tmp_path / "made-up.events"
    lines = [
        json.dumps(header(threshold=5).to_json()),
        json.dumps(rtc(vary_latencies(1), threshold=5, seconds=15, looks=4)),
    ]
    events.write_text("\n".join(lines) + '\n[["tick", 12')  # it was cut off
    folder = tmp_path / "run"
    folder.mkdir()
    assert [file.name for file, _ in leave(events, folder)] == [EVENTS]
    assert not events.exists()
    return folder


def test_a_killed_runs_file_of_events_is_replayed_where_it_is(tmp_path):
    events = tmp_path / "rollout-1.events"
    events.write_text("\n".join([json.dumps(header().to_json()), json.dumps(rtc(lambda _: 90.0, seconds=2))]))
    found = load(events)
    assert len(found.latencies) == len(found.record.calls) > 1
    assert found.observations is None
    (tmp_path / "rollout-1.observations").mkdir()
    assert load(events).observations == tmp_path / "rollout-1.observations"


def test_the_command_shows_and_keeps_a_replay(rollout_folder, tmp_path, capsys):
    out = tmp_path / "runs"
    given = ["replay", str(rollout_folder), "--inference.queue_threshold=12", "--draws=3", f"--output_dir={out}"]
    assert main([*given, "--full"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The recording is damaged, one of its lines cannot be read. The rest of it says: The robot starved" in said
    assert "record the run with `strobe rollout --observations" in said
    (folder,) = out.iterdir()
    result = store.load_answer(folder)
    assert isinstance(result, ReplayResult)
    assert [column.name for column in result.columns] == ["recorded", "as it was", "as asked", "ideal loop"]
    assert (folder / store.REPORT).exists()
    assert main(["report", str(folder)]) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--inference.queue_treshold=3"], "did you mean '--inference.queue_threshold'?"),
        (["--inference.rtc.horizon=3"], "did you mean '--inference.rtc.execution_horizon'?"),
        (["--inference.rtc.execution_horizon=x"], "--inference.rtc.execution_horizon=x: not a whole number"),
        (["--fps=0"], "--fps=0: must be above 0"),
        (["--inference.type=remote"], "--inference.type=remote: must be sync or rtc"),
        (
            ["--inference_delay=fast"],
            "--inference_delay=fast: must be max (LeRobot's own), p95, or a number of actions",
        ),
        (
            ["--latency=fast"],
            "--latency=fast: must be recorded, x0.5, +20 or 120 (in ms), or the folder of another rollout",
        ),
        (["--latency=xnan"], "--latency=xnan: must be a finite number, 0 or more"),
        (["--rtc_version=5"], "--rtc_version=5: known: 4454, installed"),
        (
            ["--policy.num_steps=1"],
            "--policy.num_steps needs calls of the policy on saved observations: record the run with",
        ),
        (["--inference.type=sync", "--inference_delay=3"], "--inference_delay needs --inference.type=rtc"),
        (["--drawz=3"], "unknown flag --drawz: did you mean --draws?"),
    ],
)
def test_wrong_flags_are_a_line(rollout_folder, flags, said, capsys):
    assert main(["replay", str(rollout_folder), *flags]) == 2
    error = capsys.readouterr().err.strip().partition("\nCorrected: ")[0]
    assert said in error
    assert len(error.splitlines()) == 1


def test_runs_that_cannot_be_replayed_are_a_line(tmp_path, capsys):
    (tmp_path / store.RESULT).write_text("{}")
    for given, said in [
        ([], "name the rollout's folder"),
        ([str(tmp_path / "nowhere")], "no run at"),
        ([str(tmp_path)], f"has no {EVENTS}: it is not a rollout, or an older Strobe recorded it"),
    ]:
        assert main(["replay", *given]) == 2
        error = capsys.readouterr().err.strip()
        assert said in error
        assert len(error.splitlines()) == 1
