"""The exact treatments of pi0, pi0.5 and SmolVLA against the baselines, alone and together, in any order."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from support.builders.checkpoints import EXACT
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat
from support.suite.matrix import matrix
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.measure.accounting import Accounting
from strobe.core.timeline import Timeline
from strobe.core.timeline.probe import Attached
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Spec, Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.prefix_inputs import BucketedPrompt, TrimmedPadding
from strobe.treatments.flow.rtc import RealTimeChunking

KINDS = ("pi05", "pi0", "smolvla")
# What rounding can do where all is computed in float64, over actions of some hundreds.
FLOAT64 = 1e-10


class _Double(ModuleType):
    """torch, for a module that says float32: it gets float64."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture
def float64_policies() -> Iterator[None]:
    # LeRobot and transformers go to float32 in places (norms, softmax, the last projection): here they do not.
    parts = ("lerobot.policies", "transformers.models.gemma", "transformers.models.siglip", "strobe.treatments")
    with pytest.MonkeyPatch.context() as patch:
        for kind in KINDS:
            double(kind)
        for name, module in list(sys.modules.items()):
            if name.startswith(parts) and vars(module).get("torch") is torch:
                patch.setattr(module, "torch", _Double("torch"))
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


@cache
def subject(kind: str) -> PolicySubject:
    return load_tiny_subject(kind, image_size=(64, 64))


@cache
def double(kind: str) -> PolicySubject:
    owner = load_tiny_subject(kind, image_size=(64, 64))
    owner.policy.double()
    return owner


def chunk(owner: PolicySubject, index: int, **options: Any) -> Tensor:
    """A normalised chunk, (1, steps, dims), from inputs as wide as the weights."""
    torch.manual_seed(index)
    owner.policy.eval()
    dtype = next(owner.policy.parameters()).dtype
    batch = owner.loaded.preprocessor(owner.observation(index))
    wide = {key: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v for key, v in batch.items()}
    return owner.policy.predict_action_chunk(wide, **options)


def treated_chunks(
    owner: PolicySubject, specs: Sequence[Spec], indices: Sequence[int] = (0, 1), **options: Any
) -> list[Tensor]:
    with treat(owner, Variant("treated", tuple(catalogue.make(spec) for spec in specs))):
        return [chunk(owner, index) for index in indices]


@cache
def baseline_chunks(kind: str) -> list[Tensor]:
    return [chunk(double(kind), index) for index in (0, 1)]


@pytest.mark.parametrize("kind", matrix(KINDS))
@pytest.mark.parametrize("spec", EXACT, ids=lambda spec: next(iter(spec)))
def test_each_is_exact_to_the_rounding_of_float64(float64_policies, kind, spec):
    for before, after in zip(baseline_chunks(kind), treated_chunks(double(kind), [spec]), strict=True):
        assert after.dtype == torch.float64
        torch.testing.assert_close(after, before, rtol=0, atol=FLOAT64)


