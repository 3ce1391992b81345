"""Treatments of policies that attend to a context in every step: the same bits, less work, no trace."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from support.builders.tiny_policies import load_tiny_subject
from support.checks.family_checks import part_gflop
from support.checks.treatment_block import treat
from support.suite.matrix import matrix
from torch import Tensor, nn

from strobe.core.errors import UserError
from strobe.core.families.capabilities import LiveFields
from strobe.core.treatments import catalogue
from strobe.core.treatments.patch import find_replacements
from strobe.core.treatments.treatment import Spec, Treatment, Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.sampling import WordTables
from strobe.treatments.flow import context as context_treatments
from strobe.treatments.flow.rtc import RealTimeChunking

HEAD: Spec = {"lm_head": "skipped"}
KEYS: Spec = {"context_keys": "once"}
HALF: Spec = {"unread_half": "skipped"}
TABLES: Spec = {"word_tables": "apart"}
KINDS = {"groot": [HEAD, KEYS], "vla_jepa": [HEAD, KEYS], "fastwam": [KEYS], "evo1": [KEYS], "lingbot_va": [KEYS, HALF]}
EACH = [pytest.param(kind, spec, id=f"{kind}-{next(iter(spec))}") for kind, specs in KINDS.items() for spec in specs]


@cache
def tiny(kind: str) -> PolicySubject:
    few = ["--num_inference_steps=2", "--action_num_inference_steps=3"] if kind == "lingbot_va" else []
    return load_tiny_subject(kind, *few)


def treated_chunks(owner: PolicySubject, *treatments: Treatment) -> list[Tensor]:
    """Chunks as the policy gave them: what comes behind cuts large actions off."""
    with treat(owner, Variant("it", treatments)):
        return [owner.model_chunk(index) for index in (0, 1, 0)]


def trace(owner: PolicySubject) -> list[Any]:
    """Everything that a treatment could leave behind: what replaces methods, and names."""
    return [find_replacements(owner.policy), [set(vars(child)) for child in owner.policy.modules()]]


def gflop(owner: PolicySubject, *treatments: Treatment) -> float:
    with treat(owner, Variant("it", treatments)):
        return part_gflop(owner, "policy")


@pytest.mark.parametrize(("kind", "spec"), matrix(EACH, keep=2))
def test_each_keeps_all_bits_does_less_and_leaves_nothing_behind(kind, spec):
    owner, treatment = tiny(kind), catalogue.make(spec)
    wanted, before = treated_chunks(owner), trace(owner)
    assert not torch.equal(wanted[0], wanted[1])
    assert all(map(torch.equal, treated_chunks(owner, treatment), wanted))
    assert trace(owner) == before
    assert all(map(torch.equal, treated_chunks(owner), wanted))
    assert gflop(owner, treatment) < gflop(owner)


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_together_with_another_number_of_steps_too(kind):
    owner = tiny(kind)
    steps = catalogue.make({f"policy.{LiveFields.from_family(owner.family).steps}": 2})
    assert all(
        map(torch.equal, treated_chunks(owner, steps, *catalogue.compose(KINDS[kind])), treated_chunks(owner, steps))
    )


def test_nothing_of_a_context_is_kept_from_one_chunk_to_the_next():
    owner, treatment = tiny("vla_jepa"), context_treatments.ContextOnce()
    with treat(owner, treatment):
        owner.chunk(0)
        assert not treatment._outputs


def test_gr00t_is_guided_as_without_them():
    owner = tiny("groot")
    rtc = RealTimeChunking(RTCConfig(enabled=True, execution_horizon=10), 4)
    chunks = []
    for specs in ([], KINDS["groot"]):
        undo = Variant("it", (rtc, *catalogue.compose(specs))).apply(owner)
        chunks.append(owner.chunk(0))
        undo()
    assert torch.equal(*chunks)


def test_training_is_left_alone():
    owner = tiny("groot")
    raw = owner.inputs.batch(2)
    before = owner.gradient(raw)
    undo = Variant("all", catalogue.compose(KINDS["groot"])).apply(owner)
    try:
        assert torch.equal(owner.gradient(raw), before)
    finally:
        undo()
        owner.policy.zero_grad()


@pytest.mark.parametrize(
    "reads",
    [
        lambda logits: logits.argmax(-1),
        lambda logits: logits + 1,
        lambda logits: logits[:, -1],
        lambda logits: torch.softmax(logits, -1),
        list,
    ],
)
def test_who_reads_the_words_of_a_skipped_head_fails(reads, monkeypatch):
    owner: Any = tiny("groot")
    model = owner.policy._groot_model.backbone.model
    inner = model.forward
    monkeypatch.setitem(model.__dict__, "forward", lambda **given: _read(inner(**given), reads))
    owner.chunk(0)
    with pytest.raises(UserError, match="uses its language head"):
        treated_chunks(owner, catalogue.make(HEAD))


def _read(output: Any, reads: Any) -> Any:
    reads(output.logits)
    return output


def test_a_context_that_is_written_over_is_projected_again(monkeypatch):
    owner: Any = tiny("vla_jepa")
    step = owner.policy.model.action_model.model
    inner = step.forward

    def forward(hidden_states: Tensor, encoder_hidden_states: Tensor, timestep: Tensor) -> Tensor:
        encoder_hidden_states.mul_(0.5)  # the same tensor with other values
        return inner(hidden_states, encoder_hidden_states, timestep)

    monkeypatch.setitem(step.__dict__, "forward", forward)
    assert all(map(torch.equal, treated_chunks(owner, catalogue.make(KEYS)), treated_chunks(owner)))


@pytest.mark.parametrize(("spec", "kind"), [(HEAD, "groot, vla_jepa"), (KEYS, "fastwam"), (HALF, "lingbot_va")])
def test_other_policies_are_refused_in_a_line_and_other_values_too(spec, kind):
    act = load_tiny_subject("act")
    with pytest.raises(UserError, match=rf"is for .*{kind}"):
        catalogue.make(spec).apply(act)
    assert not catalogue.find_entry(next(iter(spec))).candidates(act)
    with pytest.raises(UserError, match="is the only value"):
        catalogue.make({next(iter(spec)): "sometimes"})


def test_an_episode_of_lingbot_va_goes_on_as_without_them():
    """Its cache, written by one chunk and read by the next, holds both halves as ever."""
    owner: Any = tiny("lingbot_va")

    def episode() -> Tensor:
        owner.policy.reset()
        torch.manual_seed(0)
        seen = [owner.loaded.preprocessor(owner.observation(index)) for index in (0, 1)]
        return torch.stack([owner.policy.select_action(seen[tick % 2]) for tick in range(12 + 16 + 1)])

    wanted = episode()
    with treat(owner, Variant("it", catalogue.compose(KINDS["lingbot_va"]))):
        assert torch.equal(episode(), wanted)


@pytest.mark.parametrize("settings", [{"policy.action_guidance_scale": 2.0}, {"policy.guidance_scale": 1.0}])
def test_a_half_that_is_read_or_not_there_is_left_alone(settings):
    owner, setting = tiny("lingbot_va"), catalogue.make(settings)
    plain, wanted = treated_chunks(owner), treated_chunks(owner, setting)
    assert not torch.equal(plain[0], wanted[0])
    with treat(owner, setting):
        assert not catalogue.find_entry("unread_half").candidates(owner)
        with pytest.raises(UserError, match="all of a pass is used"):
            catalogue.make(HALF).apply(owner)
    with treat(owner, catalogue.make(HALF)):  # and where the setting comes later
        assert all(map(torch.equal, treated_chunks(owner, setting), wanted))


@pytest.mark.parametrize("needs_weights", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_torchs_own_attention_gives_the_same_sums_with_keys_that_were_kept(needs_weights, masked):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(48, 4, batch_first=True).double().eval()
    query, context = torch.randn(2, 5, 48).double(), torch.randn(2, 9, 48).double()
    given: dict[str, Any] = {"need_weights": needs_weights}
    if masked:
        given["key_padding_mask"] = torch.arange(9)[None, :] >= torch.tensor([[9], [6]])
    made: list[Any] = []

    def make_once(make: Any, kept: Tensor) -> Any:
        made[:] = made or [make(kept)]
        return made[0]

    call = context_treatments._attending(attention, attention.forward, make_once)
    with torch.no_grad():
        for _ in range(2):
            theirs, ours = attention(query, context, context, **given), call(query, context, context, **given)
            torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=1e-14)
            if needs_weights:
                torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=1e-14)
    with torch.enable_grad():
        assert torch.equal(call(query, context, context)[0], attention(query, context, context)[0])


def test_two_tables_of_words_give_the_same_rows_without_being_joined(monkeypatch):
    owner = tiny("molmoact2")
    table: Any = owner.policy.get_submodule(owner.family.get(WordTables).path)
    count, further = table.embedding.shape[0], table.new_embedding.shape[0]
    words = torch.tensor([[0, count - 1, count, count + further - 1]])
    wanted, wanted_rows = treated_chunks(owner), table(words)
    with torch.no_grad():
        undo = Variant("it", (catalogue.make(TABLES),)).apply(owner)
        joined = torch.cat
        sizes: list[int] = []
        monkeypatch.setattr(
            torch, "cat", lambda tensors, *args, **kw: sizes.append(len(tensors[0])) or joined(tensors, *args, **kw)
        )
        try:
            assert torch.equal(table(words), wanted_rows)
            assert all(map(torch.equal, [owner.model_chunk(index) for index in (0, 1, 0)], wanted))
        finally:
            undo()
    assert count not in sizes
