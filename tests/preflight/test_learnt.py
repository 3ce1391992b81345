"""The look at a policy's learning: policies by a formula that lack one thing each, and sound ones without a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.builders.modeling_turning_arm import CENTRES, SIZES
from support.builders.turning_arm import STATE, TOP, WRIST, recording, subject

from strobe.core.findings.thresholds import Thresholds
from strobe.lerobot.policies.recorded_actions import RecordedActions
from strobe.open_loop import run as open_loop
from strobe.open_loop.hypotheses import match_recorded_actions
from strobe.open_loop.learnt import learn
from strobe.open_loop.predictions import Predictions
from strobe.preflight.findings import preflight as rules
from strobe.preflight.results.wiring import PreflightResult, Prompt, Wiring
from strobe.preflight.run import make_answer

LOOK = open_loop.Frames(Path("unused"), seconds=120.0, most=16)
CHUNK = 10
Act = Callable[[dict[str, Any], int], torch.Tensor]


def answer(loop: open_loop.OpenLoop, tasks: tuple[str, ...] = ("turn",)) -> PreflightResult:
    prompt = Prompt(reads_words=True, tasks=list(tasks))
    wiring = Wiring(policy="turning_arm", sources={"policy": "it"}, wires=[], prompt=prompt)
    result = make_answer(wiring)
    result.open_loop = loop
    return result


def find(result: PreflightResult) -> dict[str, Any]:
    found = [each for rule in rules.RULES for each in rule(result, Thresholds())]
    return {each.rule: each for each in found if each.rule.startswith("learnt")}


def judge(change: Callable[[Act], Act] = lambda act: act, **settings: Any) -> dict[str, Any]:
    made: Any = subject(recording(), **settings)
    made.act = change(made.act)
    return find(answer(open_loop.judge_subject(made, LOOK, lambda _: None)[0]))


@pytest.mark.parametrize("heeds", [True, False])
def test_how_far_a_simulators_words_move_the_actions_is_measured(heeds: bool) -> None:
    made: Any = subject(recording())
    act = made.act
    made.act = lambda seen, seed: act(seen, seed) + (heeds and seen["task"] == "wave at the cat")
    loop, _ = open_loop.judge_subject(made, replace(LOOK, task="wave at the cat"), lambda _: None)
    assert loop.learnt is not None
    assert loop.learnt.looks_at_simulator_task == heeds


def freeze(*inputs: str) -> Callable[[Act], Act]:
    """The policy sees the first frame's ``inputs``, whatever it is given."""

    def change(act: Act) -> Act:
        first: dict[str, Any] = {}

        def call(seen: dict[str, Any], seed: int) -> torch.Tensor:
            first.update(first or seen)
            return act(seen | {name: first[name] for name in inputs}, seed)

        return call

    return change


def hold_still(act: Act) -> Act:
    def call(seen: dict[str, Any], seed: int) -> torch.Tensor:
        chunk = act(seen, seed)
        return seen[STATE][:, None].expand_as(chunk) + 0.02 * (chunk - seen[STATE][:, None])

    return call


def test_nothing_is_said_of_a_sound_policy():
    assert judge() == {}


@pytest.mark.parametrize(("noise", "found"), [(1.0, {"learnt-one-chunk"}), (0.3, set())])
def test_a_policy_that_draws_its_actions_from_noise_is_named(noise: float, found: set[str]):
    def change(act: Act) -> Act:
        def call(seen: dict[str, Any], seed: int) -> torch.Tensor:
            chunk, random = act(seen, seed), torch.Generator().manual_seed(seed)
            drawn = SIZES * torch.randn(chunk.shape, generator=random) + CENTRES
            return drawn if noise == 1.0 else chunk + noise * (drawn - CENTRES)

        return call

    assert set(judge(change)) == found


def test_one_chunk_for_all_is_said_and_not_blamed_on_the_data():
    found = judge(freeze(STATE, TOP, WRIST))
    assert set(found) == {"learnt-one-chunk"}
    assert "differ by 0 σ" in found["learnt-one-chunk"].found
    made: Any = subject(recording())
    made.act = freeze(STATE, TOP, WRIST)(made.act)
    result = answer(open_loop.judge_subject(made, LOOK, lambda _: None)[0])
    assert "open-loop-explains-nothing" not in {
        each.rule for rule in rules.RULES for each in rule(result, Thresholds())
    }


@pytest.mark.parametrize(
    ("inputs", "words"), [((TOP, WRIST), "any camera"), ((WRIST,), WRIST), ((STATE,), STATE)]
)  # fmt: skip
def test_an_input_that_moves_nothing_is_named(inputs: tuple[str, ...], words: str):
    found = judge(freeze(*inputs))
    assert [(each.rule, each.level) for each in found.values()] == [("learnt-ignores", "warning")]
    assert words in found["learnt-ignores"].title


