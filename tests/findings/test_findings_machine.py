"""Findings on a device that waits, a part below the ceiling and precisions of products."""

import pytest
from support.findings_results import measured, result, rules

from strobe.results.answer import Result


def on_device(host: float, *, clock: str = "device") -> Result:
    parts = {"policy": 100.0, "policy/backbone": 100.0}
    return result(measured(parts, clock=clock, more={"policy/backbone": {"host_ms": host}}), device="cuda:0")


@pytest.mark.parametrize(("host", "fires"), [(94.0, False), (95.0, True)])
def test_a_device_that_waits_for_the_host(host: float, fires: bool):
    assert ("host-bound" in rules(on_device(host))) == fires


@pytest.mark.parametrize(("vision", "fires"), [(40.0, True), (60.0, False)])
def test_most_of_the_time_decides_whether_the_device_waits(vision: float, fires: bool):
    """On an H100, pi0.5's vision tower keeps the device busy, and its denoising steps do not."""
    parts = {"policy": 100.0, "policy/vision tower": vision, "policy/denoise step": 100.0 - vision}
    more = {"policy/vision tower": {"host_ms": 0.5 * vision}, "policy/denoise step": {"host_ms": 102.0 - vision}}
    assert ("host-bound" in rules(result(measured(parts, clock="device", more=more), device="cuda:0"))) == fires


def test_the_host_is_not_bound_by_itself():
    assert "host-bound" not in rules(on_device(100.0, clock="host"))


def test_preprocessing_on_the_host_does_not_make_the_policy_host_bound():
    parts = {"preprocessing": 90.0, "policy": 10.0, "policy/backbone": 10.0}
    more = {"preprocessing": {"host_ms": 200.0}, "policy/backbone": {"host_ms": 2.0}}
    assert "host-bound" not in rules(result(measured(parts, clock="device", more=more), device="cuda:0"))


@pytest.mark.parametrize(
    ("ms", "reached", "fires"), [(20.0, 0.09, True), (20.0, 0.1, False), (19.9, 0.09, False), (20.0, None, False)]
)
def test_a_big_part_far_below_the_ceiling(ms: float, reached: float | None, fires: bool):
    parts = {"policy": 100.0, "policy/encoder": ms}
    found = rules(result(measured(parts, more={"policy/encoder": {"ceiling_share": reached}})))
    assert ("below-ceiling" in found) == fires


def in_float32(share: float, *, fast: float = 400.0, half: int = 90) -> Result:
    """A part of 10 GFLOP in 100 ms, ``share`` of them in float32."""
    slow, gflop = 100.0, 10.0
    least = share * gflop / slow + (1 - share) * gflop / fast
    more = {"policy/vision tower": {"gflop": gflop, "ceiling_share": least / 0.1}}
    parts = {"policy": 100.0, "policy/vision tower": 100.0}
    return result(
        measured(parts, more=more),
        dtypes={"bfloat16": half, "float32": 100 - half},
        gflops={"float32": slow, "bfloat16": fast},
    )


@pytest.mark.parametrize(("share", "fires"), [(1.0, True), (0.51, True), (0.49, False), (0.0, False)])
def test_single_precision_is_read_from_the_ceiling_it_was_held_against(share: float, fires: bool):
    found = rules(in_float32(share))
    assert ("single-precision" in found) == fires
    if fires:
        assert found["single-precision"].evidence["float32_share_of_flop"] == pytest.approx(share)
        assert "strobe compare --precision bf16" in found["single-precision"].do


def test_single_precision_gives_what_the_faster_ceiling_allows():
    assert rules(in_float32(1.0, fast=400.0))["single-precision"].evidence["gain_share"] == pytest.approx(0.75)


def test_single_precision_is_right_where_half_is_no_faster_or_the_weights_are_float32():
    assert "single-precision" not in rules(in_float32(1.0, fast=140.0))
    assert "single-precision" not in rules(in_float32(1.0, half=10))


def in_half(gflop: float, *, half: float = 100.0, wide: float = 200.0) -> Result:
    """100 ms with ``gflop`` in bfloat16."""
    more = {"policy": {"gflop": gflop, "gflop_by_dtype": {"bfloat16": gflop}}}
    return result(measured({"policy": 100.0}, more=more), gflops={"float32": wide, "bfloat16": half})


@pytest.mark.parametrize(("gflop", "fires"), [(8.0, True), (4.1, True), (3.9, False)])
def test_products_in_half_where_the_machine_is_slower_in_it(gflop: float, fires: bool):
    found = rules(in_half(gflop))
    assert ("half-slower" in found) == fires
    if fires:  # half of the time at the ceiling of bfloat16 goes
        assert found["half-slower"].evidence["gain_share"] == pytest.approx(gflop / 100.0 / 0.1 / 2)
        assert "100 GFLOP/s in bfloat16 and at 200 in float32" in found["half-slower"].seen


def test_products_in_half_are_right_where_it_is_hardly_slower_or_faster():
    assert "half-slower" not in rules(in_half(8.0, half=150.0))
    assert "half-slower" not in rules(in_half(8.0, half=400.0))
    assert "half-slower" not in rules(in_half(8.0, half=0.0))


@pytest.mark.parametrize(
    ("nodes", "threads", "device", "fires"),
    [(2, 2, "cpu", True), (2, 1, "cpu", False), (1, 2, "cpu", False), (2, 2, "cuda:0", False)],
)
def test_threads_on_several_memory_nodes(nodes: int, threads: int, device: str, fires: bool):
    seen = result(measured({"policy": 100.0}), device=device)
    seen.machine.nodes, seen.machine.threads = nodes, threads
    found = rules(seen)
    assert ("several-nodes" in found) == fires
    if fires:
        assert found["several-nodes"].title == "2 threads lie on 2 memory nodes (NUMA)"


@pytest.mark.parametrize(
    ("policy", "preprocessing", "levels"),
    [(150.0, 20.0, ("good", "good")), (151.0, 21.0, ("info", "info")), (251.0, 51.0, ("warning", "warning"))],
)
def test_times_on_apple_silicon(policy: float, preprocessing: float, levels: tuple[str, str]):
    whole = measured({"preprocessing": preprocessing, "policy": policy}, whole=policy + preprocessing)
    found = rules(result(whole, device="mps", mps_known=True))
    assert (found["mps-policy"].level, found["mps-preprocessing"].level) == levels
    assert "mps-policy" not in rules(result(whole, device="cpu", mps_known=True))
    assert "mps-policy" not in rules(result(whole, device="mps"))


@pytest.mark.parametrize(
    ("kernel_ms", "faults", "clock", "fires"),
    [(20.0, 5000, "host", True), (4.0, 5000, "host", False), (20.0, 10, "host", False), (20.0, 5000, "device", False)],
)
def test_memory_fetched_from_the_kernel_on_every_call(kernel_ms: float, faults: int, clock: str, fires: bool):
    measurement = measured({"policy": 100.0}, clock=clock)
    measurement.memory.kernel_ms, measurement.memory.page_faults = kernel_ms, faults
    found = result(measurement)
    found.machine.threads = 2
    assert ("memory-churn" in rules(found)) == fires
