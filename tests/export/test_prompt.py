"""A prompt that holds the state is written by the export's program as LeRobot's processors write it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from strobe.core.errors import UserError
from strobe.export.prompt import find_prompt
from strobe.export.whole import split
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions


@pytest.fixture(scope="module")
def pi05() -> Any:
    return load_subject(PolicyOptions(type="pi05", size="tiny", overrides=["--device=cpu"]))


def test_the_state_is_put_in_the_bins_that_lerobot_takes(pi05: Any) -> None:
    processors = split(pi05)
    prompt = find_prompt(pi05, processors.prepare, processors.words)
    assert prompt.state is not None
    (maker,) = [step for step in processors.words.steps if "StateTokenizer" in type(step).__name__]
    written: list[str] = []
    tokenizer = processors.tokenizer
    for index in range(20):
        observation = pi05.observation(index)
        state = torch.randn(observation["observation.state"].shape) * 2
        observation = {**observation, "observation.state": state, "task": "pick_up the cube\n"}
        transition = processors.words.to_transition(observation)
        for step in processors.words.steps[: processors.words.steps.index(maker) + 1]:
            transition = step(transition)
        wanted = tokenizer.get_task(transition)[0]
        numbers = {name: v.numpy() for name, v in processors.prepare(dict(observation)).items() if hasattr(v, "numpy")}
        written.append(prompt.write_prompt("pick_up the cube\n", numbers))
        assert written[-1] == wanted
    assert len(set(written)) == 20


def test_a_form_that_is_not_known_is_refused(pi05: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    processors = split(pi05)
    (normalizer,) = [step for step in processors.words.steps if hasattr(step, "norm_map")]
    monkeypatch.setattr(normalizer, "stats", None)
    with pytest.raises(UserError, match="in a form that Strobe does not know"):
        find_prompt(pi05, processors.prepare, processors.words)
