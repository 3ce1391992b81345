"""The least bytes of a section, and the least time of a part: figures known beforehand."""

from __future__ import annotations

import pytest
import torch
from support.examples.runs import measurement
from torch import nn

from strobe.core.measure import ceiling as ceilings
from strobe.core.measure.accounting import Accounting
from strobe.core.measure.roofline import dtype_speedup, limits
from strobe.core.measure.traffic import counted_as
from strobe.core.results.subject import Ceiling
from strobe.core.timeline import section

CEILING = Ceiling(gflops={"float32": 100.0, "bfloat16": 400.0, "int8": 200.0}, memory_gbps=10.0)
TREE = {"policy": (0.95, {"encoder": 0.5, "decoder": 0.4}), "preprocessing": 0.02}


def count_moved_bytes(work) -> dict[tuple[str, ...], int]:
    accounting = Accounting()
    with torch.no_grad():
        accounting.run(work)
    return {path: account.moved_bytes for path, account in accounting.accounts.items()}


def test_weights_and_inputs_count_once_a_call_and_what_stays_inside_not_at_all():
    layer, x = nn.Linear(64, 32), torch.randn(8, 64)
    weights, inputs, outputs = 4 * (64 * 32 + 32), 4 * 8 * 64, 4 * 8 * 32

    def work():
        with section("three times"):
            y = None
            for _ in range(3):
                y = layer(x).relu_() * 2
        with section("twice called"):
            layer(x.t().t())
        with section("twice called"):
            layer(x)
        with section("around"), section("inside"):
            z = layer(x)
        return y, z

    kept = []
    moved = count_moved_bytes(lambda: kept.append(work()))
    assert moved["three times",] == weights + inputs + outputs
    assert moved["twice called",] == 2 * (weights + inputs)  # what it made is gone at its end
    assert moved["around", "inside"] == moved["around",] == weights + inputs + outputs


def test_of_a_table_the_rows_count_that_are_looked_up():
    table, rows = nn.Embedding(10_000, 16), torch.tensor([1, 5])
    kept = []

    def work():
        with section("words"):
            kept.append(table(rows))

    assert count_moved_bytes(work)["words",] == 2 * (2 * 16 * 4) + 2 * 8  # read, and written; and the two numbers


def test_a_stand_in_counts_in_the_dtype_of_the_engine():
    layer, x = nn.Linear(64, 32), torch.randn(8, 64)
    accounting = Accounting()

    def work():
        with section("part"), counted_as(torch.bfloat16):
            layer(x)

    with torch.no_grad():
        accounting.run(work)
    account = accounting.accounts["part",]
    assert account.flop == {"bfloat16": 2 * 8 * 64 * 32}
    assert account.moved_bytes == 2 * (64 * 32 + 32 + 8 * 64)


def make_measurement(name: str, ms: float, gflop: dict[str, dict[str, float]], moved: dict[str, int]):
    made = measurement(name, TREE, ms)
    for part in made.components:
        part.gflop_by_dtype, part.moved_bytes = gflop.get(part.name, {}), moved.get(part.name)
    return made


def test_each_part_is_bound_by_the_slower_of_its_products_and_its_bytes():
    flop = {"policy": {"float32": 3.0}, "encoder": {"float32": 2.0}, "decoder": {"float32": 0.5}}
    made = make_measurement("baseline", 100.0, flop, {"encoder": 10**7, "decoder": 10**8, "preprocessing": 10**6})
    [limit] = limits([made], CEILING)
    assert limit is not None
    parts = {part.part: part for part in limit.parts}
    assert list(parts) == ["encoder", "decoder", "preprocessing", "other"]
    assert (parts["encoder"].bound, parts["encoder"].least_ms) == ("compute", pytest.approx(20.0))
    assert (parts["decoder"].bound, parts["decoder"].least_ms) == ("memory", pytest.approx(10.0))
    assert parts["preprocessing"].least_ms == pytest.approx(0.1)
    assert parts["other"].least_ms == pytest.approx(5.0)  # 0.5 GFLOP of the policy are in none of its parts
    assert sum(part.ms for part in limit.parts) == pytest.approx(made.samples.summary.median)
    assert limit.least_ms == pytest.approx(35.1)
    assert limit.ceiling_share == pytest.approx(30.0 / made.samples.summary.median)
    # A quarter of the time for products, half the bytes; int8 is the slower one here, with a quarter of the bytes.
    lower = {one.dtype: one.least_ms for one in limit.lower}
    assert lower["bfloat16"] == pytest.approx(5 + 5 + 0.1 + 1.25)
    assert lower["int8"] == pytest.approx(10 + 2.5 + 0.1 + 2.5)


