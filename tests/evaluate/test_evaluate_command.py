"""strobe evaluate with a real simulator and a tiny policy, and what is wrong in one line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.checks.run_contents import sole_run

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.evaluate.episode_log import NAME

ACTS = ["--policy.type=diffusion", "--policy.size=tiny", "--policy.device=cpu", "--policy.num_inference_steps=4"]
ACTS += ["--policy.n_action_steps=5"]
PLAYS = [*ACTS, "--env.type=pusht", "--env.episode_length=10", "--threads=1"]


def test_two_episodes_of_a_real_policy_are_played_timed_and_gone_on_with(tmp_path, capsys, monkeypatch):
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionConditionalUnet1d as Unet

    denoised, forward = [], Unet.forward

    def slowly(*args, **more):
        denoised.append(1)
        time.sleep(0.02)  # so that four steps take longer than one on a busy machine too
        return forward(*args, **more)

    monkeypatch.setattr(Unet, "forward", slowly)
    argv = ["evaluate", *PLAYS, "--steps=4,1", "--score=progress", f"--output_dir={tmp_path}"]
    assert main([*argv, "--episodes=1", "--seed=3", "--latency_iterations=0", "--videos=0"]) == 0
    assert len(denoised) == 2 * (4 + 1), "an episode of two calls, in 4 steps and in 1; no latency apart from it"
    assert "LATENCY OF A CHUNK" not in capsys.readouterr().out
    folder = sole_run(tmp_path)
    first = (folder / NAME).read_text().splitlines()
    assert main([*argv, "--episodes=2", "--seed=3", "--latency_iterations=6", f"--resume={folder}"]) == 0
    lines = (folder / NAME).read_text().splitlines()
    assert lines[:3] == first
    assert json.loads(lines[0])["asked"]["score"] == "progress of 1", "another score may not continue the run"
    played = [json.loads(line) for line in lines if "asked" not in json.loads(line)]
    assert [(one["variant"], one["seed"]) for one in played] == [
        ("baseline", 3), ("1 step", 3), ("baseline", 4), ("1 step", 4),
    ]  # fmt: skip
    assert played[0]["start"] == played[1]["start"] != played[2]["start"]
    rounds, left = divmod(len(denoised) - 2 * 2 * (4 + 1), 4 + 1)
    assert left == 0, "after two episodes of two calls, rounds of one chunk of each"
    assert rounds >= 7
    assert all(len(one["call_ms"]) == 2 and one["ticks"] == 10 for one in played), "ticks from the queue are no calls"
    assert all(0 <= one["best_reward"] <= 1 for one in played), "the share of the goal that is covered"
    result: Any = store.load_answer(folder)
    assert (result.study, [one.steps for one in result.variants]) == ("evaluate", [4, 1])
    assert result.variants[1].together.scored.pairs == 2
    own, one_step = result.variants
    assert own.calls.calls == 4
    assert 0 < one_step.calls.median_ms <= one_step.calls.p95_ms
    assert own.motion.seam != own.motion.within, "ten ticks in chunks of five: one seam"
    assert min(own.motion.path, own.loop.reset_ms, own.loop.step_ms, own.loop.render_ms) > 0
    assert own.loop.policy_ms < own.calls.p95_ms
    assert 0 < one_step.chunk.ms.median < own.chunk.ms.median
    assert own.chunk.times is None
    assert one_step.chunk.times_interval.low <= one_step.chunk.times
    assert {"preprocessing", "image encoder", "denoise step"} <= set(one_step.chunk.parts)
    assert sum(own.chunk.parts.values()) <= 1.05 * own.chunk.ms.median
    assert set(result.line.predicted) == {1, 4}
    assert result.line.per_step_ms > 0
    # Tiny Diffusion looks at two observations; calls come after ticks 0 and 5, and one would come after 10.
    assert own.loop.drawn == 4 / 10
    out, err = capsys.readouterr()
    assert "Latency of a chunk ≈" in out
    assert "2 pairs cannot exclude a loss of 10 points" in err
    assert "SUCCESS AGAINST LATENCY" in out
    assert "Random weights" in " ".join(out.split())
    assert any("4 steps are the policy's own" in note for note in result.notes)
    assert {Path(one.file).suffix for one in result.videos} <= {".mp4", ".webp"}
    assert [(one.variant, one.seed) for one in result.videos] == [("baseline", 4), ("1 step", 4)], "3 was not filmed"
    assert "data:video/mp4" in (folder / "report.html").read_text()


WRONG = {
    "learnt": ([*PLAYS, "--dataset.root=data"], "--dataset.root shows what one trained policy has learnt: name it"),
    "no simulator": (ACTS, "name the simulator that plays the episodes: --env.type=pusht"),
    "no policy": (["--env.type=pusht"], "name the policy:"),
    "a model": (["--model.type=vjepa2", "--env.type=pusht"], "a model has no actions"),
    "steps": ([*PLAYS, "--steps=10,zero"], "--steps=10,zero: 'zero' is not a whole number, such as 10"),
    "no engine": ([*PLAYS, "--inference.type="], "--inference.type=: give one value or more, or leave the flag out"),
    "no steps at all": ([*PLAYS, "--steps=0"], "'0' is not a number of denoising steps"),
    "twice": ([*PLAYS, "--steps=5,5"], "--steps=5,5: give each number once"),
    "margin": ([*PLAYS, "--margin=1.5"], "--margin=1.5: must be between 0 and 1"),
    "progress": ([*ACTS, "--env.type=metaworld", "--score=progress"], "are not known to say how much of the task is"),
    "reward": ([*PLAYS, "--full_reward=4"], "--full_reward needs --score=progress"),
    "episodes": ([*PLAYS, "--episodes=0"], "--episodes=0: must be at least 1"),
    "recipe": ([*PLAYS, "--recipe=none.yaml"], "cannot read the recipe none.yaml"),
    "recipes": ([*PLAYS, "--recipe=a/fast.yaml,b/fast.yaml"], "two recipes called fast.yaml"),
    "render": ([*PLAYS, "--render=never"], "--render=never: known: always, needed"),
    "parallel": ([*PLAYS, "--parallel=many"], "--parallel=many: write a number of processes from 1 on, or auto"),
    "launcher": ([*PLAYS, "--launcher=slurm"], "known: local, ray"),
    "cluster": ([*PLAYS, "--ray.address=auto"], "--ray.address needs --launcher=ray"),
    "flag": ([*PLAYS, "--episode=4"], "did you mean --episodes"),
    "steps of a policy that has none": (
        ["--policy.type=act", "--policy.size=tiny", "--policy.device=cpu", "--env.type=pusht", "--steps=5"],
        "--steps: the policy type 'act' has no denoising steps",
    ),
    "a run that is not there": ([*PLAYS, "--resume=/no/such/run"], "no evaluation to resume at"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_a_line_and_leaves_no_folder(name, tmp_path, capsys):
    argv, said = WRONG[name]
    assert main(["evaluate", *argv, f"--output_dir={tmp_path / 'runs'}"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert not (tmp_path / "runs").exists()
