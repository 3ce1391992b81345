"""A simulator that breaks one convention of its training set is named by that; one that keeps them is not accused."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.fakes.made_up_episodes import RATES
from support.fakes.made_up_simulator import MadeUp, plan, run_evaluation
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.contract import sides
from strobe.contract.compare import FORMS, judge
from strobe.contract.results import Check
from strobe.core.cli.main import main
from strobe.core.demo import CHECKPOINT
from strobe.core.kinds import advise
from strobe.core.runs import store
from strobe.open_loop.results import Learnt, OpenLoop
from strobe.preflight.command import read

made = load_script("conventions", ROOT / "benchmarks" / "planted")
Looked = tuple[sides.Side, sides.Side]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contract") / "pusht"


@pytest.fixture(scope="module")
def pusht(folder: Path) -> Looked:
    made.PUSHT.record(folder, 1000)
    recorded = sides.read_set(folder)
    return recorded, made.look(made.PUSHT, recorded)


@pytest.mark.slow("the first of them records the set and plays it in the simulator", each_change=True)
@pytest.mark.parametrize("plant", [*made.twins(made.PUSHT), *made.plants(made.PUSHT)], ids=lambda plant: plant.name)
def test_in_pusht_the_planted_convention_is_named_and_no_other(plant: Any, pusht: Looked) -> None:
    named = made.judge_plant(made.PUSHT, plant, *pusht)
    assert bool(named) == bool(plant.kinds)
    assert set(named) <= set(plant.kinds)


def move_arm(actions: np.ndarray, *, absolute: bool = False) -> np.ndarray:
    """Return the states of an arm of two axes, whose gripper closes above 0, opens below, and else stands still."""
    states = [np.array([0.0, 0.0, 1.0])]
    for *goal, grip in actions[:-1]:
        place = np.array(goal) if absolute else states[-1][:2] + 0.1 * np.array(goal)
        states.append(np.append(place, np.clip(states[-1][2] - 0.2 * np.sign(grip), 0, 1)))
    return np.array(states)


@pytest.mark.parametrize(
    ("named", "low", "sign", "absolute"),
    [([], -1, 1, False), (["gripper range"], 0, 1, False), (["gripper direction"], -1, -1, False),
     (["action mode"], -1, 1, True)],
)  # fmt: skip
def test_of_an_arm_the_gripper_and_the_mode_are_named(named: list[str], low: int, sign: int, absolute: bool) -> None:
    grip = np.where(np.arange(60) // 15 % 2, 1, -1)
    actions = [np.column_stack([np.random.default_rng(at).normal(size=(60, 2)), grip]) for at in range(12)]
    given = [np.column_stack([each[:, :2], np.maximum(grip, low)]) for each in actions]  # as the data set has them
    bounds, names = np.array([[-3, -3, low], [3, 3, 1]]), (["x", "y", "finger"], ["x", "y", "gripper"])
    recorded = sides.Side(20, ["open it"], {}, [move_arm(each) for each in actions], given, names, bounds)
    states = [move_arm(each * [1, 1, sign], absolute=absolute) for each in given]
    here = replace(recorded, states=states, bounds=bounds * [1, 1, 5])
    assert [each.kind for each in judge(recorded, here) if each.verdict == "differs"] == named


@pytest.mark.parametrize(("theirs", "here"), permutations(FORMS, 2))
def test_another_form_of_the_rotation_is_named_and_another_start_is_not(theirs: str, here: str) -> None:
    random, episodes = np.random.default_rng(0), range(12)
    steps = random.normal(0, 0.04, (12, 40, 3)).cumsum(axis=1) + np.array([1.5, 1.8, 0.3])
    turns = [Rotation.from_rotvec(each) for each in steps]
    places, actions = random.normal([0.4, 0, 1], 0.05, (12, 40, 3)), [random.normal(size=(40, 2)) for _ in episodes]

    def make_side(form: str, off: float = 0.0) -> sides.Side:
        states = [np.hstack([places[at] + off, FORMS[form][3](turns[at])]) for at in episodes]
        names = [f"number {at}" for at in range(states[0].shape[1])]
        return sides.Side(20, [], {}, states, actions, (names, ["a", "b"]), np.array([[-4, -4], [4, 4]]))

    last = 7 if "quaternion" in here else 6
    (named,) = (each for each in judge(make_side(theirs), make_side(here)) if each.verdict == "differs")
    assert (named.kind, named.seen) == ("rotation form", f"dimensions 4 to {last} fit as {theirs} in place of {here}")
    elsewhere = [each.kind for each in judge(make_side(here), make_side(here, off=0.6)) if each.verdict == "differs"]
    assert elsewhere == ["starts"]


def test_what_the_recording_does_not_show_is_not_judged(pusht: Looked) -> None:
    recorded, seen = pusht
    still = [np.full_like(each, 5.0) for each in recorded.actions]
    few = {camera: images[:3] for camera, images in recorded.images.items()}
    plain = {camera: [np.full_like(each, 128) for each in images] for camera, images in recorded.images.items()}
    for changed in (replace(recorded, actions=still), replace(recorded, images=few)):
        verdicts = {each.kind: each.verdict for each in judge(changed, seen)}
        assert "differs" not in verdicts.values()
        assert "not judged" in (verdicts["action scale"], verdicts["image orientation"])
    verdicts = {each.kind: each.verdict for each in judge(replace(recorded, images=plain), replace(seen, images=plain))}
    assert verdicts["image orientation"] == verdicts["image colours"] == "not judged", "an image of one colour"


def test_the_command_shows_the_comparison_and_says_that_the_wiring_is_fine(pusht: Looked, folder: Path, tmp_path: Path):
    argv = ["preflight", f"--dataset.root={folder}", "--env.type=pusht", f"--output_dir={tmp_path}"]
    assert main(argv) == 0
    (run,) = tmp_path.iterdir()
    result: Any = store.load_answer(run)
    assert {"simulator-sound"} <= {each.rule for each in result.findings}
    result.contract.checks[0].verdict = "differs"
    accused = [each for each in advise(result) if each.rule.startswith("simulator-")]
    assert [(each.rule, each.level) for each in accused] == [("simulator-image-orientation", "warning")]
    assert "The simulator against the data set" in (run / "report.html").read_text()
    for moved, level in ((None, "warning"), (0.4, "warning"), (0.001, "info")):  # a policy that does not heed words
        result.open_loop = OpenLoop(learnt=Learnt(simulator_task=moved))
        result.contract.checks = [Check(kind="task in words", of="go", verdict="differs", seen="no task of it")]
        (told,) = (each for each in advise(result) if each.rule == "simulator-task-in-words")
        assert (told.level, f"{moved} σ" in told.found) == (level, moved is not None)


def test_a_simulator_needs_a_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--policy.path=demo", "--env.type=pusht"]) == 2
    assert "--env needs a data set: add --dataset.root=DATA" in capsys.readouterr().err


def test_success_of_five_percent_names_a_command_that_runs_with_the_set_of_the_checkpoint(
    tmp_path_factory: Any,
) -> None:
    result = run_evaluation(tmp_path_factory.mktemp("run"), plan(20), MadeUp(dict.fromkeys(RATES, 0.0)))
    policy, data = (tmp_path_factory.mktemp("all") / name for name in ("policy", "data"))
    shutil.copytree(CHECKPOINT, policy)
    result.command = ["evaluate", f"--policy.path={policy}", "--env.type=pusht", "--steps=5,2"]
    for root, named in ((data, "DATA"), (policy, str(policy))):  # the folder is there, or is not
        (policy / "train_config.json").write_text(json.dumps({"dataset": {"root": str(root)}}))
        (finding,) = (each for each in advise(result) if each.rule == "simulator-not-compared")
        argv = shlex.split(finding.do.removesuffix(" compares the two."))
        assert argv == [
            "strobe", "preflight", f"--policy.path={policy}", "--env.type=pusht", f"--dataset.root={named}",
        ]  # fmt: skip
        assert read(argv[2:]).dataset.root == Path(named)
    well = run_evaluation(tmp_path_factory.mktemp("well"), plan(20), MadeUp()).model_copy(
        update={"command": result.command}
    )
    assert "simulator-not-compared" not in {each.rule for each in advise(well)}