def test_a_part_that_beats_its_bound_has_its_own_time_for_it():
    [limit] = limits(
        [make_measurement("fast", 10.0, {"policy": {"float32": 2.0}, "encoder": {"float32": 2.0}}, {})], CEILING
    )
    assert limit is not None
    encoder = limit.parts[0]
    assert encoder.compute_ms == pytest.approx(20.0)
    assert encoder.least_ms == encoder.ms < 20.0
    assert limit.ceiling_share > 1


def test_nothing_is_said_of_what_was_not_counted_has_no_ceiling_or_ran_in_no_timed_part():
    in_half = make_measurement("half", 10.0, {"policy": {"float16": 2.0}}, {})
    assert limits([measurement("baseline", TREE, 10.0), in_half], CEILING) == [None, None]
    # As where a probe was attached in another order while FLOP were counted: the bound would be far too low.
    lost = make_measurement("lost", 100.0, {"policy": {"float32": 8.0}, "decoder": {"float32": 0.5}}, {})
    assert limits([lost], CEILING) == [None]


def test_a_dtype_buys_what_its_ceiling_and_its_bytes_do():
    flop = {"encoder": {"float32": 2.0}, "decoder": {"float32": 0.5}}
    made = make_measurement("baseline", 100.0, flop, {"encoder": 10**7, "decoder": 10**8})
    encoder, decoder = ([part for part in made.components if part.name == name] for name in flop)
    assert dtype_speedup("float32", [encoder], CEILING) == pytest.approx(1.0)
    assert dtype_speedup("bfloat16", [encoder], CEILING) == pytest.approx(4.0), "20 ms of products become 5"
    assert dtype_speedup("bfloat16", [decoder], CEILING) == pytest.approx(2.0), "bound by memory: half the bytes"
    assert dtype_speedup("bfloat16", [encoder, decoder], CEILING) == pytest.approx(3.0), "30 ms become 10"
    slow = CEILING.model_copy(update={"gflops": {"float32": 100.0, "bfloat16": 40.0}})
    assert dtype_speedup("bfloat16", [encoder], slow) == pytest.approx(0.4)
    assert dtype_speedup("bfloat16", [decoder], slow) == pytest.approx(10 / 12.5), (
        "its products are the slower side now"
    )
    assert dtype_speedup("int8", [encoder], slow) is None, "a ceiling that is not known"
    assert dtype_speedup("int8", [[]], CEILING) is None, "nothing was counted"


def test_the_ceilings_of_all_dtypes_a_ladder_may_come_to(monkeypatch):
    monkeypatch.setattr(ceilings, "_SECONDS", 0.02)
    monkeypatch.setattr(ceilings, "_SIDES", (64, 128))
    monkeypatch.setattr(ceilings, "_MOST", 2**22)
    found = ceilings.measure(torch.device("cpu"), ceilings.EVERYWHERE)
    assert {"float32", "bfloat16"} <= set(found.gflops)
    assert all(rate > 0 for rate in found.gflops.values())
    assert found.vector_gflops
    assert found.memory_gbps


def test_memory_is_measured_beyond_the_caches(monkeypatch, tmp_path):
    cache = tmp_path / "index3"
    cache.mkdir()
    (cache / "size").write_text("260M\n")
    monkeypatch.setattr(ceilings, "_CACHE", tmp_path)
    monkeypatch.setattr(ceilings, "available_bytes", lambda: 64 * 2**30)
    assert ceilings.stream_bytes(torch.device("cpu")) == 520 * 2**20
    (cache / "size").write_text("1024K\n")
    assert ceilings.stream_bytes(torch.device("cpu")) == 256 * 2**20
    monkeypatch.setattr(ceilings, "available_bytes", lambda: 2**30)  # a small board
    assert ceilings.stream_bytes(torch.device("cpu")) == 128 * 2**20
