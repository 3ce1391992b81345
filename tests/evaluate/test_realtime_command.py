"""strobe evaluate --realtime with a real simulator and a tiny policy, gone on with, and what is wrong in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.checks.run_contents import load_stored
from support.examples.made_up_rollout import header, rtc

from strobe.core.cli.main import main
from strobe.evaluate.episode_log import NAME
from strobe.evaluate.flags import InferenceFlags, RealtimeFlags, timings
from strobe.evaluate.results import EvaluateResult
from strobe.loops.files import EVENTS

ACTS = ["--policy.type=diffusion", "--policy.size=tiny", "--policy.device=cpu", "--policy.num_inference_steps=2"]
PLAYS = [*ACTS, "--policy.n_action_steps=5", "--env.type=pusht", "--env.episode_length=10", "--threads=1"]


def rollout(folder: Path, ms: float) -> Path:
    """A folder with a rollout's events, whose calls take ``ms``."""
    folder.mkdir()
    lines = [json.dumps(header().to_json()), json.dumps(rtc(lambda call: ms if call else 4000.0))]
    (folder / EVENTS).write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


def test_latencies_of_a_robots_run_and_fixed_ones_are_rows_and_a_run_is_gone_on_with(tmp_path, capsys):
    run = rollout(tmp_path / "robot", 220.0)
    argv = ["evaluate", *PLAYS, "--realtime", f"--latency=0,{run}", f"--output_dir={tmp_path / 'runs'}", "--seed=3"]
    assert main([*argv, "--episodes=1"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert main([*argv, "--episodes=2", f"--resume={folder}", "--full"]) == 0
    lines = [json.loads(line) for line in (folder / NAME).read_text().splitlines()]
    names = ["baseline, sync, 0 ms", f"baseline, sync, {run}"]
    assert [(one["variant"], one["seed"]) for one in lines if "asked" not in one] == [
        (name, seed) for seed in (3, 4) for name in names
    ]
    result = load_stored(EvaluateResult, folder)
    own, robots = result.variants
    assert (own.timing.held, own.timing.imposed.max) == (0, 0)
    assert own.times is robots.times is None, "what calls took here was not imposed"
    assert robots.timing.imposed.median == pytest.approx(220, rel=0.01)
    assert robots.timing.imposed.max < 1000, "the run's first call is left out"
    assert robots.timing.starved_share == pytest.approx(2 * 2 / 10)
    out, _ = capsys.readouterr()
    assert "TIMING FIDELITY" in out
    assert "a tick without an action repeats the last one" in out
    assert "are drawn from" in out
    assert "success against latency" in (folder / "report.html").read_text().lower()
    rollout_of_others = rollout(tmp_path / "other", 330.0)
    (run / EVENTS).write_bytes((rollout_of_others / EVENTS).read_bytes())
    assert main([*argv, "--episodes=2", f"--resume={folder}"]) == 2
    assert "began with other flags: variants: another baseline, sync" in capsys.readouterr().err


PUSHT: Any = SimpleNamespace(fps=10.0, type="pusht")


def test_horizons_and_thresholds_are_rows():
    engines = InferenceFlags(("sync", "rtc"))
    flags = RealtimeFlags(True, ("0", "100"), inference=engines, execution_horizon=(10, 20), queue_threshold=(30, 40))
    made = timings(flags, PUSHT)
    settings = ["sync", *(f"rtc, horizon {horizon}, queue {queue}" for horizon in (10, 20) for queue in (30, 40))]
    assert [timing.name for timing in made] == [f"{one}, {ms} ms" for one in settings for ms in (0, 100)]
    assert [(timing.rtc["execution_horizon"], timing.threshold) for timing in made[2::2]] == [
        (10, 30), (10, 40), (20, 30), (20, 40),
    ]  # fmt: skip
    assert len({timing.settings_text for timing in made}) == len(made)


def test_ways_to_join_chunks_are_rows():
    flags = RealtimeFlags(
        realtime=True,
        latency=("100",),
        inference=InferenceFlags(("async",)),
        aggregate_fn_name=("average", "latest_only"),
        chunk_size_threshold=(0.5, 0.8),
    )
    made = timings(flags, PUSHT)
    assert [timing.setting for timing in made] == [
        f"async, {join}, below {share}" for join in ("average", "latest_only") for share in (0.5, 0.8)
    ]
    assert made[-1].client == {"aggregate_fn_name": "latest_only", "chunk_size_threshold": 0.8}
    assert len({timing.settings_text for timing in made}) == len(made)


def test_one_horizon_has_no_words_of_its_own():
    flags = RealtimeFlags(realtime=True, latency=("100",), inference=InferenceFlags(("rtc",)))
    (timing,) = timings(flags, PUSHT)
    assert (timing.name, timing.rtc["execution_horizon"], timing.threshold) == ("rtc, 100 ms", 10, 30)


TRUE = [*PLAYS, "--realtime"]
WRONG = {
    "latency alone": ([*PLAYS, "--latency=0,100"], "--latency needs --realtime: without it the simulator waits"),
    "engine alone": ([*PLAYS, "--inference=rtc"], "--inference needs --realtime"),
    "latency": ([*TRUE, "--latency=fast"], "--latency=fast: 'fast' is not a number of milliseconds, nor 'live'"),
    "ticks": ([*TRUE, "--delay_ticks=1.5"], "--delay_ticks=1.5: '1.5' is not a whole number, such as 10"),
    "both": ([*TRUE, "--latency=0", "--delay_ticks=0"], "--latency and --delay_ticks set the same"),
    "hold": ([*TRUE, "--hold=still"], "--hold=still: last or zero"),
    "engine": ([*TRUE, "--inference=fast"], "--inference.type=fast: 'fast' is none of sync, rtc"),
    "not served": ([*TRUE, "--inference=sync,async"], "'diffusion' makes a chunk of a queue of observations"),
    "a way to join": ([*TRUE, "--inference=async", "--aggregate_fn_name=mean"], "'mean' is none of weighted_average"),
    "a way twice": ([*TRUE, "--inference=async", "--aggregate_fn_name=average,average"], "give each way once"),
    "a share": ([*TRUE, "--inference=async", "--chunk_size_threshold=7"], "must be a share of a chunk, from 0 to 1"),
    "joined in sync": ([*TRUE, "--aggregate_fn_name=average"], "--aggregate_fn_name needs --inference.type=async"),
    "not guided": ([*TRUE, "--inference=sync,rtc"], "cannot guide the policy type 'diffusion'; it guides"),
    "horizons": ([*TRUE, "--execution_horizon=10,20"], "needs --inference.type=rtc, or sync,rtc"),
    "horizons alone": ([*PLAYS, "--execution_horizon=10,20"], "--execution_horizon needs --realtime"),
    "a horizon twice": ([*TRUE, "--inference=rtc", "--execution_horizon=10,10"], "give each number once"),
    "a horizon of 0": ([*TRUE, "--inference=rtc", "--queue_threshold=0,10"], "must be a whole number above zero"),
    "threshold": ([*TRUE, "--inference.queue_threshold=3"], "need --inference.type=rtc, or sync,rtc"),
    "horizon": ([*TRUE, "--inference=rtc", "--inference.rtc.execution_horizon=0"], "must be at least 1"),
    "guidance": (
        [*TRUE, "--inference=rtc", "--inference.rtc.max_guidance_weight=0"],
        "max_guidance_weight must be positive",
    ),
    "live on a cluster": (
        [*TRUE, "--launcher=ray"],
        "--latency=live uses the times of the calls here, and nodes may differ",
    ),
    "rate": ([*TRUE, "--env.fps=0"], "--env.fps=0: must be above 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_time_is_a_line_and_leaves_no_folder(name, tmp_path, capsys):
    argv, said = WRONG[name]
    assert main(["evaluate", *argv, f"--output_dir={tmp_path / 'runs'}"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()
