"""LeRobot's own commands run a recipe that nothing but the checkpoint or the environment names."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.builders.checkpoints import tiny_checkpoint, tiny_recipe
from support.suite import warm
from support.suite.places import TESTS

from strobe.core.runs.recipe_file import dump

ROBOT = TESTS / "support" / "robot"
BF16 = {"precision": "bf16"}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lerobot_policy_strobe") is None, reason="the plug-in is not installed: make env"
)


def lines(output: str) -> list[str]:
    """Return the log's lines of Strobe."""
    return [line.partition(" strobe: ")[2] for line in output.splitlines() if " strobe: " in line]


VARIABLES = {
    "PYTHONPATH": os.pathsep.join([str(ROBOT), os.environ.get("PYTHONPATH", "")]),
    "HF_HUB_OFFLINE": "1",
    "MUJOCO_GL": "osmesa",
}
ROLLOUT, EVAL = "lerobot.scripts.lerobot_rollout", "lerobot.scripts.lerobot_eval"


def cold(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS…`` as a user starts it."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=env)


def rollout(
    folder: Path,
    told: Path,
    *options: str,
    python: Callable[..., subprocess.CompletedProcess[str]] = warm.run,
    **variables: str,
) -> tuple[list[str], list[list[float]], str]:
    """``lerobot-rollout`` on a robot without hardware: Strobe's lines in its log, actions with their times, the log."""
    arguments = [
        "--robot.type=dummy", f"--robot.told={told}", "--robot.id=test", f"--robot.calibration_dir={told.parent}",
        f"--policy.path={folder}", "--device=cpu", "--task=push the button", "--return_to_initial_position=false",
        "--play_sounds=false", *options,
    ]  # fmt: skip
    ran = python("-m", ROLLOUT, *arguments, env={**os.environ, **VARIABLES, **variables})
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said[-3000:]
    actions = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    return lines(said), actions, said


def largest_difference(one: list[list[float]], other: list[list[float]]) -> float:
    """The largest difference of two runs' actions, as far as both go."""
    pairs = list(zip(one, other, strict=False))
    return max(abs(a - b) for left, right in pairs for a, b in zip(left[1:], right[1:], strict=True))


@pytest.mark.slow("lerobot-rollout from a cold start", each_change=True)
def test_a_robot_runs_the_recipe_that_lies_in_its_checkpoint(tmp_path: Path) -> None:
    """The first rollout is a true cold start: plug-in, recipe and robot are found as in a user's shell."""
    folder = tmp_path / "checkpoint"
    tiny_checkpoint("act", folder, "--n_action_steps=5")
    dump(tiny_recipe("act", BF16), folder / "recipe.yaml")
    said, treated, _ = rollout(folder, tmp_path / "treated.jsonl", "--duration=2", python=cold, STROBE_WATCH="1")
    assert len(said) == 1
    assert said[0].startswith("recipe.yaml on act: 1 treatment, on the first observation actions move by 0.00")
    broken = tmp_path / "broken.yaml"
    broken.write_text("policy: act\ntreatments: [")
    said, baseline, _ = rollout(folder, tmp_path / "broken.jsonl", "--duration=2", STROBE_RECIPE=str(broken))
    assert len(said) == 1
    assert "is not YAML" in said[0]
    assert said[0].endswith("the policy runs unchanged")
    assert min(len(baseline), len(treated)) > 5
    assert 0 < largest_difference(baseline, treated) < 3  # degrees, of a spread of 58


@pytest.mark.slow("lerobot-rollout in real time")
def test_real_time_chunking_runs_with_the_recipe(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    tiny_checkpoint("smolvla", folder)
    dump(tiny_recipe("smolvla", {"guidance": "closed form"}, {"prefix_cache": "static"}, BF16), tmp_path / "fast.yaml")
    said, actions, log = rollout(
        folder, tmp_path / "told.jsonl", "--duration=4", "--inference.type=rtc",
        "--inference.queue_threshold=45", "--inference.rtc.execution_horizon=10",
        STROBE_RECIPE=str(tmp_path / "fast.yaml"), LEROBOT_DUMMY_TINY="smolvla",
    )  # fmt: skip
    assert len(said) == 1, said
    assert said[0].startswith("fast.yaml on smolvla: 3 treatments, on the first observation actions move by 0.0")
    assert "RTC inference error" not in log
    assert len(actions) > 5


@pytest.mark.slow("lerobot-eval as a program")
def test_an_evaluation_runs_with_the_recipe(tmp_path: Path) -> None:
    pytest.importorskip("gym_pusht")
    folder = tmp_path / "checkpoint"
    from support.builders.checkpoints import pusht_checkpoint

    pusht_checkpoint(folder)
    dump(tiny_recipe("act", BF16), tmp_path / "fast.yaml")
    found: dict[str, Any] = {}
    for name, recipe in {"plain": "off", "treated": str(tmp_path / "fast.yaml")}.items():
        arguments = [
            f"--policy.path={folder}", "--env.type=pusht", "--env.episode_length=20", "--eval.batch_size=2",
            "--eval.n_episodes=2", "--policy.device=cpu", "--eval.use_async_envs=false",
            f"--output_dir={tmp_path / name}", "--seed=3",
        ]  # fmt: skip
        ran = warm.run("-m", EVAL, *arguments, env={**os.environ, **VARIABLES, "STROBE_RECIPE": recipe})
        said = ran.stdout + ran.stderr
        assert ran.returncode == 0, said[-3000:]
        (info,) = tmp_path.joinpath(name).glob("eval_info.json")
        found[name] = lines(said), json.loads(info.read_text())["overall"]["avg_sum_reward"]
    assert found["plain"][0] == []
    (line,) = found["treated"][0]
    assert line.startswith("fast.yaml on act: 1 treatment, on the first observation actions move by 0.00")
    assert found["treated"][1] == pytest.approx(found["plain"][1], rel=0.05, abs=0.05)
