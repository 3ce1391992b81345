"""What a data set's frames say: each planted fault is named in two sizes, its copy is sound, and so is each twin."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from support.builders.stage import DATA, EPISODES, JOINTS, TICKS, Wired, change_json, compute_statistics

from strobe.core.kinds import advise, document
from strobe.core.results.finding import Finding
from strobe.preflight.run import Preflight, preflight, preflight_of_data

STATE = "observation.state"
Plant = Callable[[Wired], Any]


def findings_by_rule(stage: Wired) -> dict[str, Finding]:
    """Serious findings, and those on the data, by rule; without those on the reach, which follows the statistics."""
    every = stage.preflight().findings
    return {each.rule: each for each in every if each.level == "warning" and each.rule != "reach-beyond-limits"}


def set_normalisation(mode: str) -> Plant:
    def plant(stage: Wired) -> None:
        for kind in ("pre", "post"):
            stage.change_modes(kind, mode)

    return plant


def both(stage: Wired, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    for name in ("action", STATE):
        stage.change_vector(name, change)


def averaged_quantiles(times: float) -> Plant:
    """The first episode's motion is so many times as large, and the quantiles of the episodes are averaged."""

    def plant(stage: Wired) -> None:
        both(stage, lambda values, episode: np.where(episode[:, None] == 0, times, 1.0) * np.clip(values, -9, 9))
        set_normalisation("QUANTILES")(stage)
        stage.take_statistics()
        frames = pd.read_parquet(stage.dataset / DATA)

        def average_quantiles(read: dict[str, Any]) -> dict[str, Any]:
            for name in ("action", STATE):
                each = [compute_statistics(np.stack(own[name].to_list())) for _, own in frames.groupby("episode_index")]
                for key in ("q01", "q10", "q50", "q90", "q99"):
                    read[name][key] = np.mean([one[key] for one in each], axis=0).tolist()
            return read

        change_json(stage.dataset / "meta/stats.json", average_quantiles)
        stats = average_quantiles({name: {} for name in ("action", STATE)})
        for kind in ("pre", "post"):
            numbers = {f"{n}.{k}": np.array(v, np.float32) for n in stats for k, v in stats[n].items()}
            stage.change_statistics(kind, lambda tensors, numbers=numbers: tensors | numbers)

    return plant


def scale_statistic(name: str, times: float, joint: int | None = 2) -> Plant:
    """The data set says another number of its state."""

    def plant(stage: Wired) -> None:
        def change_statistic(read: dict[str, Any]) -> dict[str, Any]:
            numbers = read[STATE][name]
            read[STATE][name] = [times * one if joint in (None, at) else one for at, one in enumerate(numbers)]
            return read

        change_json(stage.dataset / "meta/stats.json", change_statistic)

    return plant


def shift_state(ticks: int) -> Plant:
    """The state of a tick is the action ``ticks`` before it."""

    def plant(stage: Wired) -> None:
        frames = pd.read_parquet(stage.dataset / DATA)
        actions = np.stack(frames["action"].to_list()).reshape(EPISODES, TICKS, 6)
        rolled = np.stack([actions[:, min(max(at - ticks, 0), TICKS - 1)] for at in range(TICKS)], axis=1)
        stage.change_vector(STATE, lambda values, _: rolled.reshape(-1, 6))

    return plant


def standing(frames: int) -> Plant:
    def plant(stage: Wired) -> None:
        def still(values: np.ndarray, _: np.ndarray) -> np.ndarray:
            every = values.reshape(EPISODES, TICKS, 6)
            every[:, :frames] = every[:, frames : frames + 1]
            return every.reshape(-1, 6)

        both(stage, still)
        stage.take_statistics()

    return plant