@pytest.mark.parametrize("kind", matrix(KINDS))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(specs=st.permutations(EXACT), many=st.integers(2, len(EXACT)))
def test_together_in_any_order_they_are_exact(float64_policies, kind, specs, many):
    for before, after in zip(baseline_chunks(kind), treated_chunks(double(kind), specs[:many]), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=FLOAT64)


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_what_moves_no_sum_keeps_all_bits(kind):
    owner = subject(kind)
    specs = [spec for spec in EXACT if next(iter(spec)) not in ("cameras", "padding")]
    before = [chunk(owner, index) for index in (0, 1)]
    assert all(map(torch.equal, before, treated_chunks(owner, specs)))
    assert all(map(torch.equal, before, [chunk(owner, index) for index in (0, 1)])), "something was left behind"


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_training_is_left_alone(kind):
    owner = subject(kind)
    raw = owner.inputs.batch(2)
    before = owner.gradient(raw)
    undo = Variant("all", catalogue.compose(EXACT)).apply(owner)
    try:
        assert torch.equal(owner.gradient(raw), before)
    finally:
        undo()
        owner.policy.zero_grad()


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_under_real_time_chunking_they_are_the_same_with_autograd_and_in_closed_form(kind):
    owner = subject(kind)
    specs = [spec for spec in EXACT if next(iter(spec)) not in ("cameras", "padding")]
    rtc = RealTimeChunking(RTCConfig(enabled=True, execution_horizon=8), 2)
    chunks = []
    for added in ([], specs, [{"guidance": "closed form"}], [*specs, {"guidance": "closed form"}]):
        with treat(owner, Variant("it", (rtc, *catalogue.compose(added)))):
            chunks.append([owner.chunk(index) for index in (0, 1)])
    for others in chunks[1:]:
        assert all(map(torch.equal, chunks[0], others))


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_they_compute_less(kind):
    owner = subject(kind)

    def flops(specs: Sequence[Spec]) -> int:
        with treat(owner, Variant("it", catalogue.compose(specs))):
            owner.chunk(0)  # what is made once is made
            accounting = Accounting()
            accounting.run(lambda: owner.chunk(0))
            return accounting.total.flop.total()

    usual = flops([])
    assert flops([{"prefix_tail": "skipped"}]) < usual
    if kind == "pi05":
        assert flops([{"padding": "trimmed"}]) < 0.9 * usual
    if kind != "pi0":
        least = {"timesteps": "precomputed"} if kind == "pi05" else {"prefix_cache": "static"}
        assert flops([least]) < usual


def test_cameras_go_through_the_tower_in_one_pass():
    owner = subject("pi05")
    assert len(owner.policy.config.image_features) > 1
    calls = []
    for specs in ([], [{"cameras": "batched"}]):
        undo = Variant("it", catalogue.compose(specs)).apply(owner)
        with Attached(owner.hooks("inference", 1)), Timeline() as timeline:
            undo_late = Variant("it", catalogue.compose(specs)).apply(owner)
            owner.chunk(0)
            undo_late()
        undo()
        calls.append(sum(section.path[-1] == "vision tower" for section in timeline.sections()))
    assert calls == [len(owner.policy.config.image_features), 1]


def test_a_camera_that_is_not_there_is_not_computed(float64_policies):
    owner = double("pi05")
    name = next(iter(owner.policy.config.image_features))
    without = {key: value for key, value in owner.observation(0).items() if key != name}
    seen: list[int] = []
    model: Any = owner.policy.model
    inner = model.sample_actions

    def sample_actions(images: Any, *args: Any, **kwargs: Any) -> Tensor:
        seen.append(len(images))
        return inner(images, *args, **kwargs)

    chunks = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, "observation", lambda _: without)
        patch.setitem(owner.policy.model.__dict__, "sample_actions", sample_actions)
        for specs in ([], [{"padding": "trimmed"}]):
            chunks += treated_chunks(owner, specs, [0])
    assert seen == [len(owner.policy.config.image_features), len(owner.policy.config.image_features) - 1]
    torch.testing.assert_close(chunks[1], chunks[0], rtol=0, atol=FLOAT64)


