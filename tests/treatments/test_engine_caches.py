"""Caches at an engine's border: what a part appends to one that it was given, and one that it makes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten
from transformers.cache_utils import DynamicCache, StaticCache

from strobe.treatments.engines.recorded import GivenCache, caches_flattened, caches_restored, is_cache, run_flattened


class Reads(nn.Module):
    """Appends to the first layer of the cache that it is given, and only reads the second."""

    def forward(self, x: Tensor, past: DynamicCache | None = None) -> tuple[Tensor, Any]:
        made: Any = DynamicCache() if past is None else past
        keys, values = made.update(x, 2 * x, 0)
        if past is None:
            made.update(3 * x, 4 * x, 1)
        return keys.sum() + values.sum() + made.layers[1].keys.sum(), made


def make_filled_cache(length: int) -> Any:
    x = torch.arange(2.0 * length).reshape(1, 1, length, 2)
    return Reads()(x)[1]


def test_a_given_cache_is_appended_to_and_given_back() -> None:
    plain, own, x = make_filled_cache(3), make_filled_cache(3), torch.ones(1, 1, 2, 2)
    wanted, _ = Reads()(x, plain)
    (args, kwargs), caches = caches_flattened(((x,), {"past": own}))
    assert caches == [own]
    assert all(isinstance(leaf, Tensor) for leaf in tree_flatten((args, kwargs))[0])
    results: Any = run_flattened(Reads(), args, kwargs)
    assert results.value[1] == GivenCache(0)
    assert [[number for number, *_ in one.layers] for one in results.appended] == [[0]]
    assert [layer.keys.shape[-2] for layer in own.layers] == [3, 3], "nothing is appended before the results are there"
    restored: Any = caches_restored(results, caches)
    value, back = restored
    assert back is own
    assert torch.equal(value, wanted)
    for ours, theirs in zip(own.layers, plain.layers, strict=True):
        assert torch.equal(ours.keys, theirs.keys)
        assert torch.equal(ours.values, theirs.values)


def test_a_cache_that_is_made_comes_out_whole() -> None:
    x = torch.ones(1, 1, 2, 2)
    wanted = make_filled_cache(2)
    results = run_flattened(Reads(), (torch.arange(4.0).reshape(1, 1, 2, 2),), {})
    assert not results.appended
    restored: Any = caches_restored(results, [])
    _, made = restored
    assert isinstance(made, DynamicCache)
    layers: Any = made.layers
    assert [layer.keys.tolist() for layer in layers] == [layer.keys.tolist() for layer in wanted.layers]
    made.update(x, x, 1)
    assert made.get_seq_length(1) == 4, "it grows like any other"


def test_other_caches_are_left_as_they_are() -> None:
    assert is_cache(DynamicCache())
    assert is_cache(make_filled_cache(1))
    assert not is_cache(object())
    assert not issubclass(StaticCache, DynamicCache), "it has room of its own, and is refused as no tensor"
