"""The policy that comes with Strobe: it is small, LeRobot loads it, its name works everywhere, and it does its task."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from strobe.core import demo
from strobe.core.cli.main import main
from strobe.core.runs import store

# Looked for without importing it: MuJoCo must not be loaded before Strobe has said how it is to render.
plays = pytest.mark.skipif(importlib.util.find_spec("metaworld") is None, reason="needs MetaWorld")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to work in, whose name and content say nothing of the demo."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow("imports LeRobot and builds the policy that ships")
def test_lerobot_loads_it_and_its_weights_are_small():
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    policy = ACTPolicy.from_pretrained(demo.CHECKPOINT)
    make_pre_post_processors(policy.config, pretrained_path=str(demo.CHECKPOINT))
    assert sum(file.stat().st_size for file in demo.CHECKPOINT.iterdir()) <= 2_000_000


def test_its_name_is_its_folder_wherever_a_checkpoint_is_named(elsewhere: Path):
    there = str(demo.CHECKPOINT)
    assert demo.spelt_out("breakdown", ["--policy.path=demo"]) == [f"--policy.path={there}"]
    assert demo.spelt_out("breakdown", ["--policy.path", "demo"]) == ["--policy.path", there]
    assert demo.spelt_out("rehearse", ["--seconds=1", "--", "--policy.path=demo"])[-1] == f"--policy.path={there}"
    assert demo.spelt_out("compare", ["--policy.path=demos"]) == ["--policy.path=demos"]
    several = demo.spelt_out("evaluate", ["--policies=demo,other", "--env.type=pusht"])
    assert several == [f"--policies={there},other", "--env.type=pusht"]


def test_where_episodes_are_played_its_simulator_is_the_default(elsewhere: Path):
    assert demo.spelt_out("tune", ["--policy.path=demo", "--latency=100"])[-1] == demo.SIMULATOR
    assert demo.SIMULATOR not in demo.spelt_out("tune", ["--policy.path=demo", "--env.type=pusht"])
    assert demo.SIMULATOR not in demo.spelt_out("tune", ["--policy.path=mine"])


def test_a_folder_of_that_name_wins(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    (elsewhere / "demo").mkdir()
    assert demo.spelt_out("evaluate", ["--policy.path=demo"]) == ["--policy.path=demo"]
    assert main(["breakdown", "--policy.path=demo"]) == 2
    assert "no config.json" in capsys.readouterr().err


def test_in_python_its_name_works_too(elsewhere: Path):
    import strobe

    assert strobe.load_policy("demo").policy.config.type == "act"


@plays
@pytest.mark.skipif(sys.platform != "linux", reason="MuJoCo renders by OSMesa or EGL here")
def test_it_presses_the_button_from_two_starts(elsewhere: Path):
    argv = ["evaluate", "--policy.path=demo", "--episodes=2", "--videos=0", "--latency_iterations=0", "--threads=1"]
    assert main([*argv, f"--output_dir={elsewhere}"]) == 0
    answer: Any = store.load_answer(next(elsewhere.glob("*_evaluate_demo")))
    assert answer.variants[0].together.success.successes == 2


def test_an_answer_names_it_as_it_was_typed(elsewhere: Path):
    argv = ["breakdown", "--policy.path=demo", "--iterations=2", "--skip_counting", f"--output_dir={elsewhere}"]
    assert main(argv) == 0
    answer = store.load_answer(next(elsewhere.glob("*_breakdown_demo")))
    assert answer.command == ["strobe", *argv]


@plays
@pytest.mark.slow("a data set is recorded and predicted: the way that the guide goes")
def test_its_data_set_is_recorded_by_a_command_and_fits_it(elsewhere: Path):
    assert main(["record", "--root=button", "--env=metaworld_state", "--episodes=8"]) == 0
    argv = ["preflight", "--policy.path=demo", "--dataset.root=button", "--seconds=5"]
    assert main([*argv, f"--output_dir={elsewhere}"]) == 0
    answer: Any = store.load_answer(next(elsewhere.glob("*_preflight_*")))
    assert answer.open_loop.whole.explained > 0.5
    assert [finding.rule for finding in answer.findings if finding.level == "warning"] == []