@given(
    rows=st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=3),
    multiple=st.integers(1, 16),
)
def test_trimming_keeps_every_token_in_use_and_their_order(rows, multiple):
    mask = torch.tensor(rows)
    tokens = torch.arange(12).expand(len(rows), 12)
    batch = {OBS_LANGUAGE_TOKENS: tokens, OBS_LANGUAGE_ATTENTION_MASK: mask, "other": 1}
    trimmed = TrimmedPadding(multiple).trim_batch(batch)
    kept = trimmed[OBS_LANGUAGE_TOKENS][0].tolist()
    used = [column for column in range(12) if mask[:, column].any()]
    assert kept == sorted(kept)
    assert set(used) <= set(kept)
    assert torch.equal(trimmed[OBS_LANGUAGE_ATTENTION_MASK], mask[:, kept])
    assert not used or len(kept) == min(12, -(-len(used) // multiple) * multiple)
    assert trimmed["other"] == 1


@given(length=st.integers(1, 60), multiple=st.integers(1, 24), most=st.sampled_from([0, 48]))
def test_a_bucket_adds_masked_tokens_alone(length, multiple, most):
    tokens, mask = torch.arange(2 * length).view(2, length), torch.ones(2, length, dtype=torch.bool)
    batch = {OBS_LANGUAGE_TOKENS: tokens, OBS_LANGUAGE_ATTENTION_MASK: mask, "other": 1}
    padded = BucketedPrompt(multiple).bucket_batch(batch, most)
    tokens_now, mask_now = padded[OBS_LANGUAGE_TOKENS], padded[OBS_LANGUAGE_ATTENTION_MASK]
    assert torch.equal(tokens_now[:, :length], tokens)
    assert mask_now.dtype == torch.bool
    assert mask_now.sum(1).tolist() == [length, length]
    assert tokens_now.shape == mask_now.shape
    assert tokens_now.shape[1] % multiple == 0 or tokens_now.shape[1] == most
    assert tokens_now.shape[1] - length < multiple
    assert padded["other"] == 1


@pytest.mark.parametrize("kind", matrix(["smolvla", "pi05"]))
def test_a_prompt_in_a_bucket_moves_no_action_beyond_the_rounding_of_float64(float64_policies, kind):
    specs = [{"padding": "trimmed", "padding.multiple": 1}, {"prompt_length": "bucketed", "prompt_length.multiple": 32}]
    for before, after in zip(baseline_chunks(kind), treated_chunks(double(kind), specs), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=FLOAT64)


def test_another_number_of_steps_is_another_table():
    owner = subject("pi05")
    spec = catalogue.make({"timesteps": "precomputed"})
    for steps in (10, 3, 10):
        chosen = catalogue.make({"policy.num_inference_steps": steps})
        undo = Variant("chosen", (chosen,)).apply(owner)
        wanted = chunk(owner, 0)
        undo()
        undo = Variant("both", (chosen, spec)).apply(owner)
        assert torch.equal(chunk(owner, 0), wanted)
        undo()
    # What the config does not know is computed as ever.
    undo = Variant("told", (spec,)).apply(owner)
    told = chunk(owner, 0, num_steps=7)
    undo()
    assert torch.equal(told, chunk(owner, 0, num_steps=7))


def test_other_weights_are_another_table():
    owner = load_tiny_subject("pi05", image_size=(64, 64))
    spec = catalogue.make({"timesteps": "precomputed"})
    Variant("it", (spec,)).apply(owner)()
    with torch.no_grad():
        owner.policy.get_parameter("model.time_mlp_out.bias").add_(1)
    wanted = chunk(owner, 0)
    undo = Variant("it", (spec,)).apply(owner)
    assert torch.equal(chunk(owner, 0), wanted)
    undo()


def test_in_bf16_they_are_the_same_policy():
    owner = subject("pi05")
    half = {"precision": "bf16"}
    before, after = treated_chunks(owner, [half]), treated_chunks(owner, catalogue.sort_specs([*EXACT, half]))
    for a, b in zip(before, after, strict=True):
        assert torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.999


@pytest.mark.parametrize("spec", EXACT, ids=lambda spec: next(iter(spec)))
def test_other_policies_are_refused_in_a_line_and_other_values_too(spec):
    owner = load_tiny_subject("act")
    with pytest.raises(UserError, match="this is for pi0"):
        catalogue.make(spec).apply(owner)
    with pytest.raises(UserError, match="is the only value"):
        catalogue.make({next(iter(spec)): "sometimes"})


def test_a_policy_beside_a_treated_one_stays_as_it_was():
    one, other = (
        subject("pi05"),
        load_subject(
            PolicyOptions(type="pi05", size="tiny", overrides=["--device=cpu"]),
            InputOptions(image_size=(64, 64)),
            seed=1,
        ),
    )
    wanted = chunk(other, 0)
    with treat(one, Variant("it", catalogue.compose(EXACT))):
        chunk(one, 0)
        assert torch.equal(chunk(other, 0), wanted)
