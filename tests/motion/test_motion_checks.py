"""A recording's motion: each planted fault is named in its episodes, its sound twin is not, and the page shows it.

`benchmarks/motion.py` shows the rates, over sizes, robots and seeds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.core.errors import UserError
from strobe.core.kinds import advise, document, figures
from strobe.lerobot.datasets.numbers import ACTION, STATE, read_numbers
from strobe.lerobot.datasets.recording import read
from strobe.motion.checks import CHECKS, look_at_motion
from strobe.motion.look import is_enough, split_groups
from strobe.preflight.findings import data
from strobe.preflight.results.wiring import PreflightResult
from strobe.preflight.run import preflight_of_data

made, pictures = (load_script(name, ROOT / "benchmarks" / "planted") for name in ("motion", "pictures"))
EVERY = list(range(12))
HALF, THIRD = list(range(6, 12)), list(range(0, 12, 3))
# Fault → the episodes that have it at its middle strength; None where the motion decides.
CONCERNED = {
    "level": EVERY, "complement": THIRD, "sign": THIRD, "factor": EVERY, "units": THIRD, "joints exchanged": THIRD,
    "stuck encoder": THIRD, "late actions": list(range(6)), "copied state": EVERY, "spikes": [3, 7], "wraps": None,
    "repeated part": [5],
    "vectors exchanged": [1, 4], "held values": THIRD, "encoder slips": THIRD,
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
        assert (each.do[-1], bool(each.why)) == (".", True)


def test_no_advice_costs_most_of_a_set():
    planted = made.PLANTS["factor"][1](made.make_recording(made.DEGREES, 3), MIDDLE)
    (factor,) = look_at_motion(planted.series()).found
    assert 6 < len(factor.episodes) < 12
    assert "--dataset.episodes" not in factor.do


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
    assert alone.unjudged[0] == "the action against the state: action and state have no dimension of the same name"


def test_speeds_are_judged_where_the_servos_are_known():
    slip = made.PLANTS["encoder slips"][1]
    (found,) = look_at_motion(slip(made.make_recording(made.DEGREES, 0), MIDDLE).series()).found
    assert "A STS3215 turns at 312 °/s" in found.found
    other = look_at_motion(slip(made.make_recording(replace(made.DEGREES, kind="stretch"), 0), MIDDLE).series())
    assert ("speeds" in other.checks, "robot_type" in other.unjudged[0]) == (False, True)


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
        ([{"blind": True}, {"name": "wrist", "blind": True, "bright": 120, "late": 20}],
         {"data-motion-cameras-in-time": "The images of wrist are 20 frames"}),
        ([{}, {"name": "wrist", "bright": 120}], {}),
    ],
)  # fmt: skip
def test_images_are_held_against_rows(cameras: list[dict], rules: dict[str, str], plain: Any, tmp_path: Path):
    root = made.write_recording(plain, tmp_path / "filmed")
    made.film(plain, root, *(made.Camera(**{"name": "front", **each}) for each in cameras))
    result = preflight_of_data(root, decode=True)
    found = {each.rule: each for each in advise(result)}
    assert set(found) == set(rules)
    for rule, words in rules.items():
        assert words in found[rule].title
    assert "Images against rows in time" in [plot.title for plot in figures(result)["motion"]]


@pytest.mark.parametrize("name", pictures.PICTURE_PLANTS)
def test_a_fault_that_is_planted_into_pictures_is_named(name: str):
    checks, views = pictures.PICTURE_PLANTS[name]
    recording = made.make_recording(made.DEGREES, 0)
    decoded = pictures.make_pictures(recording, 0, *views(recording, STRONG))
    found = look_at_motion(recording.series(), decoded=decoded).found
    assert {each.check for each in found} <= checks
    assert found
    if "light" in checks:
        assert all(each.episodes == THIRD and "darker" in each.title for each in found)
    else:
        assert "40 frames" in found[0].title


@pytest.mark.parametrize("name", pictures.SOUND_PICTURES)
def test_nothing_is_found_in_sound_pictures(name: str):
    recording = made.make_recording(made.DEGREES, 1)
    decoded = pictures.make_pictures(recording, 1, *pictures.SOUND_PICTURES[name])
    motion = look_at_motion(recording.series(), decoded=decoded)
    assert motion.found == []
    assert {"light", "cameras in time"} <= set(motion.checks)


def test_cameras_that_change_places_are_named_in_their_episodes(plain: Any):
    views = pictures.SOUND_PICTURES["two that see another motion"]
    decoded = pictures.make_pictures(plain, 0, *views)
    for at in (1, 4):
        for one, two in ((0, 1), (1, 0)):
            decoded.first[views[one].name][at] = decoded.first[views[two].name][0]
    (found,) = look_at_motion(plain.series(), decoded=decoded).found
    assert (found.check, found.episodes) == ("cameras", [1, 4])
    assert "are exchanged" in found.title


@pytest.mark.parametrize("late", [-25, 12])
def test_a_lag_is_measured_with_its_sign(late: int, plain: Any):
    decoded = pictures.make_pictures(plain, 0, pictures.View("front", late=late))
    (found,) = look_at_motion(plain.series(), decoded=decoded).found
    assert f"are {abs(late)}" in found.title
    assert ("behind" if late > 0 else "ahead of") in found.title


def test_lags_that_differ_from_episode_to_episode_are_given_one_by_one(plain: Any):
    each = [pictures.make_pictures(plain, 0, pictures.View("front", late=15 * at)) for at in range(6)]
    each[0].changes["front"] = {at: one.changes["front"][at] for at, one in enumerate(each)}
    (found,) = look_at_motion(plain.series(), decoded=each[0]).found
    assert "by another time in each episode" in found.title
    assert "+45 in episode 3" in found.found
    assert found.episodes == [1, 2, 3, 4, 5]


def test_a_copy_in_one_unit_has_the_numbers_of_before_the_mix(tmp_path: Path):
    sound = made.make_recording(made.DEGREES, 0)
    sound = replace(sound, action=[np.round(one * 4096 / 360) * 360 / 4096 for one in sound.action])  # an encoder's
    mixed = made.PLANTS["units"][1](sound, MIDDLE)
    result = preflight_of_data(made.write_recording(mixed, tmp_path / "data"), tmp_path / "fixed")
    assert "episodes 0, 3, 6 and 9 times 57.2958, exact but for rounding" in " ".join(result.fixed)
    new = read_numbers(read(tmp_path / "fixed")).vectors
    for name, values in sound.series().vectors.items():
        assert np.allclose(new[name], values, rtol=1e-6, atol=1e-5)
    odd = replace(mixed, action=[one * (1.7 if at % 3 == 0 else 1) for at, one in enumerate(mixed.action)])
    refused = preflight_of_data(made.write_recording(odd, tmp_path / "odd"), tmp_path / "new")
    assert refused.unfixed == "action is in two units, and the factor between them is not known exactly"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("off", "fixed"), [(0.2, True), (0.7, False)])
def test_a_copy_has_even_times_where_each_row_is_nearest_to_its_own(off: float, fixed: bool, tmp_path: Path):
    root = made.write_recording(made.make_recording(made.DEGREES, 0), tmp_path / "data")
    file = root / "data/chunk-000/file-000.parquet"
    rows = pd.read_parquet(file)
    rows["timestamp"] += np.where(rows.index % 7 == 3, off / 30, 0).astype(np.float32)
    rows.to_parquet(file)
    if not fixed:
        with pytest.raises(UserError, match="already match"):
            preflight_of_data(root, tmp_path / "fixed")
        return
    (finding,) = advise(preflight_of_data(root))
    assert (finding.rule, "--fix_data" in finding.do) == ("data-timestamps", True)
    assert "exactly" in " ".join(preflight_of_data(root, tmp_path / "fixed").fixed)
    assert advise(preflight_of_data(tmp_path / "fixed")) == []


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
