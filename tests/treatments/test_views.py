"""Views without a camera, left out, against the baseline: the same actions, for less work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.family_checks import part_gflop
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.prefix_inputs import PresentViews


def load(cameras: int = 2, *overrides: str) -> PolicySubject:
    return load_tiny_subject("evo1", *overrides, cameras=cameras)


@pytest.fixture
def wide() -> PolicySubject:
    """A policy that computes in float64, as far as it lets us: the fused tokens go through float32."""
    subject = load()
    policy: Any = subject.policy
    policy.double()
    policy.model.embedder.model_dtype = torch.float64
    return subject


def chunk(subject: PolicySubject, tasks: list[str]) -> Tensor:
    """Return a normalised chunk for each of ``tasks``, all of one batch."""
    seen = subject.loaded.preprocessor(subject.observation(0))
    batch: dict[str, Any] = {k: torch.cat([v] * len(tasks)) for k, v in seen.items() if isinstance(v, Tensor)}
    torch.manual_seed(0)
    batch["task"] = tasks
    return subject.policy.predict_action_chunk(batch)


@pytest.mark.parametrize("tasks", [["push it"], ["push it", "push it far away, and then come back"]])
def test_actions_are_the_same(wide: PolicySubject, tasks: list[str]) -> None:
    before = chunk(wide, tasks)
    undo = PresentViews().apply(wide)
    after = chunk(wide, tasks)
    undo()
    torch.testing.assert_close(after, before, rtol=0, atol=1e-5)


def test_the_third_view_of_two_cameras_costs_nothing() -> None:
    subject = load()
    before = {part: part_gflop(subject, part) for part in ("vision tower", "language model")}
    undo = PresentViews().apply(subject)
    assert part_gflop(subject, "vision tower") == pytest.approx(2 / 3 * before["vision tower"])
    assert part_gflop(subject, "language model") < before["language model"]
    undo()
    assert part_gflop(subject, "vision tower") == before["vision tower"]


def test_it_is_offered_where_a_view_is_empty() -> None:
    entry = catalogue.find_entry("views")
    assert list(entry.candidates(load())) == [{"views": "present"}]
    assert entry.parts(load(), {"views": "present"}) == ("vision tower", "language model")
    assert list(entry.candidates(load(3))) == []
    with pytest.raises(UserError, match=r"^act: views is for evo1$"):
        PresentViews().apply(load_tiny_subject("act"))
