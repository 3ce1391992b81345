"""Episodes that are true to time, with a real simulator, tiny policies, and LeRobot's engines in virtual time."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lerobot.envs.configs import PushtEnv
from support.fakes.made_up_simulator import MadeUp, make_request, plan, run_evaluation

from strobe.core.cli.keep import render_text
from strobe.core.errors import UserError
from strobe.core.kinds import document
from strobe.evaluate.episode_log import NAME, EpisodeLog
from strobe.evaluate.episodes.play import FIRST
from strobe.evaluate.episodes.runners import RealtimeEpisodeRunner, RealtimeSimulator, require_engine
from strobe.evaluate.episodes.timings import RequestedTiming, fixed_latency, parse_latency, parse_ticks
from strobe.evaluate.page import plots
from strobe.evaluate.results import Engine, EpisodeTiming
from strobe.evaluate.run import combine_with_timings
from strobe.lerobot.policies import loading
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.simulators.held_action import choose_hold
from strobe.simulators.simulator import Simulator

ENV = PushtEnv(episode_length=20, observation_height=96, observation_width=96)
TICK_MS = 100.0  # of PushT


def timing(latency, engine: Engine = "sync", **more):
    return RequestedTiming(engine, latency, choose_hold(ENV), ENV.fps, **more)


@pytest.fixture(scope="module")
def diffusion():
    overrides = ["--device=cpu", "--num_inference_steps=2", "--n_action_steps=5"]
    return loading.load_subject(
        PolicyOptions(path=None, type="diffusion", size="tiny", overrides=overrides), InputOptions(env=ENV), seed=0
    )


@pytest.fixture(scope="module")
def simulators(diffusion):
    found = Simulator(ENV, diffusion), RealtimeSimulator(ENV, diffusion)
    yield found
    for one in found:
        one.close()


def play_episode(simulators, latency, seed=3):
    _, true = simulators
    true.use(timing(latency), FIRST)
    return true.play_true("pusht", seed)


def test_without_latency_an_episode_is_lerobot_evals_to_the_bit(simulators):
    plain = simulators[0].play("pusht", 3)
    true, times, told = play_episode(simulators, fixed_latency(0))
    assert torch.equal(true.actions, plain.actions)
    assert true.actions.dtype == plain.actions.dtype
    assert (true.start, true.episode.ticks, true.episode.success) == (plain.start, 20, plain.episode.success)
    assert true.episode.reward == pytest.approx(plain.episode.reward, rel=1e-12)
    assert (told.held, told.lost, told.imposed_ms) == (0, 0, [0.0] * 4)
    assert len(times.call_ms) == 4
    assert min(times.call_ms) > 0
    assert told.age_ms[:6] == [0, 100, 200, 300, 400, 0]
    assert (len(told.steps), len(told.jumps)) == (16, 3)


@pytest.mark.parametrize("ms", [0, 40, 60, 140, 160, 250, 300])
def test_drawing_what_is_looked_at_changes_no_action(simulators, ms):
    _, true = simulators
    true.rendering = "always"
    try:
        every, _, _ = play_episode(simulators, fixed_latency(ms))
    finally:
        true.rendering = "needed"
    needed, _, _ = play_episode(simulators, fixed_latency(ms))
    assert torch.equal(needed.actions, every.actions)
    assert every.drawn == 20
    assert needed.drawn is not None
    assert 6 <= needed.drawn <= 16, "two or three ticks for each of the three or four calls"


def test_a_call_lets_the_simulator_go_on_with_the_last_action_held(simulators):
    true, _, told = play_episode(simulators, fixed_latency(3 * TICK_MS))
    actions = true.actions.tolist()
    # Three ticks pass in each call. Its first action is followed by the second at once: the loop was late, and does
    # not wait. Then come four ticks with actions, and the next call.
    assert told.held == 3 + 3 + 3
    assert told.lost == 3
    assert actions[0] == actions[1] == actions[2]
    assert actions[6] == actions[7] == actions[8] == actions[9] != actions[10]
    assert told.age_ms[:5] == [300, 400, 500, 600, 300]
    first = simulators[0].play("pusht", 3).actions.tolist()
    assert actions[3:7] == first[1:5], "the first call sees the same and draws the same noise"


def test_less_than_half_a_tick_costs_no_tick(simulators):
    plain = simulators[0].play("pusht", 3)
    true, _, told = play_episode(simulators, fixed_latency(0.4 * TICK_MS))
    assert torch.equal(true.actions, plain.actions)
    assert told.age_ms[:2] == [40, 100]


def test_live_latency_is_what_the_call_and_its_processors_took(simulators):
    _, times, told = play_episode(simulators, parse_latency(["live"])[0])
    assert all(imposed > 0.999 * call for imposed, call in zip(told.imposed_ms, times.call_ms, strict=True))


def test_the_same_seed_draws_the_same_latencies_of_a_run_and_another_one_others(tmp_path):
    run_evaluation(tmp_path, plan(5), MadeUp())
    (source,) = parse_latency([str(tmp_path)])

    def draw_latencies(variant, seed):
        return list(itertools.islice(source.source(variant, seed, lambda: 0), 40))

    assert draw_latencies(FIRST, 1) == draw_latencies(FIRST, 1) != draw_latencies(FIRST, 2)
    assert set(draw_latencies(FIRST, 1)) == {20_000_000, 21_000_000}
    assert set(draw_latencies("2 steps", 1)) == {4_000_000, 5_000_000}, "its own calls, where the run has them"
    assert draw_latencies("fast.yaml", 1) == draw_latencies(FIRST, 1)
    file = tmp_path / NAME
    line = json.loads(file.read_text().splitlines()[1]) | {"seed": 99, "call_ms": [500.0]}
    file.write_text(f"{file.read_text()}{json.dumps(line)}\n")
    assert parse_latency([str(tmp_path)])[0].source_with_digest != source.source_with_digest


def test_real_time_chunking_acts_from_its_queue_and_leaves_the_policy_as_it_was():
    overrides = ["--device=cpu", "--n_action_steps=10"]
    subject = loading.load_subject(
        PolicyOptions(path=None, type="smolvla", size="tiny", overrides=overrides),
        InputOptions(env=replace(ENV, episode_length=45)),
        seed=0,
    )
    require_engine(subject.policy, "rtc")
    simulator = RealtimeSimulator(replace(ENV, episode_length=45), subject)
    config: Any = subject.policy.config
    before = config.rtc_config
    simulator.use(timing(fixed_latency(3 * TICK_MS), "rtc", rtc={"execution_horizon": 10}, threshold=20), FIRST)
    _, times, told = simulator.play_true("pusht", 3)
    simulator.close()
    assert len(times.call_ms) == len(told.imposed_ms) == 2
    assert told.held == 4, "only the first call is waited for, from the tick after the one that it sees"
    assert told.lost == 0
    assert len(told.jumps) == 1
    assert max(told.age_ms) > 1000
    assert config.rtc_config is before
    assert subject.policy.rtc_processor is None


def test_lerobots_robot_client_acts_from_its_queue():
    overrides = ["--device=cpu", "--chunk_size=16", "--n_action_steps=16"]
    subject = loading.load_subject(
        PolicyOptions(path=None, type="act", size="tiny", overrides=overrides), InputOptions(env=ENV), seed=0
    )
    require_engine(subject.policy, "async")
    simulator = RealtimeSimulator(ENV, subject)
    simulator.use(timing(fixed_latency(3 * TICK_MS), "async", client={"aggregate_fn_name": "latest_only"}), FIRST)
    true, times, told = simulator.play_true("pusht", 3)
    assert told.held == 4, "only the first call is waited for, from the tick after the one that it sees"
    assert told.lost == 0
    assert len(times.call_ms) == len(told.imposed_ms) >= 3
    simulator.use(timing(fixed_latency(3 * TICK_MS), "async", client={"aggregate_fn_name": "conservative"}), FIRST)
    joined, _, _ = simulator.play_true("pusht", 3)
    simulator.close()
    first = 4 + 10  # ticks until the second chunk is there
    assert torch.equal(true.actions[:first], joined.actions[:first])
    assert not torch.equal(true.actions[first:], joined.actions[first:])


def test_a_policy_that_an_engine_cannot_play_is_a_line(diffusion):
    with pytest.raises(UserError, match=r"type=async: the policy type 'diffusion' makes a chunk of a queue"):
        require_engine(diffusion.policy, "async")
    with pytest.raises(UserError, match=r"cannot guide the policy type 'diffusion'; it guides .*smolvla"):
        require_engine(diffusion.policy, "rtc")


@pytest.mark.parametrize("engine", ["rtc", "async"])
def test_an_engine_that_would_ignore_a_setting_of_the_policy_refuses_it(engine: str):
    """As in strands-labs/robots #731."""
    averaging: Any = SimpleNamespace(config=SimpleNamespace(type="act", temporal_ensemble_coeff=0.01))
    require_engine(averaging, "sync")
    with pytest.raises(UserError, match=rf"type={engine}: .* ignore temporal_ensemble_coeff=0.01"):
        require_engine(averaging, engine)


