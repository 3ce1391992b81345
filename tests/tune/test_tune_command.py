"""strobe tune with a real simulator and a tiny policy, and what is wrong in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checks.run_contents import logged_episodes, sole_run

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.evaluate.episode_log import NAME

ACTS = ["--policy.type=diffusion", "--policy.size=tiny", "--policy.device=cpu", "--policy.num_inference_steps=2"]
PLAYS = [*ACTS, "--env.type=pusht", "--env.episode_length=8", "--threads=1"]


@pytest.mark.slow("a run that is killed, and goes on")
def test_a_policy_that_never_succeeds_is_said_to_be_hopeless_and_a_killed_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--latency=200", "--n_action_steps=4,8", "--starts=40", "--pairs=8", f"--output_dir={tmp_path}"]
    assert main(["tune", *PLAYS, *flags]) == 0
    folder = sole_run(tmp_path)
    episodes = logged_episodes(folder)
    assert len(episodes) == 42, "three settings on 14 starts: the first start after which 40 were played"
    assert {episode["variant"] for episode in episodes} == {
        "sync, 32 actions, at 200 ms", "sync, 4 actions, at 200 ms", "sync, 8 actions, at 200 ms",
    }  # fmt: skip
    shown = " ".join(capsys.readouterr().out.split())
    assert "At 200 ms latency, no setting succeeds. 0 of 42 episodes of 3 settings succeed in PushT-v0." in shown
    result: Any = store.load_answer(folder)
    (tuning,) = result.tunings
    assert (tuning.ticks, tuning.hopeless, tuning.winner) == (2, True, "")
    assert [finding.rule for finding in result.findings] == ["tune-no-success"]

    lines = (folder / NAME).read_bytes().splitlines(keepends=True)
    (folder / NAME).write_bytes(b"".join(lines[:20]) + lines[20][:30])  # as a kill leaves it
    assert main(["tune", *PLAYS, *flags, f"--resume={folder}"]) == 0
    again = logged_episodes(folder)
    keys = [(episode["variant"], episode["seed"]) for episode in again]
    assert len(set(keys)) == len(keys) == len(episodes), "no episode is played twice"
    assert again[:19] == episodes[:19]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], "name the latency of a call: --latency=100"),
        (["--latency=live"], "--latency=live: strobe tune needs latencies that are known beforehand"),
        (["--latency=runs/none"], "'runs/none' is not a number"),
        (["--latency=100", "--n_action_steps=0,5"], "--n_action_steps=0,5: '0' must be a number above zero"),
        (["--latency=100", "--max_guidance_weight=x"], "--max_guidance_weight=x: 'x' is not a number, such as 0.5"),
        (["--latency=100", "--inference.type=fast"], "'fast' is none of sync, rtc, async"),
        (["--latency=100", "--hold=still"], "--hold=still: last or zero"),
        (["--latency=100", "--starts=2"], "starts"),
    ],
)
def test_wrong_input_is_one_line_before_anything_is_loaded(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *PLAYS, *flags]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert named in said


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--n_action_steps=500"], "--n_action_steps=500: this policy can execute 1 to 63 actions"),
        (["--inference.type=rtc"], "Real-Time Chunking cannot guide"),
        (["--n_action_steps=32"], "--latency=100 ms: there is no second setting to try"),
    ],
)
def test_what_the_policy_cannot_do_is_one_line(
    flags: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *PLAYS, "--latency=100", *flags, f"--output_dir={tmp_path}"]) == 2
    assert named in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(tmp_path.iterdir())
