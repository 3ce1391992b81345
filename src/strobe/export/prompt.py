"""The form of a prompt, by which a program without LeRobot writes what the processors write."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from unittest import mock

import numpy as np
from lerobot.configs.types import FeatureType, NormalizationMode
from lerobot.utils.constants import OBS_STATE
from torch import Tensor

from strobe.core.errors import UserError
from strobe.lerobot.policies.policy_subject import PolicySubject

TASK, STATE = "{task}", "{state}"
TRIED = ("strobe", "pick_up the\ncube ")  # tasks whose prompts must come out the same
OBSERVATIONS = 4
MOST = 2**16  # tokens of a prompt, and bins of a number
_RANGES = {
    NormalizationMode.QUANTILES: ("q01", "q99"),
    NormalizationMode.QUANTILE10: ("q10", "q90"),
    NormalizationMode.MIN_MAX: ("min", "max"),
}
_PI05 = f"Task: {TASK}, State: {STATE};\nAction: "  # Pi05PrepareStateTokenizerProcessorStep of LeRobot 0.6


@dataclass(frozen=True)
class StateInPrompt:
    """How the state becomes numbers in a prompt: ``times * (x - offset) / divisor + plus``, in equal bins of −1 to 1.

    As LeRobot's normaliser and pi0.5's processor compute it, in float32.

    Args:
        name: of the state among the observation's arrays.
        offset, divisor: of each dimension.
        bins: how many.
    """

    name: str
    offset: list[float]
    divisor: list[float]
    times: float
    plus: float
    bins: int = 256


@dataclass(frozen=True)
class Prompt:
    """How a task becomes a prompt.

    Args:
        text: with the words of `TASK` and `STATE` in it.
        cleaned: whether underscores and line breaks of the task become blanks, and blanks at its ends go.
        state: of a prompt that holds the state; None for others.
    """

    text: str
    cleaned: bool = False
    state: StateInPrompt | None = None

    def write_prompt(self, task: str, numbers: dict[str, object]) -> str:
        """Return the prompt for ``task`` and the arrays ``numbers``, by the program that an export carries."""
        from strobe.export.carried.policy import write_prompt

        return write_prompt(asdict(self), task, numbers)


def is_form(data: Any) -> bool:
    """Return whether ``data``, from an export's manifest, is the form of a prompt: None for a policy without words."""
    if data is None:
        return True
    known = {"text": str, "cleaned": bool, "state": dict | None, "tokenizer": str | None, "length": int | None}
    if not isinstance(data, dict) or not all(isinstance(data.get(name), kind) for name, kind in known.items()):
        return False
    if (data["length"] or 0) > MOST:
        return False
    state = data["state"]
    return state is None or (
        isinstance(state.get("name"), str)
        and all(_are_numbers(state.get(name)) for name in ("offset", "divisor"))
        and all(_are_numbers([state.get(name)]) for name in ("times", "plus", "bins"))
        and state["bins"] in range(1, MOST)
    )


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, int | float) for value in values)


def find_prompt(subject: PolicySubject, prepare: Any, words: Any) -> Prompt:
    """Return what the processors ``words`` of ``subject`` write into its prompt.

    Args:
        prepare: the first of them, up to those that change numbers.

    Raises UserError for a prompt of no form that is known here.
    """
    seen: list[tuple[str, dict[str, Any], str]] = []
    for index in range(OBSERVATIONS):
        prepared = prepare(dict(subject.observation(index)))
        numbers = {name: value.numpy() for name, value in prepared.items() if isinstance(value, Tensor)}
        seen += [(task, numbers, _text(subject, words, index, task)) for task in TRIED]
    first, state = seen[0][2], _state(words)
    forms = [Prompt(first.replace(TRIED[0], TASK, 1))]
    for known in forms if state is None else [*forms, Prompt(_PI05, cleaned=True, state=state)]:
        if all(known.write_prompt(task, numbers) == text for task, numbers, text in seen):
            return known
    raise UserError(
        f"{subject.info.name} cannot be exported: its processors write more than the task into the prompt "
        f"('{' '.join(first.split())[:60]}'), in a form that Strobe does not know"
    )


def _state(words: Any) -> StateInPrompt | None:
    """Return how the normaliser among ``words`` changes the state; None without one, or for a mode of another form."""
    for step in words.steps:
        statistics = (getattr(step, "stats", None) or {}).get(OBS_STATE)
        if not statistics:
            continue
        mode = step.norm_map.get(FeatureType.STATE)
        if mode is NormalizationMode.MEAN_STD:
            return _affine(statistics["mean"], _float32(statistics["std"]) + np.float32(step.eps), 1.0, 0.0)
        low, high = _RANGES.get(mode, ("", ""))
        if low:
            width = _float32(statistics[high]) - _float32(statistics[low])
            return _affine(statistics[low], np.where(width == 0, np.float32(step.eps), width), 2.0, -1.0)
    return None


def _affine(offset: Any, divisor: Any, times: float, plus: float) -> StateInPrompt:
    return StateInPrompt(OBS_STATE, _float32(offset).tolist(), _float32(divisor).tolist(), times, plus)


def _float32(values: object) -> Any:
    return np.asarray(values, dtype=np.float32)


def _text(subject: PolicySubject, words: Any, index: int, task: str) -> str:
    texts: list[str] = []
    kind = type(words.steps[-1])
    original = kind._tokenize_text

    def record_text(self: object, text: Any) -> Any:
        texts.extend([text] if isinstance(text, str) else text)
        return original(self, text)

    with mock.patch.object(kind, "_tokenize_text", record_text):
        words({**subject.observation(index), "task": task})
    return texts[0]