def plant_noisy_joint(noise: float, scale: float = 0.0) -> Plant:
    """One joint stands at 12 with so much noise; or it moves, in a unit of its own (metres)."""

    def plant(stage: Wired) -> None:
        random = np.random.default_rng(0)

        def change_joint(values: np.ndarray, _: np.ndarray) -> np.ndarray:
            values[:, 3] = scale * values[:, 3] if scale else 12 + noise * random.normal(size=len(values)).clip(-1, 1)
            return values

        both(stage, change_joint)
        stage.take_statistics()
        if scale:  # a robot that says no unit
            for name in ("action", STATE):
                stage.connect(name, unit="")

    return plant


def indices(stage: Wired, episodes: tuple[int, ...], off: int) -> None:
    (file,) = (stage.dataset / "meta/episodes").rglob("*.parquet")
    table = pd.read_parquet(file)
    for end in ("dataset_from_index", "dataset_to_index"):
        table[end] = [value + off * (at in episodes) for at, value in enumerate(table[end])]
    table.to_parquet(file)


def plant_nan(count: int) -> Plant:
    def plant(stage: Wired) -> None:
        def set_nan(values: np.ndarray, _: np.ndarray) -> np.ndarray:
            values[7 : 7 + count, 1] = np.nan
            return values

        stage.change_vector(STATE, set_nan)

    return plant


def repeat_first_episode(episodes: tuple[int, ...]) -> Plant:
    """These episodes are the first one again."""

    def plant(stage: Wired) -> None:
        def copy_first_episode(values: np.ndarray, _: np.ndarray) -> np.ndarray:
            every = values.reshape(EPISODES, TICKS, 6)
            every[list(episodes)] = every[0]
            return every.reshape(-1, 6)

        both(stage, copy_first_episode)
        stage.take_statistics()

    return plant


def lower_state_rate(rate: float) -> Plant:
    """The state is read at a part of the loop's rate, and written again in between."""

    def plant(stage: Wired) -> None:
        read = np.floor(np.arange(TICKS) * rate + 1e-9)
        index = np.searchsorted(read, read)
        stage.change_vector(STATE, lambda values, _: values.reshape(EPISODES, TICKS, 6)[:, index].reshape(-1, 6))
        stage.take_statistics()

    return plant


# Name → what is planted, the rules that find it, and words of the finding's `seen` or `title`.
PLANTED: dict[str, tuple[Plant, set[str], tuple[str, ...]]] = {
    "quantiles averaged, one episode five times as wide": (  # lerobot #4156, #3804
        averaged_quantiles(5.0), {"data-statistics-wrong"}, ("q99", "% of the frames are outside ±1, up to")),
    "quantiles averaged, one episode 2.5 times as wide": (
        averaged_quantiles(2.5), {"data-statistics-wrong"}, ("q99", "% of the frames are outside ±1, up to")),
    "mean": (scale_statistic("std", 5.0), {"data-statistics-wrong"}, ("elbow_flex", "std 25 (frames: 4.9")),
    "spread a little off": (scale_statistic("std", 1.15), {"data-statistics-wrong"}, ("elbow_flex", "std 5.75")),
    "the action is the state": (shift_state(0), {"data-motion-copied-state"}, ("In 100 % of the", "same control tick")),
    "the action is an earlier state": (shift_state(-2), {"data-motion-copied-state"}, ("2 control ticks before",)),
    "forty standing frames": (standing(40), {"data-stands-at-starts"}, ("in 3", "% of all frames")),
    "fifteen standing frames": (standing(15), {"data-stands-at-starts"}, ("in 1", "% of all frames")),
    "a joint that stands": (plant_noisy_joint(0.0), {"statistics-flat"}, ("wrist_flex.pos", "1° off is 1e+08 σ")),
    "a joint that jitters": (plant_noisy_joint(0.02), {"statistics-flat"},
                             ("wrist_flex.pos", "1° off is", "almost no range")),
    "an episode's numbers": (
        lambda stage: indices(stage, (1, 3, 5), 119), {"data-index"}, ("99 % of its actions", "3 of 8 episodes")),
    "one episode's numbers, a little": (
        lambda stage: indices(stage, (2,), 6), {"data-index"}, ("5 % of its actions", "1 of 8 episodes")),
    "a state without numbers": (plant_nan(40), {"data-not"}, ("number 1 of observation.state", "39 more")),
    "one number": (plant_nan(1), {"data-not"}, ("number 1 of observation.state",)),
    "an episode three times more": (repeat_first_episode((1, 3, 5)), {"data-copy"},
                                    ("Episode 1 is episode 0 again, also 2 more episodes",)),
    "an episode twice": (repeat_first_episode((4,)), {"data-copy"}, ("Episode 4 is episode 0 again",)),
    "half the rate": (lower_state_rate(0.5), {"data-repeats"}, ("changes at 15 Hz, and the data set says 30 Hz",)),
    "three quarters of the rate": (lower_state_rate(0.75), {"data-repeats"}, ("changes at 22.5 Hz",)),
}  # fmt: skip


