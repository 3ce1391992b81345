"""strobe optimize: what it writes, and what is wrong in one line."""

from __future__ import annotations

import time

import pytest
import yaml
from support.checks.refusals import assert_refused
from support.checks.run_contents import load_stored
from support.suite.places import find_only_run

from strobe.core.cli.main import main
from strobe.core.results.subject import Ceiling
from strobe.core.runs import store
from strobe.ladder.command import OptimizeConfig, parse_aim, read
from strobe.ladder.results import OptimizeResult

TINY = ["optimize", "--policy.type=act", "--policy.size=tiny"]


@pytest.fixture
def clock(monkeypatch):
    """Time that passes in SmolVLA's denoising steps and V-JEPA's layers alone: nothing else can make it noisy."""
    from lerobot.policies.smolvla.modeling_smolvla import VLAFlowMatching
    from transformers.models.vjepa2.modeling_vjepa2 import VJEPA2Layer

    now = [1e3]

    def read() -> float:
        now[0] += 1e-6
        return now[0]

    def slow(owner: type, method: str, seconds: float) -> None:
        plain = getattr(owner, method)

        def slower(self, *args, **kwargs):
            now[0] += seconds
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(owner, method, slower)

    slow(VLAFlowMatching, "denoise_step", 0.05)
    slow(VJEPA2Layer, "forward", 0.05)
    monkeypatch.setattr(
        "strobe.core.measure.ceiling.measure", lambda *_: Ceiling()
    )  # it runs for a time that never passes
    monkeypatch.setattr(time, "perf_counter", read)
    monkeypatch.setattr("strobe.core.timeline.timeline.host_ns", lambda: round(read() * 1e9))


def test_a_run_of_a_real_policy_has_a_ladder_and_a_recipe(clock, tmp_path, capsys):
    # No policy of random weights acts the same in two denoising steps as in ten.
    argv = ["optimize", "--policy.type=smolvla", "--policy.size=tiny", "--policy.device=cpu", "--target_hz=1000"]
    argv += ["--guard=cosine>=-1", "--only=tf32", "--candidate", "policy.num_steps=2", "--time-limit=100"]
    argv += ["--iterations=12", "--threads=1", f"--output_dir={tmp_path / 'runs'}"]
    assert main([*argv, f"--recipe_out={tmp_path / 'mine' / 'fast.yaml'}"]) == 0
    folder = find_only_run(tmp_path)
    result = load_stored(OptimizeResult, folder)
    assert result.study == "optimize"
    assert [rung.treatment for rung in result.ladder.rungs] == ["", "policy.num_steps=2"]
    assert result.ladder.guard == "cosine>=-1"
    assert result.ladder.tries[0].part == "denoise step"
    first, last = result.measurements
    assert last.traits.setting("num_steps") == 2
    assert first.memory.peak_activations
    assert last.memory.weights
    assert {"vision tower", "prefix KV cache", "denoise step"} <= set(result.ladder.rungs[1].parts)
    agreement = result.comparisons[0].agreement
    assert agreement.observations >= 8
    assert agreement.how.startswith("10 calls on 4 observations")
    assert {"reordered sums", "another noise draw"} <= {one.name for one in result.yardsticks}
    assert agreement.largest_error > 0
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert recipe["treatments"] == [{"policy.num_steps": 2}]
    assert (recipe["version"], recipe["policy"], recipe["size"]) == (1, "smolvla", "tiny")
    assert recipe["command"].startswith("strobe optimize --policy.type=smolvla")
    assert yaml.safe_load((tmp_path / "mine" / "fast.yaml").read_text()) == recipe
    out, err = capsys.readouterr()
    assert "candidate 1: policy.num_steps=2 on denoise step" in err
    assert "LADDER" in out
    assert f"recipe   {folder / 'recipe.yaml'}" in out
    assert main(["report", str(folder)]) == 0
    assert main(["budget", str(folder), "--target-hz=1000"]) == 0
    assert "with 2 denoising steps" in capsys.readouterr().out


@pytest.mark.slow("a climb with Real-Time Chunking")
def test_with_rtc_its_guidance_is_on_and_its_closed_form_a_candidate(tmp_path):
    argv = ["optimize", "--policy.type=smolvla", "--policy.size=tiny", "--policy.device=cpu", "--only=guidance"]
    argv += ["--rtc.execution_horizon=10", "--target_hz=5000", "--time_limit=40", "--skip_counting", "--threads=1"]
    assert main([*argv, f"--output_dir={tmp_path}", "--iterations=8"]) == 0
    result = load_stored(OptimizeResult, find_only_run(tmp_path))
    (tried,) = {one.treatment: one for one in result.ladder.tries}.values()
    assert (tried.treatment, tried.part) == ("guidance=closed form", "RTC step")
    assert tried.agreement.largest_error == 0
    assert all(m.traits.rtc for m in result.measurements)


def test_a_backbone_climbs_too(clock, tmp_path):
    argv = ["optimize", "--model.type=vjepa2", "--model.size=tiny", "--target_hz=0.01", f"--output_dir={tmp_path}"]
    assert main([*argv, "--skip_counting", "--iterations=8", "--time_limit=100"]) == 0
    result = load_stored(OptimizeResult, find_only_run(tmp_path))
    assert result.ladder.met
    assert result.ladder.ended == "the baseline reaches the target"
    assert "blocks" in result.ladder.rungs[0].parts
    assert not (find_only_run(tmp_path) / "recipe.yaml").exists()


