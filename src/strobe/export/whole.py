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
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from strobe.core.errors import UserError, error_line
from strobe.core.subjects.subject import Observation
from strobe.core.timeline.sections import recording
from strobe.export.prompt import Prompt, find_prompt
from strobe.lerobot.families.answers import predict
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.engines.draws import Draw, DrawnBefore, RecordedDraws, schedulers_laid_out
from strobe.treatments.engines.recorded import DynamicLayer, first_keys_as_they_are


@dataclass(frozen=True)
class Recording:
    """One inference: what goes in and what is drawn.

    Args:
        inputs: name → tensor of what the program is given, in its order.
        noise: the draws, in their order.
        chunk: the actions, (1, chunk, action dim).
        prompt: what the processors write before it becomes tokens; None for a policy without a prompt.
        changed: inputs that the processors change before they make tokens, which is before the program begins.
    """

    inputs: dict[str, Tensor]
    noise: list[Draw]
    chunk: Tensor
    prompt: Prompt | None
    changed: frozenset[str] = frozenset()

    @property
    def values(self) -> tuple[Tensor, ...]:
        """All that the program is given."""
        return (*self.inputs.values(), *(drawn for _, drawn in self.noise))


@dataclass(frozen=True)
class Processors:
    """The processors of a policy, in the order in which they run.

    Args:
        prepare: the first ones, which rename arrays and add their batch dimension.
        words: up to the tokens, with ``prepare`` among them.
        numeric: those after the tokens.
        tokenizer: the step that makes tokens; None without one.
    """

    prepare: Any
    words: Any
    numeric: Any
    tokenizer: Any


def split(subject: PolicySubject) -> Processors:
    """Return the processors of ``subject``. Prompts are padded to their greatest length: a program has one shape."""
    pipeline = subject.preprocessor
    steps = list(pipeline.steps)
    at = next((i for i, step in enumerate(steps) if hasattr(step, "input_tokenizer")), None)
    if at is not None:
        steps[at] = copy.copy(steps[at])
        steps[at].padding = "max_length"
    end = at + 1 if at is not None else 0
    changes = next((i for i, step in enumerate(steps[:end]) if hasattr(step, "norm_map")), end)
    changes = min(changes, end - 1) if at is not None else 0

    def part(of: Sequence[Any]) -> Any:
        return type(pipeline)(steps=list(of), to_transition=pipeline.to_transition, to_output=pipeline.to_output)

    tokenizer = steps[at] if at is not None else None
    return Processors(part(steps[:changes]), part(steps[:end]), part(steps[end:]), tokenizer)


def preprocessed_tensors(processors: Any, observation: Observation) -> dict[str, Tensor]:
    """Return the tensors of ``observation`` after ``processors``."""
    return {name: value for name, value in processors(dict(observation)).items() if isinstance(value, Tensor)}


def record(subject: PolicySubject, index: int = 0) -> Recording:
    """Run one inference of ``subject`` on the observation at ``index``.

    Raises UserError for a policy whose prompt has no form that is known.
    """
    processors = split(subject)
    observation = subject.observation(index)
    words = processors.tokenizer is not None
    prompt = find_prompt(subject, processors.prepare, processors.words) if words else None
    with RecordedDraws() as recorded:
        chunk = subject.answer(dict(observation), subject.seed + index)
    inputs = preprocessed_tensors(processors.words, observation)
    raw = preprocessed_tensors(processors.prepare, observation)
    changed = {name for name in inputs.keys() & raw.keys() if not torch.equal(inputs[name], raw[name])}
    return Recording(inputs, recorded.draws, chunk.float(), prompt, frozenset(changed))


def export_program(subject: PolicySubject, made: Recording) -> ExportedProgram:
    """Return the program of the policy, for the shapes of ``made``. It shares the policy's weights.

    Raises UserError, with the reason, for what torch cannot export, and for a policy that needs a number which the
    processors change before they make tokens: a user would give it raw.
    """
    processors = split(subject)
    rest = {k: v for k, v in processors.words(subject.observation(0)).items() if not isinstance(v, Tensor)}
    whole = _Whole(subject, processors.numeric, list(made.inputs), rest).eval()
    try:
        with _traceable(subject), redirect_stderr(io.StringIO()):  # where it fails, torch prints the graph so far
            program = torch.export.export(whole, made.values, strict=False)
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError | UserError):
            raise
        raise UserError(
            f"{subject.info.name} cannot be exported whole: {error_line(error)[-200:].rstrip('.')}"
        ) from error
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"][-len(made.values) :]
    for node, name in zip(placeholders, made.inputs, strict=False):
        if name in made.changed and node.users:
            raise UserError(
                f"the processors change {name} before they make tokens, and an export would omit that change"
            )
    return program


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
        with DrawnBefore(values[count:]):
            batch = self._laid_out(self._numeric(observation))
            return self._after(predict(self.policy, batch)).float()


@contextlib.contextmanager
def _traceable(subject: PolicySubject) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(recording(None))
        stack.enter_context(torch.no_grad())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of torch.export about torch's own code
        stack.enter_context(mock.patch.object(DynamicLayer, "update", first_keys_as_they_are))
        stack.enter_context(schedulers_laid_out(subject.policy.modules()))
        yield