@pytest.mark.slow("the first of them makes the data set that all read", each_change=True)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_the_data_is_named(name: str, stage: Wired):
    plant, rules, words = PLANTED[name]
    plant(stage)
    serious = findings_by_rule(stage)
    assert set(serious) == rules
    text = " ".join(f"{each.title} {each.found}" for each in serious.values())
    assert [word for word in words if word not in text] == []
    assert all(each.why and each.do for each in serious.values())


@pytest.mark.parametrize("name", [name for name, each in PLANTED.items() if each[1] & {"data-statistics-wrong",
                                                                                     "data-index"}])  # fmt: skip
def test_the_copy_that_is_named_is_sound(name: str, stage: Wired, tmp_path: Path):
    PLANTED[name][0](stage)
    (finding,) = findings_by_rule(stage).values()
    assert f"--dataset.root={stage.dataset} --fix_data=FOLDER" in finding.do
    preflight(Preflight(stage.policy, stage.dataset, fix_data=tmp_path / "new"))
    stage.dataset = tmp_path / "new"
    assert {each.rule for each in stage.preflight().findings if each.rule.startswith("data-")} == set()


def round_slow_motion(grain: float) -> Plant:
    """Numbers of a slow motion stand where the sensor rounds them; keys that are pressed now and then hold theirs."""
    return lambda stage: both(stage, lambda values, _: np.round(np.clip(values, -9, 9) / grain) * grain)


SOUND: dict[str, Plant] = {
    "baseline": lambda stage: None,
    "its own statistics": Wired.take_statistics,
    "quantiles averaged, episodes alike": averaged_quantiles(1.1),
    "min and max": lambda stage: (stage.take_statistics(), set_normalisation("MIN_MAX")(stage)),
    "an action that the next state repeats": shift_state(1),
    "a slow arm": shift_state(6),
    "five standing frames": standing(5),
    "a sensor that rounds": lambda stage: (round_slow_motion(0.088)(stage), stage.take_statistics()),
    "commands that jump": lambda stage: (round_slow_motion(1.0)(stage), stage.take_statistics()),
    "a joint in metres beside degrees": plant_noisy_joint(0.0, scale=0.002),
}


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_said_of_a_sound_data_set(name: str, stage: Wired):
    SOUND[name](stage)
    result = stage.preflight()
    assert [each for each in result.findings if each.rule != "reach-beyond-limits"] == []
    assert result.wiring.truth is not None
    assert result.wiring.truth.unjudged == []


def test_a_constant_joint_that_the_policy_ignores_is_no_fault(stage: Wired):
    plant_noisy_joint(0.0)(stage)

    def change_state_mode(processor: dict[str, Any]) -> dict[str, Any]:
        for step in processor["steps"]:
            if "norm_map" in step["config"]:
                step["config"]["norm_map"]["STATE"] = "IDENTITY"
        return processor

    change_json(stage.policy / "policy_preprocessor.json", change_state_mode)
    assert findings_by_rule(stage) == {}


