"""build_fast makes what the policy's own constructor makes, and says so when it cannot."""

import contextlib
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lerobot.policies.factory import get_policy_class
from support.builders.tiny_policies import KINDS
from torch import nn

from strobe.core.errors import UserError
from strobe.core.families.registry import building
from strobe.lerobot.policies import build, inputs, lerobot_policies, standins
from strobe.lerobot.policies.build import FastBuildError, build_fast, shrink


def both(kind: str, above: int, *overrides: str):
    config: Any = lerobot_policies.config_from_type(kind, ["--device=cpu", *overrides])
    if hasattr(config, "pretrained_backbone_weights"):
        config.pretrained_backbone_weights = None
    shrink(config)
    lerobot_policies._fit_features(config, inputs.synthetic(config, tiny=True), {}, [])
    choice = get_policy_class(kind)
    with standins.stand_ins(kind, random_weights=True, tiny=True), building(config, True):
        torch.manual_seed(0)
        return choice(config), build_fast(lambda: choice(config), seed=0, above=above)


def ties(module: nn.Module) -> set[frozenset[str]]:
    groups: dict[int, set[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(parameter.untyped_storage().data_ptr(), set()).add(name)
    return {frozenset(names) for names in groups.values() if len(names) > 1}


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [(kind, ()) for kind in (*KINDS, "eo1", "evo1", "molmoact2", "wall_x")]
    + [("pi05", ("--dtype=bfloat16", "--train_expert_only=true"))],
)
def test_it_is_what_the_constructor_makes(kind: str, overrides: tuple[str, ...]) -> None:
    theirs, ours = both(kind, 256, *overrides)
    expected, found = dict(theirs.named_parameters()), dict(ours.named_parameters())
    assert list(expected) == list(found)
    assert ties(theirs) == ties(ours)
    for name, want in expected.items():
        have = found[name]
        assert (want.shape, want.dtype, want.requires_grad, want.stride()) == (
            have.shape,
            have.dtype,
            have.requires_grad,
            have.stride(),
        ), name
        assert type(have) is type(want)
        if want.numel() >= 1024:
            scale = max(float(want.float().std()), 1e-6)
            assert float(have.float().std()) == pytest.approx(scale, rel=0.15, abs=1e-6), name
            difference = abs(float(have.float().mean() - want.float().mean()))
            assert difference <= 6 * scale / want.numel() ** 0.5 + 1e-6, name
    for (name, want), (other, have) in zip(theirs.named_buffers(), ours.named_buffers(), strict=True):
        assert name == other
        assert torch.equal(want, have), name


def test_same_seed_same_weights_and_the_global_random_state_is_left_alone() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(300, 300), nn.Linear(4, 4))

    before, python = torch.get_rng_state(), random.getstate()
    first, again, other = (build_fast(make, seed=s, above=1000).state_dict() for s in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert python == random.getstate()
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not any(torch.equal(first[k], other[k]) for k in first)


def test_writes_into_a_part_are_kept() -> None:
    embedding: Any = build_fast(lambda: nn.Embedding(100, 50, padding_idx=3).to(torch.bfloat16), above=1000)
    weight = embedding.weight
    assert weight.dtype == torch.bfloat16
    assert torch.all(weight[3] == 0)
    assert torch.all(weight[4] != 0)


def test_a_weight_overwritten_after_a_cast_keeps_its_dtype() -> None:
    def make() -> nn.Module:
        layer = nn.Linear(64, 64, bias=False).to(torch.bfloat16)
        nn.init.constant_(layer.weight, 0.5)
        return layer

    layer: Any = build_fast(make, above=1000)
    assert layer.weight.dtype == torch.bfloat16
    assert torch.all(layer.weight == 0.5)


def test_a_checkpoint_read_inside_is_what_the_weights_hold() -> None:
    saved = nn.Linear(64, 64)

    def make() -> nn.Module:
        layer = nn.Linear(64, 64)
        layer.load_state_dict(saved.state_dict())
        return layer

    assert torch.equal(build_fast(make, above=1000).weight, saved.weight)  # pyright: ignore[reportArgumentType]


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.scale = float(self.layer.weight.sum())


class Derives(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("doubled", self.layer.weight.detach() * 2)


class Orthogonal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        nn.init.orthogonal_(self.layer.weight)


def test_where_a_weight_is_that_is_put_off_is_where_others_are() -> None:
    def make() -> nn.Module:
        first, second = nn.Linear(64, 64), nn.Linear(8, 8)
        return nn.ModuleList([first, second.to(device=first.weight.device, dtype=torch.bfloat16)])

    found: Any = build_fast(make, seed=0, above=1024)
    assert found[1].weight.dtype == torch.bfloat16
    assert 0 < float(found[1].weight.std()) < 1


def test_values_that_the_constructor_needs_are_there_when_it_needs_them() -> None:
    read: Any = build_fast(Reads, above=1000)
    assert read.scale == pytest.approx(float(read.layer.weight.sum()))
    derived: Any = build_fast(Derives, above=1000)
    assert torch.equal(derived.doubled, derived.layer.weight * 2)
    orthogonal: Any = build_fast(Orthogonal, above=1000)
    weight = orthogonal.layer.weight
    assert torch.allclose(weight @ weight.T, torch.eye(64), atol=1e-5)


def test_trying_the_layers_out_in_the_constructor_leaves_trainable_weights() -> None:
    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64))
            with torch.inference_mode():
                self.shape = self.layers(torch.zeros(1, 3, 8, 8)).shape

    module: Any = build_fast(Tries, above=1000)
    assert module.shape == (1, 64, 6, 6)
    module.layers(torch.rand(2, 3, 8, 8)).sum().backward()
    assert module.layers[0].weight.grad is not None


