"""The task's words read once, against the baseline: the same bits in later chunks, for less work."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.family_checks import part_gflop
from support.checks.treatment_block import treat
from support.suite.matrix import matrix
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.sampling import Words
from strobe.treatments.flow import text
from strobe.treatments.flow.text import WordsOnce

KINDS = ("fastwam", "multi_task_dit")


@cache
def tiny(kind: str) -> PolicySubject:
    return load_tiny_subject(kind)


def encoder(owner: PolicySubject) -> Any:
    return owner.family.get(Words).encoder(owner.policy)


def chunks(owner: PolicySubject, *tasks: str, treatment: WordsOnce | None = None) -> list[Tensor]:
    """Return the actions of one observation for each of ``tasks`` in turn."""
    with treat(owner, Variant("it", (treatment,) if treatment else ())):
        return [owner.act(owner.observation(0) | {"task": task}, seed=0) for task in tasks]


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_each_task_is_read_once_and_acted_on_as_ever(kind: str) -> None:
    owner, treatment = tiny(kind), WordsOnce()
    tasks = ("push it", "push it", "lift it", "push it")
    wanted = chunks(owner, *tasks)
    assert not torch.equal(wanted[0], wanted[2])
    read = []
    handle = next(encoder(owner).children()).register_forward_hook(lambda *_: read.append(1))
    try:
        got = chunks(owner, *tasks, treatment=treatment)
    finally:
        handle.remove()
    assert len(read) == 2
    assert all(map(torch.equal, got, wanted))
    assert all(map(torch.equal, chunks(owner, *tasks), wanted)), "nothing is left behind"


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_later_chunks_do_no_work_for_the_words(kind: str) -> None:
    owner, treatment = tiny(kind), WordsOnce()
    with treat(owner, treatment):
        first, later = (part_gflop(owner, "text encoder") for _ in range(2))
    assert first > 0
    assert later == 0


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_other_weights_read_the_words_again(kind: str) -> None:
    owner, treatment = tiny(kind), WordsOnce()
    before = chunks(owner, "push it", treatment=treatment)[0]
    weight = next(p for p in encoder(owner).parameters() if p.ndim == 2)
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.mul_(-1)
        after = chunks(owner, "push it", treatment=treatment)[0]
        assert torch.equal(after, chunks(owner, "push it")[0])
        assert not torch.equal(after, before)
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def test_no_more_tasks_are_kept_than_a_few() -> None:
    treatment = WordsOnce()
    chunks(tiny("multi_task_dit"), *(f"push {number}" for number in range(10)), treatment=treatment)
    assert len(treatment._encoded) == text._MOST


def test_it_is_for_policies_with_a_text_encoder_apart() -> None:
    with pytest.raises(UserError, match=r"^act: words is for fastwam, multi_task_dit$"):
        WordsOnce().apply(load_tiny_subject("act"))
