"""A whole policy as one program: numbers of an observation in, the robot's actions out, the processors included.

What is done in Python on words (the prompt, its tokens) stays outside: the program takes tokens. What the policy draws
at random comes in as well, so that the same noise gives the same actions in torch and in the export.
"""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from strobe.errors import UserError, in_a_line
from strobe.policies.families.registry import predict
from strobe.policies.policy_subject import PolicySubject
from strobe.timeline.sections import recording
from strobe.treatments.engines.recorded import DynamicLayer, first_keys_as_they_are

NoiseKind = Literal["normal", "uniform"]
_DRAWS: dict[Any, NoiseKind] = {
    torch.randn: "normal",
    torch.randn_like: "normal",
    torch.normal: "normal",
    torch.rand: "uniform",
    torch.rand_like: "uniform",
}


@dataclass(frozen=True)
class Recording:
    """One inference: what goes in and what is drawn.

    Args:
        inputs: name → tensor of what the program is given, in its order.
        noise: kind and values of each draw, in their order.
        chunk: the actions, (1, chunk, action dim).
        suffix: what the processors add to the task before it becomes tokens; None for a policy without a prompt.
    """

    inputs: dict[str, Tensor]
    noise: list[tuple[NoiseKind, Tensor]]
    chunk: Tensor
    suffix: str | None

    @property
    def values(self) -> tuple[Tensor, ...]:
        """All that the program is given."""
        return (*self.inputs.values(), *(drawn for _, drawn in self.noise))


def split(subject: PolicySubject) -> tuple[Any, Any, Any]:
    """Return the processors up to the tokens, those after them, and the step that makes tokens (None without one).

    Prompts are padded to their greatest length, since a program has one shape.
    """
    pipeline = subject.preprocessor
    steps = list(pipeline.steps)
    at = next((i for i, step in enumerate(steps) if hasattr(step, "input_tokenizer")), None)
    if at is not None:
        steps[at] = copy.copy(steps[at])
        steps[at].padding = "max_length"
    before = steps[: at + 1] if at is not None else []
    made = [
        type(pipeline)(steps=part, to_transition=pipeline.to_transition, to_output=pipeline.to_output)
        for part in (before, steps[len(before) :])
    ]
    return made[0], made[1], steps[at] if at is not None else None


def numbers_of(words: Any, observation: dict[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of ``observation`` after the processors ``words``, which turn its prompt into tokens."""
    return {name: value for name, value in words(dict(observation)).items() if isinstance(value, Tensor)}


def record(subject: PolicySubject) -> Recording:
    """Run one inference of ``subject`` on its first observation.

    Raises UserError for a policy whose prompt holds more than the task, or that changes numbers before its tokens.
    """
    words, _, tokenizer = split(subject)
    observation = subject.observation(0)
    suffix = None if tokenizer is None else _suffix(subject, words)
    with _Recorded() as recorded:
        chunk = subject.answer(dict(observation), subject.seed)
    inputs = numbers_of(words, observation)
    _require_raw(inputs, observation)
    return Recording(inputs, recorded.draws, chunk.float(), suffix)


def exported(subject: PolicySubject, made: Recording) -> ExportedProgram:
    """Return the program of the policy, for the shapes of ``made``. It shares the policy's weights.

    Raises UserError, with the reason, for what torch cannot export.
    """
    words, numeric, _ = split(subject)
    rest = {k: v for k, v in words(subject.observation(0)).items() if not isinstance(v, Tensor)}
    whole = _Whole(subject, numeric, list(made.inputs), rest).eval()
    try:
        with _traceable(subject), redirect_stderr(io.StringIO()):  # where it fails, torch prints the graph so far
            return torch.export.export(whole, made.values, strict=False)
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError | UserError):
            raise
        raise UserError(
            f"{subject.info.name} cannot be exported whole: {in_a_line(error)[-200:].rstrip('.')}"
        ) from error


def _require_raw(inputs: dict[str, Tensor], observation: dict[str, Any]) -> None:
    """Raise UserError where the processors up to the tokens change a number.

    The program begins after them, so a user would give it another number than the check does.
    """
    raw = [value for value in observation.values() if isinstance(value, Tensor)]
    for name, value in inputs.items():
        same = (each.dtype == value.dtype and torch.equal(each, value) for each in raw)
        if ".language." not in name and not any(same):
            raise UserError(f"the processors change {name} before they make tokens, which an export would leave out")


def _suffix(subject: PolicySubject, words: Any) -> str:
    """Return what the processors add to a task, whatever the observation."""
    text: list[str] = []
    task = "strobe"
    step = type(words.steps[-1])

    def noted(self: Any, texts: Any) -> Any:
        text.extend([texts] if isinstance(texts, str) else texts)
        return original(self, texts)

    original = step._tokenize_text
    with mock.patch.object(step, "_tokenize_text", noted):
        for index in range(2):
            words({**subject.observation(index), "task": task})
    if len(set(text)) != 1 or not text[0].startswith(task):
        raise UserError(
            f"{subject.info.name} cannot be exported: its processors write more than the task into the prompt "
            f"('{' '.join(text[0].split())[:60]}'), such as the state, which only Python can do"
        )
    return text[0][len(task) :]


class _Whole(nn.Module):
    """The numeric processors, the policy's sampling and the processors of its actions."""

    def __init__(self, subject: PolicySubject, numeric: Any, names: Sequence[str], rest: dict[str, Any]) -> None:
        super().__init__()
        self.policy = subject.policy
        self._names, self._rest = names, rest
        self._numeric, self._laid_out, self._after = numeric, subject.training.laid_out, subject.postprocessor

    def forward(self, *values: Tensor) -> Tensor:
        count = len(self._names)
        observation = {**self._rest, **dict(zip(self._names, values[:count], strict=True))}
        with _DrawnBefore(values[count:]):
            batch = self._laid_out(self._numeric(observation))
            return self._after(predict(self.policy, batch)).float()


class _Recorded(TorchFunctionMode):
    """Notes what is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[NoiseKind, Tensor]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function in _DRAWS:
            self.draws.append((_DRAWS[function], made.detach().clone()))
        return made


class _DrawnBefore(TorchFunctionMode):
    """Gives what was drawn before, in its order, in place of a draw."""

    def __init__(self, noise: Sequence[Tensor]) -> None:
        super().__init__()
        self._noise = list(noise)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._noise.pop(0) if function in _DRAWS else function(*args, **(kwargs or {}))


@contextlib.contextmanager
def _traceable(subject: PolicySubject) -> Iterator[None]:
    """Inside, what torch cannot trace is done in a way that it can: schedulers' timesteps are plain numbers."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(recording(None))
        stack.enter_context(torch.no_grad())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of torch.export about torch's own code
        stack.enter_context(mock.patch.object(DynamicLayer, "update", first_keys_as_they_are))
        for module in subject.policy.modules():
            scheduler: Any = getattr(module, "noise_scheduler", None)
            if scheduler is not None:
                scheduler.set_timesteps(getattr(module, "num_inference_steps", None) or len(scheduler.timesteps))
                plain = [int(step) for step in scheduler.timesteps]
                stack.enter_context(mock.patch.object(scheduler, "timesteps", plain))
                stack.enter_context(mock.patch.object(scheduler, "set_timesteps"))
        yield
