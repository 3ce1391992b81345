"""Open loop and hypotheses on a policy that is a formula: each planted miswiring is named, and nothing else ever."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.builders.turning_arm import ACTION, STATE, TOP, WRIST, Frames, Ticks, recording, subject

from strobe.lerobot.policies.recorded_actions import spread_frames
from strobe.open_loop import predictions
from strobe.open_loop import run as open_loop
from strobe.open_loop.results import Hypothesis, OpenLoop

LOOK = open_loop.Frames(Path("unused"), seconds=120.0, most=16)  # enough to claim what was planted
MORE = open_loop.Frames(Path("unused"), seconds=120.0, most=32)  # of which nothing may be claimed
RADIANS = np.array([np.pi / 180] * 3 + [1])
Change = Callable[[Ticks], Ticks]


def judge_frames(frames: Frames, stats: dict | None = None, look: open_loop.Frames = LOOK, **settings: object):
    return open_loop.judge_subject(subject(frames, stats, **settings), look, lambda _: None)


def claims(hypotheses: list[Hypothesis]) -> list[str]:
    return [each.name for each in hypotheses if each.outcome == "claimed"]


def each(key: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda ticks: ticks | {key: change(ticks[key]).astype(np.float32)}


def both(*changes: Change) -> Change:
    def change(ticks: Ticks) -> Ticks:
        for one in changes:
            ticks = one(ticks)
        return ticks

    return change


def make_mirror(dimension: int, total: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values[:, dimension] = total - values[:, dimension]
        return values

    return change


def later(by: int) -> Change:
    return lambda ticks: {key: value[by:] if key == ACTION else value[:-by] for key, value in ticks.items()}


def earlier(by: int) -> Change:
    return lambda ticks: {key: value[:-by] if key == ACTION else value[by:] for key, value in ticks.items()}


PLANTS: dict[str, tuple[Change, str, str]] = {
    "cameras": (lambda t: t | {TOP: t[WRIST], WRIST: t[TOP]}, "the cameras top and wrist are swapped", "rename_map"),
    "channels": (both(*(each(key, lambda v: v[:, ::-1]) for key in (TOP, WRIST))),
                 "the images' channels are in the other order (RGB and BGR)", "color_mode"),
    "bright": (both(*(each(key, lambda v: v * 255) for key in (TOP, WRIST))),
               "the images are 255 times too bright", "255"),
    "dark": (both(*(each(key, lambda v: v / 255) for key in (TOP, WRIST))),
             "the policy takes images from 0 to 255, not 0 to 1", "255"),
    "state order": (each(STATE, lambda v: v[:, [1, 0, 2, 3]]), "in the state, pan and lift are swapped",
                    "observation.state"),
    "state reversed": (each(STATE, lambda v: v[:, ::-1]), "in the state, the order is reversed", "observation.state"),
    "action order": (each(ACTION, lambda v: v[:, [2, 0, 1, 3]]),
                     "the action's dimensions are in another order: wrist as pan, pan as lift, lift as wrist",
                     "the order lift, wrist, pan, gripper: use it"),
    "order": (both(each(STATE, lambda v: v[:, ::-1]), each(ACTION, lambda v: v[:, ::-1])),
              "in state and action, the order is reversed", "gripper, wrist, lift, pan"),
    "radians": (both(each(STATE, lambda v: v * RADIANS), each(ACTION, lambda v: v * RADIANS)),
                "state and action should be in degrees, not in radians", "use_degrees"),
    "state in radians": (each(STATE, lambda v: v * RADIANS), "the state should be in degrees, not in radians",
                         "use_degrees"),
    # lerobot #2753, #1424, #4047: a reversed gripper
    "gripper": (each(ACTION, make_mirror(3, 100)), "gripper is reversed", "gripper"),
    "sign": (each(ACTION, make_mirror(0, 0)), "pan has the other sign", "pan"),
    "relative": (lambda t: t | {ACTION: t[ACTION] - t[STATE]},
                 "this data's actions are relative to the state, the policy's are absolute", "absolute"),
    "later": (later(2), "the policy predicts the actions recorded 2 control ticks earlier", "tick"),
    "earlier": (earlier(1), "the policy predicts the actions recorded 1 control tick later", "tick"),
    "half the rate": (lambda t: {key: value[::2] for key, value in t.items()},
                      "the policy was trained at twice the rate of this data", "--fps"),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTS)
def test_a_planted_miswiring_is_named_with_how_to_fix_it(planted: str) -> None:
    change, name, fix = PLANTS[planted]
    result, hypotheses = judge_frames(recording(change))
    assert claims(hypotheses) == [name]
    first = hypotheses[0]
    assert fix in (first.fix or "")
    assert result.whole is not None
    assert (first.explained or 0) > 0.9
    assert (first.explained or 0) > result.whole.explained


def test_a_field_is_named_only_where_the_config_has_it() -> None:
    change = PLANTS["action order"][0]
    _, hypotheses = judge_frames(recording(change))
    assert "config.json" not in (hypotheses[0].fix or "")  # LeRobot would refuse the checkpoint
    named = subject(recording(change), None)
    config: Any = named.policy.config
    config.action_feature_names = None
    _, hypotheses = open_loop.judge_subject(named, LOOK, lambda _: None)
    assert '"action_feature_names": ["lift", "wrist", "pan", "gripper"]' in (hypotheses[0].fix or "")


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        ((ACTION,), "the action should be normalised with this data's statistics"),
        ((STATE,), "the state should be normalised with this data's statistics"),
        ((STATE, ACTION), "state and action should be normalised with this data's statistics"),
    ],
)
def test_a_normaliser_without_statistics_is_seen_in_the_actions(missing: tuple[str, ...], name: str) -> None:
    stats = {key: value for key, value in recording().meta.stats.items() if key not in missing} | {"other": {}}
    _, hypotheses = judge_frames(recording(), stats)
    assert claims(hypotheses) == [name]
    assert "--fix" in (hypotheses[0].fix or "")


def test_statistics_of_other_data_are_seen_in_the_actions() -> None:
    stats = {key: {of: np.asarray(value) * 1.7 + 9 for of, value in each.items()}
             for key, each in recording().meta.stats.items()}  # fmt: skip
    _, hypotheses = judge_frames(recording(), stats)
    assert claims(hypotheses) == ["state and action should be normalised with this data's statistics"]


@pytest.mark.parametrize("first", [0, 100, 200])
def test_a_sound_policy_explains_the_data_and_nothing_is_claimed(first: int) -> None:
    result, hypotheses = judge_frames(recording(first=first), look=MORE)
    assert claims(hypotheses) == []
    part = result.whole
    assert part is not None
    assert part.explained > 0.95
    assert [each.paired.smaller for each in part.naive if each.paired is not None] == [True, True, True]


def test_a_policy_that_explains_nothing_claims_nothing() -> None:
    random = np.random.default_rng(0)
    frames = recording(each(ACTION, lambda values: random.normal(size=values.shape) * 20))
    result, hypotheses = judge_frames(frames, look=MORE)
    assert hypotheses
    # Of these, actions relative to the state would be explained by the state itself: it takes more than to hold still.
    assert claims(hypotheses) == []
    assert result.whole is not None
    assert result.whole.explained < 0


def test_of_an_input_that_the_policy_does_not_look_at_nothing_is_claimed() -> None:
    _, hypotheses = judge_frames(recording(PLANTS["channels"][0]), look=MORE, blind=True)
    assert claims(hypotheses) == []
    assert {each.outcome for each in hypotheses if each.kind in ("channels", "cameras")} == {"not looked at"}


def test_with_fewer_than_four_episodes_nothing_is_judged_and_it_says_how_many_it_takes() -> None:
    result, hypotheses = judge_frames(recording(PLANTS["cameras"][0], episodes=3), look=MORE)
    assert {each.outcome for each in hypotheses} == {"not judged"}
    assert "4 episodes" in (result.unjudged or "")
    assert any("it needs 4 episodes, and has 3" in (each.why or "") for each in hypotheses)


def test_episodes_that_were_held_out_stand_beside_the_others() -> None:
    look = open_loop.Frames(Path("unused"), seconds=120.0, most=32, held_out=[6, 7])
    result, _ = judge_frames(recording(), look=look)
    assert [(part.name, part.episodes) for part in result.parts] == [("all", 8), ("training", 6), ("held out", 2)]


def test_errors_are_in_spreads_and_strips_in_the_actions_own_units() -> None:
    frames = recording()
    result, _ = judge_frames(frames)
    pan = result.dimensions[0]
    assert pan.name == "pan"
    assert pan.spread == pytest.approx(float(frames.whole[ACTION][:, 0].std()))
    assert pan.rms == pytest.approx(0.03 * 60 / pan.spread, rel=0.2)
    strip = result.strips[0]
    assert np.abs(strip.recorded[0]).max() > 40
    chunk = strip.chunks[0]
    assert chunk.values[0][0] == pytest.approx(strip.recorded[0][chunk.tick], abs=8)


def test_ctrl_c_keeps_the_frames_that_were_looked_at() -> None:
    def press(progress: object) -> None:
        if progress.done == 12:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    result, hypotheses = open_loop.judge_subject(subject(recording()), LOOK, press)
    assert result.stopped
    assert result.frames == 12
    assert hypotheses


def test_where_calls_take_long_changes_of_inputs_are_not_judged_and_it_says_what_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from strobe.open_loop import predictions

    clock = iter(np.arange(0, 1e6, 2.0))
    monkeypatch.setattr(predictions.time, "monotonic", lambda: next(clock))
    result, hypotheses = judge_frames(recording(), look=open_loop.Frames(Path("unused"), seconds=150.0, most=32))
    assert result.frames >= 8
    outcomes = {each.kind: each for each in hypotheses}
    assert "--seconds=" in (outcomes["channels"].why or "")
    assert outcomes["sign"].outcome == "not better"


def test_a_camera_of_another_size_is_left_out_with_its_reason() -> None:
    frames = recording()
    made = subject(frames)
    plain = made.act

    def refuse(observation: dict, seed: int):
        if torch.equal(observation[TOP], frames.observation(seed)[WRIST]):
            raise ValueError("sizes differ")
        return plain(observation, seed)

    made.act = refuse  # type: ignore[method-assign]
    _, hypotheses = open_loop.judge_subject(made, LOOK, lambda _: None)
    (swapped,) = [each for each in hypotheses if each.kind == "cameras"]
    assert swapped.outcome == "not judged"
    assert "sizes differ" in (swapped.why or "")


def test_frames_are_looked_at_in_turn() -> None:
    episodes = np.repeat([3, 5, 9], [10, 4, 7])
    chosen = spread_frames(episodes, 12)
    assert len(set(chosen)) == 12
    assert sorted(episodes[chosen[:3]]) == [3, 5, 9]
    assert len(spread_frames(episodes, 100)) == 21


def test_an_answer_survives_json() -> None:
    result, hypotheses = judge_frames(recording())
    assert OpenLoop.model_validate_json(result.model_dump_json()) == result
    assert [Hypothesis.model_validate_json(each.model_dump_json()) for each in hypotheses] == hypotheses


def test_the_time_of_a_call_is_that_of_calls_as_the_policy_is_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own: the call that warms up takes long, and reading a frame takes none of it."""
    now = [0.0]
    real = predictions._Work._predict_actions
    durations = itertools.chain([60.0], itertools.repeat(0.25))

    def predict_slowly(self: predictions._Work, seen: dict, frame: int) -> np.ndarray:
        now[0] += next(durations)
        return real(self, seen, frame)

    monkeypatch.setattr(predictions._Work, "_predict_actions", predict_slowly)
    monkeypatch.setattr(predictions, "time", SimpleNamespace(monotonic=lambda: now[0]))
    result, _ = judge_frames(recording(), look=open_loop.Frames(Path("unused"), seconds=1000.0, most=6))
    assert result.call_ms == pytest.approx(250.0)