@pytest.mark.parametrize(("name", "level"), [("q99", None), ("max", "info"), ("std", "warning")])
def test_statistics_that_the_policy_does_not_read_are_no_serious_fault(name: str, level: str | None, stage: Wired):
    stage.take_statistics()
    scale_statistic(name, 4.0)(stage)
    every = {each.rule: each.level for each in stage.preflight().findings if each.rule.startswith("data-")}
    assert every == ({"data-statistics-wrong": level} if level else {})
    alone = preflight_of_data(stage.dataset)
    levels = [each.level for each in advise(alone) if each.rule == "data-statistics-wrong"]
    assert levels == [{None: "info", "info": "warning", "warning": "warning"}[level]]


@pytest.mark.parametrize("value", [None, float("nan")])
def test_statistics_that_are_not_there_or_no_numbers_are_written_into_the_copy(
    value: float | None, stage: Wired, tmp_path: Path
):
    def spoil_statistics(read: dict[str, Any]) -> dict[str, Any]:
        if value is None:
            del read[STATE]
        else:
            read[STATE]["std"][2] = value
        return read

    change_json(stage.dataset / "meta/stats.json", spoil_statistics)
    serious = findings_by_rule(stage)
    assert "--fix_data=FOLDER" in serious["data-statistics"].do
    preflight(Preflight(stage.policy, stage.dataset, fix_data=tmp_path / "new"))
    assert [each.level for each in advise(preflight_of_data(tmp_path / "new"))] == []


def test_leaving_the_episodes_out_that_are_named_fixes_it(stage: Wired):
    plant_nan(3)(stage)
    finding = findings_by_rule(stage)["data-not"]
    assert "--dataset.episodes=[1,2,3,4,5,6,7]" in finding.do
    result = preflight(Preflight(stage.policy, stage.dataset, episodes=range(1, EPISODES)))
    assert [each.rule for each in advise(result)] == []


def relative(stage: Wired, *, statistics: bool, offset: float, exclude: tuple[str, ...] = ()) -> None:
    """Make the policy take relative actions, with the statistics of these or of absolute ones.

    Args:
        offset: by which the arm's place differs from episode to episode.
    """
    both(stage, lambda values, episode: np.clip(values, -9, 9) + offset * (episode[:, None] - 3.5))
    stage.take_statistics()
    stage.configure(chunk_size=5, n_action_steps=5, action_feature_names=JOINTS)
    config = {"enabled": True, "exclude_joints": list(exclude), "action_names": JOINTS}

    def add(processor: dict[str, Any]) -> dict[str, Any]:
        step = {"registry_name": "relative_actions_processor", "config": config}
        return processor | {"steps": [step, *processor["steps"]]}

    change_json(stage.policy / "policy_preprocessor.json", add)
    if not statistics:
        return
    frames = pd.read_parquet(stage.dataset / DATA)
    chunks = []
    for _, own in frames.groupby("episode_index"):
        actions, states = (np.stack(own[name].to_list()) for name in ("action", STATE))
        mask = np.array([not any(word in joint for word in exclude) for joint in JOINTS])
        chunks += [actions[at : at + 5] - states[at] * mask for at in range(len(own) - 4)]
    made = compute_statistics(np.concatenate(chunks))
    for kind in ("pre", "post"):
        numbers = {f"action.{key}": np.array(values, np.float32) for key, values in made.items()}
        stage.change_statistics(kind, lambda tensors, numbers=numbers: tensors | numbers)


@pytest.mark.parametrize("offset", [30.0, 3.0])
@pytest.mark.parametrize("exclude", [(), ("gripper",)])
def test_a_sound_policy_of_relative_actions_has_no_fault(offset: float, exclude: tuple[str, ...], stage: Wired):
    """As in lerobot #4700: its statistics are of other numbers than the data set's."""
    relative(stage, statistics=True, offset=offset, exclude=exclude)
    assert set(findings_by_rule(stage)) - {"fields-unknown"} == set()