def test_a_simulator_that_fails_says_so_and_not_the_policy(diffusion, monkeypatch):
    stage = RealtimeEpisodeRunner(ENV, {"": diffusion})
    (vector,) = stage.simulators[FIRST].vectors.values()
    monkeypatch.setattr(vector, "step", lambda action: (_ for _ in ()).throw(RuntimeError("the table broke")))
    (one,) = combine_with_timings(plan(1).candidates[:1], [timing(fixed_latency(0))])
    with pytest.raises(UserError, match="'baseline, sync, 0 ms' failed on pusht, seed 1: RuntimeError: the table"):
        stage.play(one, "pusht", 1)
    stage.close()


class Timed(MadeUp):
    """A made-up player that succeeds less often at longer latencies."""

    def play(self, candidate: Any, task, seed):
        line = super().play(candidate, task, seed)
        ms = candidate.timing.latency.fixed_ns / 1e6
        told = EpisodeTiming(
            imposed_ms=[ms] * 3, held=5 * (ms > 0), lost=0, age_ms=[ms, ms + 2000], steps=[1.0, 2.0], jumps=[4.0]
        )
        return line.model_copy(update={"timing": told, "best_reward": 2.0})


ROWS = [timing(fixed_latency(ms), engine) for engine in ("sync", "rtc") for ms in (0, 300, 100)]
RATES = {
    "baseline, sync, 0 ms": 0.9, "baseline, sync, 100 ms": 0.9, "baseline, sync, 300 ms": 0.2,
    "baseline, rtc, 0 ms": 0.9, "baseline, rtc, 100 ms": 0.9, "baseline, rtc, 300 ms": 0.9,
}  # fmt: skip