def test_a_constructor_tries_its_layers_out_where_it_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 the weights were on the card already, and the constructor's inputs were not."""
    outputs: list[torch.Tensor] = []

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 64, 3)
            outputs.append(self.layer(torch.ones(1, 3, 8, 8)).detach())

    # The device "meta" stands for a card: it is not the CPU, and it is everywhere. It has no generator and no memory.
    monkeypatch.setattr(build, "generators_restored", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(build, "find_device_memory", lambda _: None)
    with pytest.raises(FastBuildError, match="no values"):
        build_fast(Tries, "meta", above=1000)
    assert outputs[0].device.type == "cpu"
    assert 0 < float(outputs[0].std()) < 1


def test_what_is_left_without_values_is_refused_loudly() -> None:
    with pytest.raises(FastBuildError):
        build_fast(lambda: nn.Linear(4, 4, device="meta"))


class Closed(nn.Module):
    """A module whose closure holds a table that no attribute leads to."""

    def __init__(self, dropped: bool) -> None:
        super().__init__()
        table = torch.empty(64, 64).normal_()
        self.scale = nn.Linear(2, 2)
        self.read = None if dropped else lambda: table.mean()


def test_what_only_a_closure_holds_is_not_left_without_values() -> None:
    with pytest.raises(FastBuildError, match="1 tensors of Closed"):
        build_fast(lambda: Closed(dropped=False), above=16)
    build_fast(lambda: Closed(dropped=True), above=16)


def test_an_error_of_the_constructor_is_not_hidden() -> None:
    def make() -> nn.Module:
        raise RuntimeError("out of cheese")

    with pytest.raises(RuntimeError, match="cheese"):
        build_fast(make)


def test_large_buffers_and_computed_tables_hold_their_values() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            table = torch.empty(100, 20)
            table[:, 0::2] = torch.arange(100.0)[:, None]
            table[:, 1::2] = 1.0
            self.register_buffer("table", table)

    table = build_fast(Table, above=1000).table
    assert torch.equal(table[:, 0], torch.arange(100.0))  # pyright: ignore[reportIndexIssue, reportArgumentType]
    assert torch.all(table[:, 1] == 1)  # pyright: ignore[reportIndexIssue, reportArgumentType]


def test_weights_that_do_not_fit_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build.psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20))
    with pytest.raises(UserError, match=r"Linear: its weights take 0\.2 GiB, and 0\.0 GiB are free on this machine"):
        build_fast(lambda: nn.Linear(8192, 8192), above=1 << 18)