@pytest.mark.slow("a copy of a data set with statistics of relative actions, read again", each_change=True)
@pytest.mark.parametrize("offset", [30.0, 3.0])
def test_relative_actions_with_absolute_statistics_are_named_and_a_copy_has_the_others(
    offset: float, stage: Wired, tmp_path: Path
):
    relative(stage, statistics=False, offset=offset)
    serious = findings_by_rule(stage)
    assert set(serious) - {"fields-unknown"} == {"statistics-absolute"}
    assert "action[t + k] − state[t], k < 5" in serious["statistics-absolute"].found
    assert "--fix_data=FOLDER" in serious["statistics-absolute"].do
    preflight(Preflight(stage.policy, stage.dataset, fix_data=tmp_path / "new"))
    stage.dataset = tmp_path / "new"
    retrain(stage)
    assert set(findings_by_rule(stage)) - {"fields-unknown"} == set()


def retrain(stage: Wired) -> None:
    """The policy is trained again: its processors get the data set's statistics."""
    read = json.loads((stage.dataset / "meta/stats.json").read_text())
    for kind in ("pre", "post"):
        numbers = {
            f"{name}.{key}": np.array(values, np.float32)
            for name in ("action", STATE)
            for key, values in read[name].items()
        }
        stage.change_statistics(kind, lambda tensors, numbers=numbers: tensors | numbers)


@pytest.mark.parametrize("statistics", [True, False])
def test_fix_writes_no_absolute_statistics_for_relative_actions(statistics: bool, stage: Wired, tmp_path: Path):
    relative(stage, statistics=statistics, offset=30.0)
    (file,) = stage.policy.glob("policy_postprocessor*.safetensors")
    before = load_file(file)
    preflight(Preflight(stage.policy, stage.dataset, fix=tmp_path / "fixed"))  # of action_feature_names
    after = load_file(tmp_path / "fixed" / file.name)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_relative_policy_without_statistics_gets_those_of_relative_actions(stage: Wired, tmp_path: Path):
    relative(stage, statistics=True, offset=30.0)
    (file,) = stage.policy.glob("policy_postprocessor*.safetensors")
    before = load_file(file)["action.std"]
    stage.change_statistics("post", lambda tensors: {"other": np.zeros(1, np.float32)})
    preflight(Preflight(stage.policy, stage.dataset, fix=tmp_path / "fixed"))
    np.testing.assert_allclose(load_file(tmp_path / "fixed" / file.name)["action.std"], before, rtol=1e-3)


def test_frames_that_cannot_be_read_are_not_judged(stage: Wired):
    (stage.dataset / DATA).unlink()
    result = stage.preflight()
    assert result.serious
    assert result.wiring.truth is not None
    assert any("is missing" in reason for reason in result.wiring.truth.unjudged)
    assert any("a part of the data set" in text for text in document(result).answers)


def test_a_robot_of_which_nothing_is_known_makes_a_still_joint_a_note(stage: Wired):
    plant_noisy_joint(0.0)(stage)
    result = preflight(Preflight(stage.policy, stage.dataset))
    assert {each.rule: each.level for each in advise(result)} == {"statistics-flat": "info"}