def rows(latencies=ROWS):
    alone = plan(60)
    return replace(alone, candidates=combine_with_timings(alone.candidates[:1], latencies))


def test_each_engine_at_each_latency_is_a_row_judged_against_the_first(tmp_path):
    result = run_evaluation(tmp_path, rows(), Timed(RATES))
    assert [one.name for one in result.variants] == [row for name in ("sync", "rtc") for row in (
        f"baseline, {name}, 0 ms", f"baseline, {name}, 300 ms", f"baseline, {name}, 100 ms")]  # fmt: skip
    slow = result.variants[1].timing
    assert slow.imposed.median == 300
    assert slow.starved_share == 0.25
    assert slow.age.median == 1300
    assert slow.jump_ratio == pytest.approx(4 / 2, rel=0.06)
    page = document(result)
    pairs = result.variants[1].together.paired.decision.pairs
    worse, time = [line for line in page.answers if line.startswith("baseline, sync, 300 ms: ")]
    assert time.startswith("baseline, sync, 300 ms: it succeeds less"), "success comes before time"
    assert "success, worse, −" in worse
    assert page.answers[0] == "rtc tolerates 300 ms of latency, sync 100 ms."
    assert f"{pairs} paired episodes" in page.answers[1] or pairs < 60
    text = render_text(result)
    assert "TIMING FIDELITY" in text
    assert "25.0 %" in text
    assert "1e+" not in text
    (plot,) = plots(result)["realtime"]
    assert [trace["x"] for trace in plot.data] == [[0, 100, 300], [0, 100, 300]]
    assert [trace["name"] for trace in plot.data] == ["baseline, sync", "baseline, rtc"]