@pytest.mark.slow("a climb that ends in episodes")
def test_paired_episodes_judge_the_treated_policy(clock, tmp_path, capsys):
    argv = ["optimize", "--policy.type=smolvla", "--policy.size=tiny", "--policy.device=cpu", "--target_hz=1000"]
    argv += ["--guard=cosine>=-1", "--only=tf32", "--candidate", "policy.num_steps=2", "--time-limit=100"]
    argv += ["--iterations=8", "--threads=1", "--skip_counting", f"--output_dir={tmp_path}"]
    assert main([*argv, "--env.type=pusht", "--env.episode_length=8", "--eval.n_episodes=3", "--full"]) == 0
    folder = find_only_run(tmp_path)
    result = load_stored(OptimizeResult, folder)
    (judged,) = result.episodes
    assert (judged.baseline, judged.candidate, judged.environment) == ("baseline", "step 1", "PushT-v0")
    assert (len(judged.pairs), judged.kind, judged.broken) == (3, "too few", "")
    assert min(pair.largest_error for pair in judged.pairs) > 0
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert recipe["episodes"] == {
        "environment": "PushT-v0", "pairs": 3, "success": 0.0, "baseline_success": 0.0, "same": 0,
        "possible_drop": pytest.approx(judged.possible_drop),
    }  # fmt: skip
    out, err = capsys.readouterr()
    assert "pair 3 of 3: pusht, seed 2: failure" in err
    assert "3 pairs cannot exclude a loss of 10 points, even if every pair ends alike: that takes 48." in err
    assert "PAIRED EPISODES: STEP 1 AGAINST BASELINE" in out
    assert main(["breakdown", *argv[1:4], f"--recipe={folder / 'recipe.yaml'}", "--iterations=2", "--skip_counting",
                 f"--output_dir={tmp_path / 'again'}"]) == 0  # fmt: skip


@pytest.mark.slow("a climb that ends in episodes")
def test_a_dataset_can_feed_the_climb_and_its_policy_must_do_for_the_simulator(tmp_path, capsys):
    assert main(["record", f"--root={tmp_path / 'pusht'}", "--episodes=1", "--frames=4", "--image=96"]) == 0
    argv = [*TINY, f"--dataset.root={tmp_path / 'pusht'}", "--env.type=pusht", "--env.episode_length=5"]
    argv += ["--skip_counting", "--iterations=2", "--time_limit=1", "--eval.n_episodes=1", "--target_hz=0.01"]
    assert main([*argv, f"--output_dir={tmp_path / 'runs'}"]) == 0
    assert "frames of the dataset" in store.load(find_only_run(tmp_path / "runs")).subject.inputs
    assert main([*argv, "--env.obs_type=environment_state_agent_pos"]) == 2
    assert "needs 'observation.image', which 4 observations of the environment pusht lack" in (capsys.readouterr().err)
    without = [text for text in argv if not text.startswith("--eval")]
    assert main(without) == 2
    assert "inputs come from --dataset or from --env, not both" in capsys.readouterr().err


WRONG = {
    "a recipe to begin with": (["--recipe=fast.yaml"], "use --start="),
    "guard": (["--guard=cosine>0.9"], "cosine is guarded by >="),
    "figure": (["--guard", "cosin>=0.9"], "did you mean 'cosine'"),
    "target": (["--target-hz=0"], "--target_hz=0.0: must be above 0"),
    "time": (["--time_limit=-1"], "--time_limit=-1.0: must be above 0"),
    "effects": (["--effects=exakt"], "did you mean 'exact'"),
    "candidate": (["--candidate", "precision"], "--candidate 'precision': 'precision': write KEY=VALUE"),
    "value": (["--candidate", "precision=bf61"], "did you mean 'bf16'"),
    "start": (["--start", "channels_last=3"], "channels_last takes no value"),
    "profiler": (["--operators"], "use `strobe breakdown`"),
    "episodes": (["--eval.n_episodes=3"], "needs a simulator: --env.type=pusht"),
    "number of episodes": (["--eval.n_episodes=-3", "--env.type=pusht"], "--eval.n_episodes=-3: must be 0 or more"),
    "guard without episodes": (["--guard=success_drop<=0.1"], "needs episodes: add --eval.n_episodes=50"),
    "too few": (["--guard=success_drop<=0.1", "--env.type=pusht", "--eval.n_episodes=5"], "needs at least 48 pairs"),
    "episodes with RTC": (["--env.type=pusht", "--eval.n_episodes=3", "--rtc.execution_horizon=8"], "remove --rtc.*"),
    "rtc": (["--rtc.execution_horizon=8"], "has no Real-Time Chunking"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv, words = WRONG[name]
    assert_refused([*TINY, "--skip_counting", *argv], words, capsys, tmp_path)


def test_flags_choose_what_is_tried():
    argv = [
        "--policy.type=act",
        "--policy.size=tiny",
        "--allow",
        "lossy",
        "--skip",
        "compile,policy.num_steps",
        "--all",
    ]
    config = read([*argv, "--candidate=policy.n_action_steps=5", "--candidate", "precision=bf16, channels_last=true"])
    aim = parse_aim(config)
    assert aim.choice.effects == ("exact", "rounding", "lossy")
    assert aim.choice.skip == ("compile", "policy.")
    assert aim.choice.own == (({"policy.n_action_steps": 5},), ({"precision": "bf16"}, {"channels_last": True}))
    assert aim.everything
    assert parse_aim(OptimizeConfig()).choice.effects == ("exact", "rounding")
    assert parse_aim(OptimizeConfig(effects="exact", allow="lossy")).choice.effects == ("exact", "lossy")
