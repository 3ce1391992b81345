"""pi0-FAST: a section for each token, and a tokenizer of actions that gives back what it was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks.family_checks import part_names

from strobe.core.treatments.catalogue import make
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe_zoo.pi0_fast import fast_tokens

TOKENS = 6


@pytest.fixture(scope="module")
def subject() -> PolicySubject:
    overrides = ["--device=cpu", f"--max_decoding_steps={TOKENS}"]
    return load_subject(PolicyOptions(type="pi0_fast", size="tiny", overrides=overrides))


def test_each_token_is_a_part(subject: PolicySubject) -> None:
    found = part_names(subject, "inference")
    assert [found.count(name) for name in ("prefix KV cache", "token", "token head")] == [1, TOKENS - 1, TOKENS]
    assert subject.traits("inference", 1).policy.max_tokens == TOKENS


def test_without_the_cache_every_token_runs_the_whole_sequence_and_the_actions_are_the_same(
    subject: PolicySubject,
) -> None:
    cached = subject.chunk(0)
    undo = make({"policy.use_kv_cache": False}).apply(subject)
    found, again = part_names(subject, "inference"), subject.chunk(0)
    undo()
    assert (found.count("prefix KV cache"), found.count("token")) == (0, TOKENS)
    assert torch.equal(again, cached)


def test_the_actions_depend_on_every_token(subject: PolicySubject) -> None:
    policy: Any = subject.policy
    tokens = torch.arange(TOKENS)[None] + 40
    other = tokens.clone()
    other[0, -1] += 1
    first, second = (policy.detokenize_actions(each, action_horizon=50, action_dim=6) for each in (tokens, other))
    assert not torch.equal(first, second)


@given(seed=st.integers(0, 999), tiny=st.booleans())
@settings(max_examples=20, deadline=None)
def test_lerobot_decodes_what_was_encoded(seed: int, tiny: bool) -> None:
    from lerobot.policies.pi0_fast.modeling_pi0_fast import PI0FastPolicy

    tokens = fast_tokens(tiny)
    actions = np.random.default_rng(seed).uniform(-1.5, 1.5, (1, 50, 6))
    encoded: Any = tokens(actions)
    assert 0 <= min(encoded[0]) <= max(encoded[0]) < tokens.vocab_size
    assert len(encoded[0]) < actions.size  # some are joined
    policy: Any = type("Policy", (), {"action_tokenizer": tokens})()
    decoded = PI0FastPolicy.decode_actions_with_fast(policy, encoded, time_horizon=50, action_dim=6)
    # Each coefficient is rounded by half a step at most, and the transform keeps lengths.
    assert np.sqrt(((decoded - actions) ** 2).mean()) <= 0.5 / tokens.scale


def test_the_stand_in_is_as_large_as_the_published_tokenizer() -> None:
    assert fast_tokens(False).vocab_size == 2048
    assert fast_tokens(False).bpe_tokenizer._tokens.get_vocab_size() == 2048