def test_a_policy_that_sends_its_state_is_named():
    assert "learnt-holds-still" in judge(hold_still)


def loop_of_gripper(caught: Callable[[int], bool], episodes: int = 10) -> open_loop.OpenLoop:
    """A recording whose gripper closes once in each episode, and a policy that closes it in those ``caught``."""
    ticks = 40
    arm = np.sin(np.arange(episodes * ticks) / 7)
    closed = np.tile(np.arange(ticks) >= ticks // 2, episodes).astype(float)
    number = np.repeat(np.arange(episodes), ticks)
    recorded = RecordedActions(np.stack([arm, closed], axis=1), None, number, ["arm", "gripper"], [])
    frames = [start + ticks // 2 - 5 for start in range(0, episodes * ticks, ticks)]
    frames += [start + 2 for start in range(0, episodes * ticks, ticks)]
    chunks = np.stack([recorded.actions[frame : frame + CHUNK] for frame in frames])
    for chunk, frame in zip(chunks, frames, strict=True):
        if not caught(number[frame]):
            chunk[:, 1] = chunk[0, 1]
    data = match_recorded_actions(recorded, Predictions(frames, chunks))
    loop = open_loop.summarise(data, [], 30.0)
    loop.learnt = learn(data, CHUNK)
    return loop


def test_a_gripper_that_is_missed_is_named_and_hidden_by_no_mean():
    loop = loop_of_gripper(lambda number: number == 0)
    assert loop.learnt is not None
    assert [(each.name, each.changes, each.caught) for each in loop.learnt.switches] == [("gripper", 10, 1)]
    (found,) = find(answer(loop)).values()
    assert found.rule == "learnt-misses-switch"
    assert "R² of the other dimensions: 1.00" in found.found


@pytest.mark.parametrize("episodes", [10, 3])
def test_a_gripper_that_is_caught_mostly_or_seen_too_seldom_is_not_named(episodes: int):
    caught = (lambda number: number % 3 > 0) if episodes > 4 else (lambda number: False)
    assert find(answer(loop_of_gripper(caught, episodes))) == {}


def test_what_a_policy_need_not_look_at_is_a_note_and_a_prompt_counts_where_there_are_several_tasks():
    made: Any = subject(recording())
    loop = open_loop.judge_subject(made, LOOK, lambda _: None)[0]
    assert loop.learnt is not None
    assert loop.learnt.steps == [], "positions are no steps"
    loop.learnt.inputs[0] = loop.learnt.inputs[0].model_copy(update={"name": "task", "moved": 0.001})
    assert find(answer(loop)) == {}
    assert find(answer(loop, ("turn", "push")))["learnt-ignores"].level == "warning"
    loop.learnt.inputs[0] = loop.learnt.inputs[0].model_copy(update={"name": STATE})
    assert find(answer(loop))["learnt-ignores"].level == "info", "it predicts well without it"


@pytest.mark.parametrize(("off", "found"), [(0.7, {"steps-add-up"}), (0.2, set()), (None, set())])
def test_the_errors_of_steps_count_by_their_sum(off: float | None, found: set[str]):
    """``off`` of a step's size, always one way; None: as far, and the other way in turn."""
    ticks, episodes = 40, 8
    random, number = np.random.default_rng(0), np.repeat(np.arange(episodes), ticks)
    steps = np.sin(np.arange(episodes * ticks) / 9)[:, None] + random.normal(0, 0.05, (episodes * ticks, 1))
    states = np.cumsum(steps, axis=0) - steps
    recorded = RecordedActions(steps, states, number, ["x"], ["x"])
    frames = list(range(2, episodes * ticks, 10))
    chunks = np.stack([recorded.slice_ticks(steps, frame, 0, CHUNK) for frame in frames])
    size = float(np.sqrt(np.nanmean(chunks**2)))
    chunks = np.nan_to_num(chunks) + size * (0.9 * (-1.0) ** np.arange(CHUNK)[:, None] if off is None else off)
    data = match_recorded_actions(recorded, Predictions(frames, chunks))
    loop = open_loop.summarise(data, [], 30.0)
    loop.learnt = learn(data, CHUNK)
    assert [each.name for each in loop.learnt.steps] == ["x"]
    assert loop.learnt.steps[0].single == pytest.approx(off or 0.9, rel=0.05)
    assert {each.rule for each in rules.adding_errors(answer(loop), Thresholds())} == found