def picture(number: int, change: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    """An image of an arm that has come to place ``number``."""
    import cv2

    image = np.tile(np.linspace(40, 120, 64, dtype=np.uint8)[None, :, None], (64, 1, 3))
    place = number % 48
    image[place : place + 12, 20:32] = 230
    return {"bytes": cv2.imencode(".png", change(image))[1].tobytes(), "path": None}


def draw_camera_images(
    stage: Wired, change: Callable[[int, int], tuple[int, Callable[[np.ndarray], np.ndarray]]]
) -> None:
    """Both cameras see an arm; ``change``: of an episode and a tick, the place that the front one shows, and how."""

    def change_images(frames: pd.DataFrame) -> None:
        pairs = list(zip(frames["episode_index"], frames["frame_index"], strict=True))
        frames["observation.images.wrist"] = [picture(tick, lambda image: image[:, ::-1].copy()) for _, tick in pairs]
        frames["observation.images.front"] = [picture(*change(episode, tick)) for episode, tick in pairs]

    stage.change_frames(change_images)


@pytest.mark.parametrize(
    ("change", "rule", "share"),
    [
        (lambda episode, tick: (0, np.copy), "data-motion-frozen", "100 %"),
        (lambda episode, tick: (0 if episode == 2 and tick > 50 else tick, np.copy), "data-motion-frozen", "12 %"),
        (lambda episode, tick: (0, lambda image: image * 0 + 7), "data-motion-empty", "100 %"),
        (lambda episode, tick: (tick, (lambda image: image * 0) if episode == 2 else np.copy), "data-motion-empty",
         "12 %"),
        (lambda episode, tick: (tick, np.copy), "", ""),
    ],
)  # fmt: skip
def test_a_camera_that_froze_or_shows_nothing_is_named_where_images_are_decoded(
    change: Any, rule: str, share: str, stage: Wired
):
    draw_camera_images(stage, change)
    assert findings_by_rule(stage) == {}
    result = preflight(Preflight(stage.policy, stage.dataset, decode=True))
    assert [each.rule for each in advise(result)] == ([rule] if rule else [])
    assert [share in each.title for each in advise(result)] == ([True] if rule else [])
    if share == "12 %":
        (finding,) = advise(result)
        assert "--dataset.episodes=[0,1,3,4,5,6,7]" in finding.do
        whole = [0, 1, 3, 4, 5, 6, 7]
        assert advise(preflight(Preflight(stage.policy, stage.dataset, decode=True, episodes=whole))) == []


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        ("", "warning", "no task"),
        ("...", "warning", "no task"),
        ("push", "info", "a one-word task"),
        ("push it", "", ""),
    ],
)
def test_a_task_without_words_is_named_for_a_policy_that_reads_them(text: str, level: str, words: str, stage: Wired):
    stage.set_tasks([text])
    assert advise(preflight(Preflight(stage.policy, stage.dataset))) == []

    def reads(processor: dict[str, Any]) -> dict[str, Any]:
        step = {"registry_name": "tokenizer_processor", "config": {"max_length": 48}}
        return processor | {"steps": [step, *processor["steps"]]}

    change_json(stage.policy / "policy_preprocessor.json", reads)
    every = [each for each in advise(preflight(Preflight(stage.policy, stage.dataset))) if "task" in each.rule]
    assert [each.level for each in every] == ([level] if level else [])
    assert all(words in each.title and "100 % of the frames" in each.title for each in every)


@pytest.mark.parametrize("lacking", ["", "std"])
def test_statistics_that_a_camera_lacks_are_written_into_the_copy(lacking: str, stage: Wired, tmp_path: Path):
    front = "observation.images.front"

    def drop_camera_statistic(read: dict[str, Any]) -> dict[str, Any]:
        own = read.pop(front)
        return read | ({front: {key: own[key] for key in own if key != lacking}} if lacking else {})

    draw_camera_images(stage, lambda episode, tick: (tick, np.copy))
    change_json(stage.dataset / "meta/stats.json", drop_camera_statistic)
    assert "--fix_data=FOLDER" in findings_by_rule(stage)["data-statistics"].do
    preflight(Preflight(stage.policy, stage.dataset, fix_data=tmp_path / "new"))
    assert [each.level for each in advise(preflight_of_data(tmp_path / "new")) if each.level == "warning"] == []
    read = json.loads((tmp_path / "new/meta/stats.json").read_text())[front]
    assert np.shape(read["mean"]) == (3, 1, 1)
    assert 0.2 < np.mean(read["mean"]) < 0.5
    assert 0.1 < np.mean(read["std"]) < 0.3