def test_what_latency_costs_is_said_in_progress_where_that_decides(tmp_path):
    said = document(run_evaluation(tmp_path, replace(rows(ROWS[:3]), full_reward=4.0), Timed(RATES))).answers
    assert said[0] == "300 ms of latency cuts progress from 95 % to 63 %."
    assert any(line.startswith("baseline, sync, 300 ms: it makes less progress, and it ") for line in said)


def test_an_evaluation_that_is_gone_on_with_must_have_asked_for_the_same_timing(tmp_path):
    whole, before, after = Timed(RATES), Timed(RATES, cut=7), Timed(RATES)
    (tmp_path / "whole").mkdir()
    uncut = run_evaluation(tmp_path / "whole", rows(), whole)
    assert run_evaluation(tmp_path, rows(), before).status == "interrupted"
    assert run_evaluation(tmp_path, rows(), after, resume=True).variants == uncut.variants
    held = [replace(one, hold=replace(one.hold, kind="zero")) for one in ROWS]
    with pytest.raises(UserError, match="began with other flags: variants: another baseline, sync, 0 ms"):
        EpisodeLog.resume(tmp_path, make_request(rows(held)))


WRONG = {
    "0,fast": "'fast' is not a number of milliseconds, nor 'live', nor a run's folder",
    "-5": "-5 must be between 0 and 60000 ms",
    "nan": "nan must be between 0 and 60000 ms",
    "100,100": "100 ms is given twice",
    "live,live": "live is given twice",
    ",": "write --latency=0,100,300",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_latency_that_is_none_is_a_line(text):
    with pytest.raises(UserError) as caught:
        parse_latency([part for part in text.split(",") if part])
    assert WRONG[text] in str(caught.value)


def test_a_folder_without_calls_is_a_line(tmp_path: Path):
    with pytest.raises(UserError, match=r"holds neither events.jsonl.gz of a rollout nor episodes.jsonl of an eval"):
        parse_latency([str(tmp_path)])
    EpisodeLog.begin(tmp_path, make_request(plan())).close()
    with pytest.raises(UserError, match="no episode has ended in it"):
        parse_latency([str(tmp_path)])
    (tmp_path / NAME).write_text("{}\n")
    with pytest.raises(UserError) as caught:
        parse_latency(["0", f"{tmp_path / NAME}"])
    assert str(caught.value) == (
        f"--latency={tmp_path / NAME}: it is no evaluation: line 1 is not a valid episode (episodes.jsonl)"
    )
    (tmp_path / NAME).write_text("")
    with pytest.raises(UserError, match=r"line 1 is not a valid request \(episodes.jsonl\)$"):
        parse_latency([f"{tmp_path}"])
    for name in ("notes.txt", "killed.events"):
        (tmp_path / name).write_text("no run\n")
        with pytest.raises(UserError, match=r"^--latency") as caught:
            parse_latency([f"{tmp_path / name}"])
        assert str(caught.value).count(str(tmp_path)) == 1


def test_ticks_are_milliseconds_at_the_simulators_rate():
    assert [one.name for one in parse_ticks([0, 2, 5], 80)] == ["0 ms", "25 ms", "62.5 ms"]
    assert [one.fixed_ns for one in parse_ticks([9], 30)] == [300_000_000]
    for ticks in ([2, 2], [], [99999]):
        with pytest.raises(UserError, match=f"--delay_ticks={','.join(map(str, ticks))}"):
            parse_ticks(ticks, 30)
