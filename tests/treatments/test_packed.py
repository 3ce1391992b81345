"""Weights packed: the numbers of the linear layers, of their present weights, whoever calls them, and no trace."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat
from support.fakes.module_subject import Bare
from torch import Tensor, nn

from strobe.core.errors import UserError
from strobe.core.measure.accounting import Accounting
from strobe.core.timeline import section
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.layers import packed
from strobe.treatments.layers.packed import PackedWeights
from strobe.treatments.layers.projections import FusedProjections
from strobe.treatments.numbers.precision import Precision

ABLE = packed.packable(torch.device("cpu"))

needs_kernels = pytest.mark.skipif(torch.bfloat16 not in ABLE, reason="a CPU without kernels for weights of 16 bits")
needs_mkl = pytest.mark.skipif(torch.float32 not in ABLE, reason="torch without MKL")


class Layers(nn.Module):
    """Projections of one input, of two inputs, and a layer on its own, in bfloat16."""

    def __init__(self, sizes: tuple[int, int] = (64, 96)) -> None:
        super().__init__()
        torch.manual_seed(0)
        narrow, wide = sizes
        self.one = nn.ModuleDict({name: nn.Linear(narrow, wide) for name in ("q_proj", "k_proj", "v_proj")})
        self.two = nn.ModuleDict({name: nn.Linear(narrow, wide) for name in ("q_proj", "k_proj", "v_proj")})
        self.alone = nn.Linear(wide, narrow, bias=False)
        self.bfloat16().requires_grad_(False)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        own = [layer(x) for layer in self.one.values()]
        crossed = [layer(x if name == "q_proj" else other) for name, layer in self.two.items()]
        return self.alone(sum(own) + sum(crossed))


def make_inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(5, 64).bfloat16(), torch.randn(5, 64).bfloat16()


def run(module: nn.Module, *treatments: Treatment, calls: int = 4) -> Tensor:
    with treat(Bare(module), Variant("v", treatments)), torch.no_grad():
        return [module(*make_inputs()) for _ in range(calls)][-1]


def operators(call: Any) -> dict[str, int]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.key: event.count for event in profile.key_averages()}


def count(call: Any) -> tuple[int, int]:
    """FLOP in bfloat16 and the least bytes of ``call``."""
    accounting, kept = Accounting(), []

    def work() -> None:
        with section("all"):
            kept.append(call())

    accounting.run(work)
    return accounting.flop["bfloat16"], accounting.accounts["all",].moved_bytes


def close(got: Tensor, wanted: Tensor) -> bool:
    return bool((got.float() - wanted.float()).abs().max() <= 0.02 * wanted.float().abs().max())


@needs_kernels
def test_every_layer_in_bfloat16_runs_packed_with_the_same_numbers() -> None:
    module = Layers()
    with torch.no_grad():
        wanted = module(*make_inputs())
    treatment = PackedWeights()
    ran = operators(lambda: run(module, treatment, calls=1))
    assert ran["mkldnn::_linear_pointwise"] == 7
    assert "aten::linear" not in ran
    assert close(run(module, treatment), wanted)


@needs_kernels
def test_fused_projections_are_packed_together_and_those_left_apart_on_their_own() -> None:
    module = Layers()
    with torch.no_grad():
        wanted = module(*make_inputs())
    treatments = (FusedProjections(), PackedWeights())
    run(module, *treatments)  # by now the projections of two inputs are left apart
    ran = operators(lambda: run(module, *treatments, calls=1))
    assert ran["mkldnn::_linear_pointwise"] == 1 + 3 + 1
    assert "aten::linear" not in ran
    assert close(run(module, *treatments), wanted)


@needs_kernels
def test_its_flop_and_bytes_are_counted() -> None:
    layer = nn.Linear(64, 96, bias=False).bfloat16().requires_grad_(False)
    found = []
    for treatments in ((), (PackedWeights(),)):
        undo = Variant("v", treatments).apply(Bare(layer))  # type: ignore[arg-type]
        x = make_inputs()[0]
        with torch.no_grad():
            layer(x)
            found.append(count(functools.partial(layer, x)))
        undo()
    assert found[1] == found[0]
    assert found[1] == (2 * 5 * 64 * 96, 2 * (5 * 64 + 64 * 96 + 5 * 96))


@needs_kernels
def test_weights_that_changed_are_packed_anew() -> None:
    module, treatment = Layers(), PackedWeights()
    before = run(module, treatment)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(-0.5)
        wanted = module(*make_inputs())
    after = run(module, treatment)
    assert close(after, wanted)
    assert not close(after, before)


@needs_kernels
def test_it_leaves_no_trace_and_names_the_dtypes_that_gain() -> None:
    module, treatment = Layers(), PackedWeights()
    before = [dict(vars(child)) for child in module.modules()]
    run(module, FusedProjections(), treatment)
    run(module, treatment)
    assert [dict(vars(child)) for child in module.modules()] == before
    with pytest.raises(UserError, match="no linear layers in bfloat16"):
        run(module.half(), treatment)


@needs_kernels
def test_gradients_reach_the_weights() -> None:
    module, treatment = Layers(), PackedWeights()
    with treat(Bare(module.requires_grad_()), Variant("v", (treatment,))):
        module(*make_inputs()).sum().backward()
    assert all(weight.grad is not None for weight in module.parameters())


@needs_kernels
def test_a_compiled_region_calls_the_packed_product() -> None:
    module, treatment = Layers(), PackedWeights()
    wanted = run(module, treatment)
    with treat(Bare(module), Variant("v", (treatment,))):
        compiled = torch.compile(module, backend="aot_eager")
        with torch.no_grad():
            assert close(compiled(*make_inputs()), wanted)
            assert operators(lambda: compiled(*make_inputs()))["strobe::packed_linear"] == 7


@needs_mkl
def test_float32_is_packed_for_the_rows_of_the_first_call() -> None:
    layer, treatment = nn.Linear(64, 96).requires_grad_(False), PackedWeights()
    wide, high = torch.randn(1, 5, 64), torch.randn(7, 64)
    wanted, other = layer(wide), layer(high)
    with treat(Bare(layer), Variant("v", (treatment,))), torch.no_grad():
        assert torch.allclose(layer(wide), wanted, atol=1e-5)
        assert "mkl::_mkl_linear" in operators(lambda: layer(wide))
        for _ in range(packed._AGAIN - 1):  # now and then another length: computed as ever
            ran = operators(lambda: layer(high))
            assert "mkl::_mkl_linear" not in ran
        assert torch.equal(layer(wide), layer(wide))
        for _ in range(packed._AGAIN):  # another length for good
            assert torch.allclose(layer(high), other, atol=1e-5)
        assert "mkl::_mkl_linear" in operators(lambda: layer(high))
        assert torch.allclose(layer(wide), wanted, atol=1e-5)


@needs_mkl
def test_fused_projections_in_float32_take_other_rows_too() -> None:
    module = Layers().float()
    treatments = (FusedProjections(), PackedWeights())
    first, more = torch.randn(2, 5, 64), torch.randn(2, 7, 64)
    with torch.no_grad():
        wanted = [module(*given) for given in (first, more)]
    with treat(Bare(module), Variant("v", treatments)), torch.no_grad():
        for given, right in zip((first, more) * 2, wanted * 2, strict=True):
            assert torch.allclose(module(*given), right, atol=1e-4)


@needs_mkl
def test_in_float32_its_flop_and_bytes_are_counted_and_autocast_is_left_alone() -> None:
    layer = nn.Linear(64, 96, bias=False).requires_grad_(False)
    accounting, x = Accounting(), torch.randn(5, 64)
    with treat(Bare(layer), Variant("v", (PackedWeights(),))), torch.no_grad():
        layer(x)

        def work() -> None:
            with section("all"):
                kept.append(layer(x))

        kept: list[Tensor] = []
        accounting.run(work)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype is torch.bfloat16
    assert accounting.flop["float32"] == 2 * 5 * 64 * 96
    assert accounting.accounts["all",].moved_bytes == pytest.approx(4 * (5 * 64 + 64 * 96 + 5 * 96), abs=4)


@needs_mkl
def test_a_part_alone_is_packed_and_compiled_regions_call_its_product() -> None:
    module, treatment = Layers().float(), PackedWeights("one")
    x = torch.randn(2, 5, 64)
    with torch.no_grad():
        wanted = module(*x)
    with treat(Bare(module), Variant("v", (treatment,))), torch.no_grad():
        assert operators(lambda: module(*x))["mkl::_mkl_linear"] == 3
        compiled = torch.compile(module, backend="aot_eager")
        assert torch.allclose(compiled(*x), wanted, atol=1e-4)
        assert operators(lambda: compiled(*x))["mkl::_mkl_linear"] == 3
    assert treatment.traits().labelled_values() == {"weights": "packed", "weights.part": "one"}


@needs_mkl
def test_what_does_not_fit_whole_is_offered_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates, subject = catalogue.find_entry("weights").candidates, tiny()
    sizes: list[int] = []
    monkeypatch.setattr(packed, "fits", lambda needed, _: sizes.append(needed) or True)
    assert candidates(subject) == [{"weights": "packed"}]
    monkeypatch.setattr(packed, "fits", lambda needed, _: needed < 0.7 * sizes[0])
    parts = [spec["weights.part"] for spec in candidates(subject)]
    assert parts
    assert all(part in dict(subject.module.named_modules()) for part in parts)
    monkeypatch.setattr(packed, "fits", lambda needed, _: False)
    assert candidates(subject) == [{"weights": "packed"}]  # refused when it is applied, with the sizes


def test_it_is_for_cpus() -> None:
    with pytest.raises(UserError, match="for CPUs: kernels on meta"):
        packed.require_packing(torch.device("meta"))
    assert not packed.packable(torch.device("meta"))


@functools.cache
def tiny() -> PolicySubject:
    return load_tiny_subject("pi05", "--num_inference_steps=2")


@needs_kernels
def test_a_flow_policy_acts_as_its_bfloat16_self() -> None:
    subject, bf16 = tiny(), Precision("bf16")

    def chunk(*treatments: Treatment) -> Tensor:
        with treat(subject, Variant("v", treatments)):
            return subject.model_chunk(0)

    plain, wanted = chunk(bf16), chunk()
    treatment = PackedWeights()
    got = chunk(bf16, treatment)
    assert (got - plain).abs().max() <= 2 * (plain - wanted).abs().max()
    assert operators(lambda: chunk(bf16, treatment))["mkldnn::_linear_pointwise"] > 0
