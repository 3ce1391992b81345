"""What denoising steps of policies without a prefix cache compute for nothing, and the same actions without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat

from strobe.core.errors import UserError
from strobe.core.measure.accounting import Accounting
from strobe.core.treatments.catalogue import compose, find_entry, make, parse
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject


@pytest.fixture(scope="module", params=["diffusion", "flow_matching"])
def dit(request: pytest.FixtureRequest) -> PolicySubject:
    steps = "--num_integration_steps=4" if request.param == "flow_matching" else "--num_inference_steps=4"
    overrides = ["--device=cpu", f"--objective={request.param}", steps]
    return load_subject(PolicyOptions(type="multi_task_dit", size="tiny", overrides=overrides))


def gflop(subject: PolicySubject) -> float:
    accounting = Accounting()
    accounting.run(lambda: subject.chunk(0))
    return sum(account.gflop for path, account in accounting.accounts.items() if len(path) == 2)


def test_conditioning_once_gives_the_same_actions_for_less(dit: PolicySubject) -> None:
    bare, cost = [dit.chunk(index) for index in range(3)], gflop(dit)
    policy: Any = dit.policy
    layer = policy.noise_predictor.transformer_blocks[0].adaLN_modulation[-1]
    once = 2e-9 * len(policy.noise_predictor.transformer_blocks) * (layer.in_features - 32) * layer.out_features
    with treat(dit, make({"conditioning": "once"})):
        for index in (0, 1, 2, 0):  # each chunk has a share of its own
            torch.testing.assert_close(dit.chunk(index), bare[index], rtol=1e-4, atol=1e-3)
        assert cost - gflop(dit) == pytest.approx(3 * once)  # of four steps
        dit.call("training forward", 2)(0)  # which no sampling begins
    assert torch.equal(dit.chunk(0), bare[0])


def test_a_layer_that_something_else_computes_stays_as_it_is(dit: PolicySubject) -> None:
    policy: Any = dit.policy
    layer = policy.noise_predictor.transformer_blocks[0].adaLN_modulation[-1]
    own = layer.forward
    layer.forward = lambda x: own(x) * 0.5
    try:
        bare = dit.chunk(0)
        undo = make({"conditioning": "once"}).apply(dit)
        torch.testing.assert_close(dit.chunk(0), bare, rtol=1e-4, atol=1e-3)
        undo()
    finally:
        del layer.forward


def test_in_bf16_it_sees_the_features_as_the_layers_do(dit: PolicySubject) -> None:
    chunks = []
    for text in ("precision=bf16", "precision=bf16, conditioning=once"):
        undo = Variant(text, compose(parse(text))).apply(dit)
        chunks.append(dit.chunk(0))
        undo()
    torch.testing.assert_close(chunks[1], chunks[0], rtol=0, atol=2.0)  # of actions between -100 and 100


def test_it_is_offered_to_its_family_alone() -> None:
    act = load_tiny_subject("act")
    assert not find_entry("conditioning").candidates(act)
    with pytest.raises(UserError, match="conditioning is for multi_task_dit"):
        make({"conditioning": "once"}).apply(act)
