"""The prompt once a chunk, against the baseline: the same actions, for a fraction of the work."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from lerobot.policies.wall_x import modeling_wall_x
from lerobot.policies.wall_x.qwen_model import qwen2_5_vl_moe
from support.builders.tiny_policies import load_tiny_subject
from support.checks.family_checks import part_gflop
from support.checks.treatment_block import treat
from torch import Tensor

from strobe.core.errors import UserError
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.prefix_cache import PromptOnce


class _Wide(ModuleType):
    """torch, for a module that says bfloat16 and float32: it gets float64."""

    bfloat16 = float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture(scope="module")
def subject() -> PolicySubject:
    return load_tiny_subject("wall_x")


@pytest.fixture
def wide() -> Iterator[PolicySubject]:
    found = load_tiny_subject("wall_x")
    found.policy.double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_wall_x, "torch", _Wide("torch"))
        yield found


def chunks(subject: PolicySubject, tasks: list[str] | None = None) -> list[Tensor]:
    """Return normalised chunks of two observations; of one batch of both with ``tasks``."""
    seen = [subject.loaded.preprocessor(subject.observation(index)) for index in (0, 1)]
    batches = [{**one, "task": one["task"]} for one in seen]
    if tasks is not None:
        both = {k: torch.cat([one[k] for one in seen]) for k, v in seen[0].items() if isinstance(v, Tensor)}
        batches = [{**both, "task": tasks}]
    subject.policy.eval()
    torch.manual_seed(0)
    return [subject.policy.predict_action_chunk(batch) for batch in batches]


@pytest.mark.parametrize("tasks", [None, ["push it", "push it"], ["push it", "push it far away, and then come back"]])
def test_actions_are_the_same(wide: PolicySubject, tasks: list[str] | None) -> None:
    before = chunks(wide, tasks)
    undo = PromptOnce().apply(wide)
    after = chunks(wide, tasks)
    undo()
    for one, other in zip(before, after, strict=True):
        assert one.dtype == torch.float64
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5)  # norms and softmax go through float32


def test_the_language_model_does_a_quarter_of_its_work(subject: PolicySubject) -> None:
    treatment = PromptOnce()
    treatment.apply(subject)()
    before = part_gflop(subject, "language model")
    with treat(subject, treatment):
        subject.chunk(1)  # the first of all tries whether it is exact
        after = part_gflop(subject, "language model")
    assert 0 < after < before / 4
    assert part_gflop(subject, "language model") == before


def test_a_prompt_that_looks_at_the_actions_is_refused(subject: PolicySubject, monkeypatch) -> None:
    monkeypatch.setattr(qwen2_5_vl_moe, "create_causal_mask", lambda **_: None)
    with treat(subject, PromptOnce()), pytest.raises(UserError, match="the prompt attends to the actions"):
        subject.chunk(0)


def test_it_is_for_policies_that_run_the_prompt_again() -> None:
    with pytest.raises(UserError, match=r"^act: prompt is for wall_x$"):
        PromptOnce().apply(load_tiny_subject("act"))
