"""The settings of a tuning: what can work at a latency, and the sum of what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from strobe.core.errors import UserError
from strobe.evaluate.episodes.timings import Latency, fixed_latency
from strobe.tune.settings import EngineFlag, PolicyFacts, TuneConfig, TunedSetting, grid, latency_ticks

NOT_SERVED = "it needs a queue of observations"
FLOW = PolicyFacts(50, most_executed=50, executed=50, steps=10, steps_field="num_steps", guided=True, not_served=None)
CHUNKS = PolicyFacts(chunk=16, most_executed=15, executed=8, not_served=NOT_SERVED)


def tune_config(*engines: str, **flags: object) -> TuneConfig:
    return TuneConfig(inference=EngineFlag(engines), **flags)  # type: ignore[arg-type]


def test_the_default_comes_first_and_halves_follow() -> None:
    settings = grid(CHUNKS, TuneConfig(), 3).settings
    assert settings[0] == TunedSetting("sync", 8)
    assert [setting.executed for setting in settings] == [8, 15, 7, 3, 1]


def test_an_engine_is_tried_where_lerobot_can_run_the_policy_with_it() -> None:
    assert {setting.engine for setting in grid(FLOW, TuneConfig(), 3).settings} == {"sync", "rtc", "async"}
    others = grid(CHUNKS, TuneConfig(), 3)
    assert {setting.engine for setting in others.settings} == {"sync"}
    assert "cannot guide" in others.left_out["rtc"]
    assert others.left_out["async"] == NOT_SERVED
    with pytest.raises(UserError, match="cannot guide"):
        grid(CHUNKS, tune_config("rtc"), 3)
    with pytest.raises(UserError, match=f"--inference.type=async: {NOT_SERVED}"):
        grid(CHUNKS, tune_config("async"), 3)


def test_async_is_tried_with_each_way_to_join_chunks() -> None:
    settings = grid(
        FLOW, tune_config("async", chunk_size_threshold=(0.5, 0.8), recipe=(Path("fast.yaml"),), steps=(5,)), 3
    ).settings
    assert len(settings) == 1 + 4 * 2, "LeRobot's server takes no recipe and no steps"
    first = settings[1]
    assert first.name == "async, weighted_average, below 0.5"
    assert first.program.endswith("robot_client")
    assert first.flags(FLOW) == [
        "--aggregate_fn_name=weighted_average", "--chunk_size_threshold=0.5", "--actions_per_chunk=50",
    ]  # fmt: skip
    late = grid(FLOW, tune_config("async", aggregate_fn_name=("average",)), 40)
    assert [each.join for each in late.settings[1:]] == ["average"], "where its queue runs empty, the arm waits"


@pytest.mark.parametrize(
    ("ticks", "flags", "sum_"),
    [
        (0, tune_config("rtc"), "a call takes no time"),
        (60, tune_config("rtc"), "a call lasts 60 ticks, and a chunk has 50 actions"),
        (
            24,
            tune_config("rtc", execution_horizon=(10,), queue_threshold=(40,)),
            "lasts 24 ticks, and the horizon is 10",
        ),
        (26, tune_config("rtc", execution_horizon=(40,), queue_threshold=(40,)), "24 of a chunk's 50 actions remain"),
        (24, tune_config("rtc", execution_horizon=(30,), queue_threshold=(20,)), "begins with 20 actions in the queue"),
        (0, tune_config("async"), "a call takes no time"),
    ],
)
def test_what_cannot_work_is_left_out_with_its_sum(ticks: int, flags: TuneConfig, sum_: str) -> None:
    made = grid(FLOW, flags, ticks)
    assert [setting.engine for setting in made.settings] == ["sync"], "the default alone"
    assert all(sum_ in why for why in made.left_out.values())
    assert made.left_out


def test_what_can_work_is_not_left_out() -> None:
    made = grid(FLOW, tune_config("rtc", execution_horizon=(10, 30), queue_threshold=(30,)), 6)
    assert [setting.horizon for setting in made.settings[1:]] == [10, 30]
    assert not made.left_out


def test_every_name_and_every_flag_is_its_settings() -> None:
    flags = tune_config(max_guidance_weight=(5, 10), steps=(10, 5), recipe=(Path("fast.yaml"),))
    settings = grid(FLOW, flags, 3).settings
    assert len({setting.name for setting in settings}) == len(settings)
    setting = TunedSetting("rtc", None, 10, 30, 5.0, 5)
    assert setting.flags(FLOW) == [
        "--inference.type=rtc", "--inference.rtc.execution_horizon=10", "--inference.queue_threshold=30",
        "--inference.rtc.max_guidance_weight=5", "--policy.num_steps=5",
    ]  # fmt: skip
    schedules = grid(
        FLOW,
        tune_config("rtc", execution_horizon=(10,), queue_threshold=(30,), prefix_attention_schedule=("LINEAR", "EXP")),
        3,
    )
    assert [setting.name for setting in schedules.settings[1:]] == [
        "rtc, horizon 10, queue 30, schedule linear", "rtc, horizon 10, queue 30, schedule exp",
    ]  # fmt: skip
    assert schedules.settings[-1].flags(CHUNKS)[-1] == "--inference.rtc.prefix_attention_schedule=EXP"
    assert TunedSetting("sync", 8).flags(CHUNKS) == ["--inference.type=sync", "--policy.n_action_steps=8"]


def test_an_average_of_chunks_is_tried_where_a_call_is_over_within_a_tick() -> None:
    act = PolicyFacts(chunk=16, most_executed=16, executed=8, averages=True)
    assert grid(act, TuneConfig(), 1).settings[-1] == TunedSetting("sync", 1, coefficient=0.01)
    late = grid(act, tune_config(temporal_ensemble_coeff=(0.1,)), 3)
    assert not any(setting.coefficient for setting in late.settings)
    assert {name: why for name, why in late.left_out.items() if name.startswith("sync")} == {
        "sync, 1 action, averaged with 0.1": "a call lasts 3 ticks, and an average of chunks takes one for each action"
    }
    with_it = grid(PolicyFacts(chunk=16, most_executed=16, executed=1, averages=True, coefficient=0.5), TuneConfig(), 0)
    assert with_it.settings[0] == TunedSetting("sync", 1, coefficient=0.5)
    assert TunedSetting("sync", 1) in with_it.settings


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (tune_config(n_action_steps=(16,)), "--n_action_steps=16"),
        (tune_config(execution_horizon=(17,)), "--execution_horizon=17"),
        (tune_config(queue_threshold=(99,)), "--queue_threshold=99"),
        (tune_config(steps=(5,)), "--steps"),
        (tune_config(temporal_ensemble_coeff=(0.1,)), "--temporal_ensemble_coeff"),
        (tune_config(prefix_attention_schedule=("LINEA",)), "--prefix_attention_schedule=LINEA"),
    ],
)
def test_a_value_that_the_policy_cannot_have_is_named(flags: TuneConfig, flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        grid(CHUNKS, flags, 3)


def test_a_latency_lasts_whole_ticks() -> None:
    assert [latency_ticks(fixed_latency(ms), 10) for ms in (0, 100, 101)] == [0, 1, 2]
    recorded = Latency("runs/RUN", runs={"": [10_000_000, 300_000_000, 320_000_000]})
    assert latency_ticks(recorded, 10) == 3
    with pytest.raises(UserError, match="known before"):
        latency_ticks(Latency("live"), 10)
