"""A recording's motion: each planted fault is named in its episodes, its sound twin is not, and the page shows it.

`benchmarks/motion.py` shows the rates, over sizes, robots and seeds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.core.kinds import advise, document, figures
from strobe.lerobot.datasets.numbers import ACTION, STATE, read_numbers
from strobe.lerobot.datasets.recording import read
from strobe.motion.checks import CHECKS, look_at_motion
from strobe.motion.look import Pictures, is_enough, split_groups
from strobe.preflight.findings import data
from strobe.preflight.results.preflight import PreflightResult
from strobe.preflight.run import preflight_of_data

made = load_script("motion", ROOT / "benchmarks" / "planted")
EVERY = list(range(12))
HALF, THIRD = list(range(6, 12)), list(range(0, 12, 3))
# Fault → the episodes that have it at its middle strength; None where the motion decides.
CONCERNED = {
    "level": EVERY, "complement": THIRD, "sign": THIRD, "factor": EVERY, "units": THIRD, "joints exchanged": THIRD,
    "stuck encoder": THIRD, "late actions": list(range(6)), "copied state": EVERY, "spikes": [3, 7], "wraps": None,
    "repeated part": [5],
    "vectors exchanged": [1, 4], "held values": THIRD,
}  # fmt: skip
MIDDLE, STRONG = 1, 2


def preflight_folder(folder: Path, recording: Any) -> PreflightResult:
    result = preflight_of_data(made.write_recording(recording, folder))
    result.findings = advise(result)
    return result


@pytest.mark.parametrize("name", made.PLANTS)
def test_a_planted_fault_is_named_in_its_episodes(name: str):
    check, plant = made.PLANTS[name]
    motion = look_at_motion(plant(made.make_recording(made.DEGREES, 0), MIDDLE).series())
    named = [each for each in motion.found if each.check == check]
    assert named
    assert {each.check for each in motion.found} == {check}
    if CONCERNED[name] is not None:
        assert all(each.episodes == CONCERNED[name] for each in named)
    for each in named:
        assert each.share == pytest.approx(sum(motion.rows[one] for one in each.episodes) / sum(motion.rows.values()))
        assert each.do[-1] == "."
        assert each.why


@pytest.mark.parametrize("name", made.SOUND)
def test_nothing_is_found_in_a_sound_recording(name: str):
    shape, change = made.SOUND[name]
    assert look_at_motion(change(made.make_recording(shape(made.RADIANS), 0)).series()).found == []


def test_every_check_has_a_plant_or_a_test_of_its_own():
    assert {check for check, _ in made.PLANTS.values()} | {"one task"} == {
        check.name for check in CHECKS if check.needs != "pictures"
    }


def test_actions_that_are_no_positions_are_not_judged_against_the_state():
    for name, reason in (("deltas", "no positions"), ("next state", "the state of the next row by construction")):
        motion = look_at_motion(made.SOUND[name][1](made.make_recording(made.DEGREES, 0)).series())
        assert "levels" not in motion.checks
        assert reason in motion.unjudged[0]


def test_a_shift_is_advised_for_the_late_episodes_alone():
    (delays,) = look_at_motion(
        made.PLANTS["late actions"][1](made.make_recording(made.DEGREES, 0), MIDDLE).series()
    ).found
    assert "shift the actions of these episodes alone by 5 ticks forwards" in delays.do
    assert "(--dataset.episodes=[6,7,8,9,10,11])" in delays.do


def test_rows_of_one_task_where_several_are_listed_are_named():
    recording = made.make_recording(made.DEGREES, 0)
    assert [each.check for each in look_at_motion(replace(recording, tasks=2).series()).found] == ["one task"]
    recording.task[3][:] = 1
    assert look_at_motion(replace(recording, tasks=2).series()).found == []


def test_two_faults_are_both_named():
    recording = made.PLANTS["level"][1](made.make_recording(made.DEGREES, 0), STRONG)
    motion = look_at_motion(made.PLANTS["complement"][1](recording, MIDDLE).series())
    assert [(each.check, each.joints) for each in motion.found] == [
        ("polarity", ["gripper.pos"]),
        ("levels", ["shoulder_lift.pos"]),
    ]


@pytest.mark.parametrize(
    ("values", "upper"),
    [
        ([0, 0.1, 0, 5, 5.1, 5], [False, False, False, True, True, True]),
        ([0, 0.1, 0, 0.2, 5], None),  # one episode is no group
        ([0, 1, 2, 3, 4, 5, 6], None),  # a wide one
        ([0, 0.1, 0, 1, 1.1, 1], None),  # nearer than 2
        ([np.nan] * 6, None),
    ],
)
def test_episodes_are_two_groups_only_where_a_gap_says_so(values: list[float], upper: list[bool] | None):
    groups = split_groups(np.array(values), 2.0)
    assert (groups[0].tolist() if groups is not None else None) == upper


def test_one_episode_of_many_is_no_fault_of_the_recording():
    judged = np.ones(12, bool)
    assert not is_enough(np.arange(12) == 3, judged)
    assert is_enough(np.arange(12) < 2, judged)
    assert is_enough(judged[:1], judged[:1])


def test_a_sound_set_has_no_fault_and_a_word_on_what_it_cannot_show(tmp_path: Path):
    result = preflight_folder(tmp_path / "sound", made.make_recording(made.DEGREES, 0))
    said = document(result).answers
    assert result.findings == []
    motion = result.wiring.motion
    assert motion is not None
    assert said[0] == f"No fault found by {len(data.CHECKS) - 1 + len(motion.checks)} checks of the data set alone."
    assert "cannot show" in " ".join(said)


def test_a_fault_reaches_the_findings_and_the_page(tmp_path: Path):
    recording = made.PLANTS["level"][1](made.make_recording(made.DEGREES, 0), STRONG)
    recording = made.PLANTS["spikes"][1](recording, STRONG)
    result = preflight_folder(tmp_path / "odd", recording)
    rules = {each.rule: each for each in result.findings}
    assert set(rules) == {"data-motion-levels", "data-motion-spikes"}
    assert "16" in rules["data-motion-levels"].title
    assert document(result).answers[0] == "Fix the data set first: it has 2 faults."
    section = next(each for each in document(result).sections if each.key == "motion")
    assert section.table is not None
    assert [row.cells[0] for row in section.table.rows] == ["3", "7"]
    assert section.text[0].startswith("In each episode: shoulder_lift.pos stands 16")
    titles = [plot.title for plot in figures(result)["motion"]]
    assert "Where the joints rest, against their commands" in titles
    assert f"{STATE}: wrist_flex.pos in episode 3" in titles


def test_a_set_without_names_and_one_without_a_state_are_read(tmp_path: Path):
    series = made.make_recording(made.DEGREES, 0).series()
    numbered = {name: [f"number {at}" for at in range(6)] for name in (ACTION, STATE)}
    flipped = series.vectors | {STATE: np.where(np.arange(6) == 3, -1, 1) * series.vectors[STATE]}
    motion = look_at_motion(replace(series, names=numbered, vectors=flipped, means={}))
    assert [(each.check, each.joints) for each in motion.found] == [("polarity", ["number 3"])]
    alone = look_at_motion(replace(series, vectors={ACTION: series.vectors[ACTION]}))
    assert alone.found == []
    assert alone.unjudged == ["the action against the state: action and state have no dimension of the same name"]


# Images.


@pytest.fixture(scope="module")
def plain() -> Any:
    return made.make_recording(made.DEGREES, 5, 6)


@pytest.mark.slow("encodes and decodes videos")
@pytest.mark.parametrize(
    ("cameras", "rules"),
    [
        ([{}], {}),
        ([{"late": 20}], {"data-motion-image-lag": "20"}),
        ([{"more": 30}], {"data-motion-images-behind": "30 images more of front are behind each episode's rows"}),
        ([{"blind": True}], {}),
        ([{}, {"name": "wrist"}], {"data-motion-cameras": "show the same image"}),
        ([{}, {"name": "wrist", "bright": 120}], {}),
    ],
)
def test_images_are_held_against_rows(cameras: list[dict], rules: dict[str, str], plain: Any, tmp_path: Path):
    root = made.write_recording(plain, tmp_path / "filmed")
    made.film(plain, root, *(made.Camera(**{"name": "front", **each}) for each in cameras))
    result = preflight_of_data(root, decode=True)
    found = {each.rule: each for each in advise(result)}
    assert set(found) == set(rules)
    for rule, words in rules.items():
        assert words in found[rule].title
    assert "Images against rows in time" in [plot.title for plot in figures(result)["motion"]]


def make_pictures(series: Any, late: dict[int, int], other: tuple[int, ...] = ()) -> Pictures:
    """Images that change as the joints move, ``late`` ticks later by episode, and two cameras of other brightness."""
    found = Pictures(changes={"front": {}}, first={"front": {}, "wrist": {}})
    moves = np.append(0, np.abs(np.diff(series.vectors[STATE], axis=0)).sum(axis=1))
    for at, (start, end) in enumerate(series.bounds):
        found.changes["front"][at] = 1 + np.roll(moves[start + 1 : end], late.get(at, 0))
        for place, camera in enumerate(("front", "wrist")):
            grey = 60 + 100 * (place if at not in other else 1 - place)
            found.first[camera][at] = np.full((48, 64, 3), float(grey))
    return found


def test_cameras_that_change_places_are_named_in_their_episodes(plain: Any):
    pictures = make_pictures(plain.series(), {}, other=(1, 4))
    (found,) = look_at_motion(plain.series(), decoded=pictures).found
    assert (found.check, found.episodes) == ("cameras", [1, 4])
    assert "are exchanged" in found.title


@pytest.mark.parametrize("late", [-25, 12])
def test_a_lag_is_measured_with_its_sign(late: int, plain: Any):
    (found,) = look_at_motion(
        plain.series(), decoded=make_pictures(plain.series(), dict.fromkeys(range(6), late))
    ).found
    assert f"are {abs(late)}" in found.title
    assert ("behind" if late > 0 else "ahead of") in found.title


def test_lags_that_differ_from_episode_to_episode_are_given_one_by_one(plain: Any):
    late = {at: 15 * at for at in range(6)}
    (found,) = look_at_motion(plain.series(), decoded=make_pictures(plain.series(), late)).found
    assert "by another time in each episode" in found.title
    assert "+45 in episode 3" in found.found
    assert found.episodes == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", ["wraps", "spikes"])
def test_a_fixed_copy_has_none_of_them_and_no_other_number_changed(fault: str, tmp_path: Path):
    whole = made.PLANTS[fault][1](made.make_recording(made.DEGREES, 0), MIDDLE)
    root, fixed = made.write_recording(whole, tmp_path / "data"), tmp_path / "fixed"
    result = preflight_of_data(root, fixed)
    assert any(line.startswith("data/: ") for line in result.fixed)
    after = preflight_of_data(fixed).wiring
    assert after.motion is not None
    assert after.truth is not None
    assert (after.motion.found, after.truth.faults) == ([], [])
    assert [vector.differing() for vector in after.truth.vectors] == [{}] * len(after.truth.vectors)
    old, new = (read_numbers(read(folder)).vectors for folder in (root, fixed))
    for name, values in old.items():
        moved = new[name].astype(float) - values
        if fault == "wraps":
            assert np.allclose(moved / 360, np.round(moved / 360), atol=1e-5)
        else:
            assert 0 < (moved != 0).sum() <= 3 * 2 or name == ACTION
        assert (moved != 0).any(axis=0).sum() <= 1, "one joint"
    apart = new[STATE].astype(float) - new[ACTION]
    assert np.abs(np.median(apart, axis=0)).max() < 5, "action and state are in one turn"
